//! The sum of what all test programs reported.

use std::fmt;

/// Tests that passed and failed, over every `test result:` line seen, and who failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestTally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Names of the tests that failed, as the test programs print them.
    pub(crate) failures: Vec<String>,
}

impl TestTally {
    /// Adds the figures of the line if it reports the end of a test program, or the name of a test
    /// that failed.
    pub(crate) fn count(&mut self, line: &str) {
        let line = line.trim();
        let named = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failures.extend(named.map(str::to_owned));
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
            let number = number.parse().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for TestTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_are_summed_and_other_lines_ignored() {
        let mut tally = TestTally::default();
        for line in [
            "running 3 tests",
            "test it_works ... ok",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.02s",
            "test result: FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.50s",
            "test a::first ... FAILED",
            "5 passed; 5 failed",
        ] {
            tally.count(line);
        }
        assert_eq!(tally.to_string(), "10 passed, 2 failed");
        assert_eq!(tally.failures, ["a::first"]);
    }
}
