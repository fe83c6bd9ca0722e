//! Loopback ports for the servers we start.
//!
//! Invariant: a port is given out once, so servers that start side by side get different ones.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Result, bail};

/// Below the range from which systems give ports to outgoing connections, so that none of them takes the
/// port of a server that is down for a moment.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Most ports that are tried; another program may be faster.
const STARTS_MAX: usize = 5;

/// Number of ports that this process has tried.
static LOOKED_AT: AtomicU16 = AtomicU16::new(0);

/// Starts a server on the first port that works.
pub(crate) fn first_that_works(mut start: impl FnMut(u16) -> Result<()>) -> Result<u16> {
    let mut problem = String::new();
    for _ in 0..STARTS_MAX {
        let port = free()?;
        match start(port) {
            Ok(()) => return Ok(port),
            Err(error) => problem = format!("{error:#}"),
        }
    }
    bail!("{problem}\n({STARTS_MAX} ports were tried)")
}

/// Returns a free port. Two runs at the same time start at different places.
pub(crate) fn free() -> Result<u16> {
    let first = u32::from(PORTS.start) + std::process::id() % u32::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let step = u32::from(LOOKED_AT.fetch_add(1, Ordering::Relaxed));
        let port = in_range(first + step);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port from {} to {}", PORTS.start, PORTS.end)
}

/// The number itself, or as far behind the start as it is behind the end.
fn in_range(number: u32) -> u16 {
    let (start, end) = (u32::from(PORTS.start), u32::from(PORTS.end));
    let port = start + (number - start) % (end - start);
    u16::try_from(port).expect("the range ends below 65536")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once() {
        let (first, second) = (free().unwrap(), free().unwrap());
        assert_ne!(first, second);
        assert!(PORTS.contains(&first) && PORTS.contains(&second));
    }

    #[test]
    fn the_search_continues_at_the_start() {
        assert_eq!(in_range(31_999), 31_999);
        assert_eq!(in_range(32_000), 20_000);
        assert_eq!(in_range(100_000), 28_000);
    }

    #[test]
    fn another_port_is_tried_when_a_server_does_not_start() {
        let refused = AtomicU16::new(0);
        let port = first_that_works(|port| {
            if refused.load(Ordering::Relaxed) == 0 {
                refused.store(port, Ordering::Relaxed);
                bail!("taken");
            }
            Ok(())
        });
        assert_ne!(port.unwrap(), refused.into_inner());
        let error = first_that_works(|_| bail!("broken")).unwrap_err();
        assert!(error.to_string().contains("broken"));
    }
}
