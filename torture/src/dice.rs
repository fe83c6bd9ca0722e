//! Chance from one seed: the same seed throws the same dice.

use std::time::Duration;

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of one part of a run; parts do not disturb each other.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut dice = Self(seed ^ part.wrapping_mul(0xA076_1D64_78BD_642F));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from((to - from).as_micros()).unwrap_or(u64::MAX).max(1);
        from + Duration::from_micros(self.below(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_throws_the_same_and_its_parts_throw_differently() {
        let throws = |seed, part| {
            let mut dice = Dice::new(seed, part);
            [dice.next(), dice.next(), dice.next()]
        };
        assert_eq!(throws(1, 2), throws(1, 2));
        assert_ne!(throws(1, 2), throws(1, 3));
        assert_ne!(throws(1, 2), throws(2, 2));
    }
}
