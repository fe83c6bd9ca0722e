//! Open connections by address.
//!
//! Invariant: no address has more than `per_address_max` connections, and all addresses together
//! have at most `connections_max`. Only an idle connection is closed for another one.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Notify;

/// Returns the network of an address: one IPv6 client has a whole /64.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        },
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Seats {
    connections_max: usize,
    per_address_max: usize,
    taken: Mutex<SeatTable>,
}

#[derive(Debug, Default)]
struct SeatTable {
    next: u64,
    by_address: HashMap<IpAddr, HashMap<u64, Arc<Occupant>>>,
    total: usize,
}

/// One open connection.
#[derive(Debug)]
struct Occupant {
    /// Since when it is idle; `None` while it serves a request.
    idle_since: Mutex<Option<Instant>>,
    /// Notifies the connection that it must close.
    leave: Notify,
}

impl Seats {
    pub(crate) fn new(connections_max: usize, per_address_max: usize) -> Arc<Self> {
        let (connections_max, per_address_max) = (connections_max.max(1), per_address_max.max(1));
        Arc::new(Self { connections_max, per_address_max, taken: Mutex::default() })
    }

    /// Takes a seat, that of an idle connection if none is free. Returns `None` if all are busy.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Seat> {
        let address = network(address);
        let mut taken = lock(&self.taken);
        let own = taken.by_address.get(&address).map_or(0, HashMap::len);
        if own >= self.per_address_max {
            taken.evict(address)?;
        } else if taken.total >= self.connections_max {
            let crowded = taken.most_crowded()?;
            taken.evict(crowded)?;
        }
        let occupant =
            Arc::new(Occupant { idle_since: Mutex::new(Some(now)), leave: Notify::new() });
        let number = taken.next;
        taken.next += 1;
        taken.total += 1;
        taken.by_address.entry(address).or_default().insert(number, Arc::clone(&occupant));
        Some(Seat { seats: Arc::clone(self), address, number, occupant })
    }
}

impl SeatTable {
    /// Returns the address with the most idle connections.
    fn most_crowded(&self) -> Option<IpAddr> {
        let waiting = |all: &HashMap<u64, Arc<Occupant>>| {
            all.values().filter(|one| lock(&one.idle_since).is_some()).count()
        };
        let crowded = self.by_address.iter().max_by_key(|(_, all)| waiting(all));
        crowded.filter(|(_, all)| waiting(all) > 0).map(|(address, _)| *address)
    }

    /// Closes the longest idle connection of an address.
    fn evict(&mut self, address: IpAddr) -> Option<()> {
        let all = self.by_address.get_mut(&address)?;
        let waiting = all.iter().filter_map(|(number, one)| {
            let since = *lock(&one.idle_since);
            since.map(|since| (since, *number))
        });
        let (_, number) = waiting.min()?;
        let evicted = all.remove(&number)?;
        if all.is_empty() {
            self.by_address.remove(&address);
        }
        self.total -= 1;
        evicted.leave.notify_one();
        Some(())
    }
}

/// The seat of a connection; dropped, it is free.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    address: IpAddr,
    number: u64,
    occupant: Arc<Occupant>,
}

impl Seat {
    /// Returns when the seat is needed for another connection.
    pub(crate) async fn lost(&self) {
        self.occupant.leave.notified().await;
    }

    /// Returns a handle for the requests of the connection.
    pub(crate) fn requests(&self) -> RequestTracker {
        RequestTracker(Arc::clone(&self.occupant))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.taken);
        let Some(all) = taken.by_address.get_mut(&self.address) else { return };
        let was_there = all.remove(&self.number).is_some();
        if all.is_empty() {
            taken.by_address.remove(&self.address);
        }
        taken.total -= usize::from(was_there);
    }
}

/// Tracks whether a connection serves a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestTracker(Arc<Occupant>);

impl RequestTracker {
    pub(crate) fn begin(&self) -> OpenRequest {
        *lock(&self.0.idle_since) = None;
        OpenRequest(Arc::clone(&self.0))
    }
}

/// A request that is being served; dropped, its connection is idle again.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Occupant>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        *lock(&self.0.idle_since) = Some(Instant::now());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    async fn is_lost(seat: &Seat) -> bool {
        tokio::time::timeout(Duration::ZERO, seat.lost()).await.is_ok()
    }

    #[tokio::test]
    async fn an_address_closes_its_own_longest_waiting_connection() {
        let (seats, now) = (Seats::new(100, 2), Instant::now());
        let first = seats.take(address(1), now).unwrap();
        let second = seats.take(address(1), now + Duration::from_secs(1)).unwrap();
        let other = seats.take(address(2), now).unwrap();
        let third = seats.take(address(1), now + Duration::from_secs(2)).unwrap();
        assert!(is_lost(&first).await);
        assert!(!is_lost(&second).await && !is_lost(&third).await && !is_lost(&other).await);
        drop(first);
        assert_eq!(lock(&seats.taken).total, 3, "a lost seat is given back once");
    }

    #[tokio::test]
    async fn busy_connections_are_not_closed_and_others_still_get_in() {
        let (seats, now) = (Seats::new(100, 2), Instant::now());
        let all = [seats.take(address(1), now).unwrap(), seats.take(address(1), now).unwrap()];
        let busy: Vec<_> = all.iter().map(|seat| seat.requests().begin()).collect();
        assert!(seats.take(address(1), now).is_none(), "the address has no seat left");
        assert!(seats.take(address(2), now).is_some());
        drop(busy);
        assert!(seats.take(address(1), now).is_some());
    }

    #[tokio::test]
    async fn a_full_listener_takes_the_seat_from_the_most_crowded_address() {
        let (seats, now) = (Seats::new(4, 3), Instant::now());
        let crowd: Vec<_> = (0..3).map(|_| seats.take(address(1), now).unwrap()).collect();
        let lone = seats.take(address(2), now - Duration::from_secs(9)).unwrap();
        let newcomer = seats.take(address(3), now).unwrap();
        assert!(!is_lost(&lone).await && !is_lost(&newcomer).await);
        let mut lost = 0;
        for seat in &crowd {
            lost += usize::from(is_lost(seat).await);
        }
        assert_eq!(lost, 1);
        drop((crowd, lone, newcomer));
        assert_eq!(lock(&seats.taken).total, 0);
        assert!(lock(&seats.taken).by_address.is_empty(), "no memory is kept");
    }

    #[test]
    fn neighbours_of_ipv6_count_as_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), address(1));
    }
}
