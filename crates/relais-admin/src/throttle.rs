//! The throttle of failed log-ins by address.
//!
//! Invariant: memory is bounded for any number of addresses. A token has 256 bits, so this protects against
//! load rather than against guessing.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Failures of one address within [`WINDOW`] before it has to wait.
const FAILURES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Most addresses tracked; further ones are counted together.
const ADDRESSES_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<Option<IpAddr>, Failures>>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Throttle {
    /// Returns how long the address has to wait before the next attempt.
    pub(crate) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = all.get(&Some(network(address))).or_else(|| {
            let full = all.len() >= ADDRESSES_MAX;
            all.get(&None).filter(|_| full)
        })?;
        let left = WINDOW.checked_sub(now.duration_since(failures.since))?;
        (failures.count >= FAILURES_MAX && !left.is_zero()).then_some(left)
    }

    pub(crate) fn failed(&self, address: IpAddr, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, failures| now.duration_since(failures.since) < WINDOW);
        let own = Some(network(address));
        let known = all.contains_key(&own) || all.len() < ADDRESSES_MAX;
        let failures =
            all.entry(own.filter(|_| known)).or_insert(Failures { since: now, count: 0 });
        failures.count = failures.count.saturating_add(1);
    }
}

/// Returns the /64 of an IPv6 address, because one client usually owns all of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => std::net::Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let (bad, good) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..FAILURES_MAX {
            assert_eq!(throttle.wait(bad, now), None);
            throttle.failed(bad, now);
        }
        assert_eq!(throttle.wait(bad, now), Some(WINDOW));
        assert_eq!(throttle.wait(good, now), None);
        assert_eq!(throttle.wait(bad, now + WINDOW), None);
        throttle.failed(bad, now + WINDOW);
        assert_eq!(throttle.wait(bad, now + WINDOW), None, "the count starts again");
    }

    #[test]
    fn memory_is_bounded_and_neighbours_count_as_one() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..5_000_u32 {
            throttle.failed(IpAddr::V4(n.into()), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        assert!(
            throttle.wait("10.9.9.9".parse().unwrap(), now).is_some(),
            "further addresses together"
        );
        let throttle = Throttle::default();
        for n in 0..FAILURES_MAX {
            throttle.failed(format!("2001:db8::{n:x}").parse().unwrap(), now);
        }
        assert!(throttle.wait("2001:db8::ffff".parse().unwrap(), now).is_some());
    }
}
