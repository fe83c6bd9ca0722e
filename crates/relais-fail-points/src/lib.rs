//! Named points at which a test aborts the process, as a power cut would: nothing is closed, flushed or
//! given back.
//!
//! Invariant: without the feature `fail-points` a point expands to nothing. With it, a point does
//! nothing unless the environment names it.
//!
//! - `RELAIS_FAIL_POINT=relay.after_publish:3` aborts the process at the third hit of that point.
//! - `RELAIS_FAIL_POINTS_HIT=FILE` appends the name of each point that is hit, one per line.

#![warn(missing_docs)]

#[cfg(feature = "fail-points")]
pub use on::hit;

/// Marks a point: `fail_point!("relay.after_publish");`.
#[cfg(feature = "fail-points")]
#[macro_export]
macro_rules! fail_point {
    ($name:literal) => {
        $crate::hit($name)
    };
}

/// Expands to nothing in this build.
#[cfg(not(feature = "fail-points"))]
#[macro_export]
macro_rules! fail_point {
    ($name:literal) => {};
}

#[cfg(feature = "fail-points")]
mod on {
    use std::{
        env,
        fs::{File, OpenOptions},
        io::Write,
        process,
        sync::{
            OnceLock,
            atomic::{AtomicUsize, Ordering},
        },
    };

    /// Variables of the environment.
    struct FailPlan {
        fault: Option<FailAt>,
        list: Option<File>,
    }

    struct FailAt {
        point: String,
        nth: usize,
        hits: AtomicUsize,
    }

    /// Records the hit, and aborts the process if the environment names it.
    pub fn hit(point: &'static str) {
        static PLAN: OnceLock<FailPlan> = OnceLock::new();
        let FailPlan { fault, list } = PLAN.get_or_init(FailPlan::from_environment);
        if let Some(mut list) = list.as_ref() {
            // In one write, so that lines of several processes do not mix.
            let line = format!("{point}\n");
            list.write_all(line.as_bytes()).expect("the list of fail points can be written");
        }
        if fault.as_ref().is_some_and(|fault| fault.is_now(point)) {
            process::abort();
        }
    }

    impl FailPlan {
        fn from_environment() -> Self {
            let fault = env::var("RELAIS_FAIL_POINT").ok();
            let fault = fault.map(|text| {
                FailAt::parse(&text).expect("RELAIS_FAIL_POINT is POINT:COUNT, counted from 1")
            });
            let list = env::var_os("RELAIS_FAIL_POINTS_HIT").map(|path| {
                let opened = OpenOptions::new().append(true).create(true).open(path);
                opened.expect("the file that RELAIS_FAIL_POINTS_HIT names can be opened")
            });
            Self { fault, list }
        }
    }

    impl FailAt {
        fn parse(text: &str) -> Option<Self> {
            let (point, nth) = text.rsplit_once(':')?;
            let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
            Some(Self { point: point.to_owned(), nth, hits: AtomicUsize::new(0) })
        }

        fn is_now(&self, point: &str) -> bool {
            self.point == point && self.hits.fetch_add(1, Ordering::Relaxed) + 1 == self.nth
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_the_nth_hit_of_its_point_counts() {
            let fault = FailAt::parse("relay.after_publish:2").unwrap();
            assert!(!fault.is_now("relay.after_publish"));
            assert!(!fault.is_now("relay.after_fetch"));
            assert!(fault.is_now("relay.after_publish"));
            assert!(!fault.is_now("relay.after_publish"));
        }

        #[test]
        fn a_text_without_point_or_count_is_refused() {
            for text in ["", "relay.after_publish", "relay.after_publish:0", "x:y"] {
                assert!(FailAt::parse(text).is_none(), "{text}");
            }
        }
    }
}
