//! Request bodies that are being received, by client address.
//!
//! Invariant: the senders of one address hold at most `max` bytes of incomplete bodies, but one
//! body always fits. So stalled bodies of one address leave room for other addresses.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use relais_listen::network;

/// The incomplete bodies of all addresses.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    max: usize,
    held: Arc<Mutex<HashMap<IpAddr, AddressShare>>>,
}

#[derive(Debug, Default)]
struct AddressShare {
    bodies: usize,
    bytes: usize,
}

impl Bodies {
    pub(super) fn new(max: usize) -> Self {
        Self { max, held: Arc::default() }
    }

    /// Begins to receive a body.
    pub(super) fn begin(&self, address: IpAddr) -> IncompleteBody {
        let address = network(address);
        lock(&self.held).entry(address).or_default().bodies += 1;
        IncompleteBody { all: self.clone(), address, bytes: 0 }
    }
}

/// One body that is being received. Dropped when it is complete or given up.
#[derive(Debug)]
pub(super) struct IncompleteBody {
    all: Bodies,
    address: IpAddr,
    bytes: usize,
}

impl IncompleteBody {
    /// Reserves room for more bytes. Returns `false` if the address holds too many.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let mut held = lock(&self.all.held);
        let share = held.entry(self.address).or_default();
        if share.bodies > 1 && share.bytes + bytes > self.all.max {
            return false;
        }
        share.bytes += bytes;
        self.bytes += bytes;
        true
    }
}

impl Drop for IncompleteBody {
    fn drop(&mut self) {
        let mut held = lock(&self.all.held);
        let Some(share) = held.get_mut(&self.address) else { return };
        share.bodies -= 1;
        share.bytes -= self.bytes;
        if share.bodies == 0 {
            held.remove(&self.address);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_a_share_and_one_body_always_fits() {
        let bodies = Bodies::new(10);
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut large = bodies.begin(one);
        assert!(large.grow(25), "alone");
        let mut second = bodies.begin(one);
        assert!(!second.grow(1));
        let mut other = bodies.begin(two);
        assert!(other.grow(10), "another address");
        drop(large);
        assert!(second.grow(10));
        drop((second, other));
        assert!(lock(&bodies.held).is_empty(), "no memory is kept");
    }
}
