//! Connections whose request was not answered yet. They take a thread and a descriptor each, so there are only so many.
//!
//! When there are too many, the origin with the most loses its oldest: silent connections of one user, or of one
//! machine, keep nobody else out.

use crate::peer::PeerOrigin;
use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection in the handshake, equal to itself alone.
pub(crate) struct OpenSocket(pub(crate) Arc<TcpStream>);

impl PartialEq for OpenSocket {
    fn eq(&self, other: &OpenSocket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The connections in the handshake, oldest first.
pub struct PendingHandshakes<C> {
    limit: usize,
    pending: Mutex<Vec<(PeerOrigin, C)>>,
}

impl<C: PartialEq> PendingHandshakes<C> {
    /// None yet, and at most `limit` at one time.
    pub fn new(limit: usize) -> PendingHandshakes<C> {
        PendingHandshakes { limit, pending: Mutex::default() }
    }

    /// Adds a connection. Returns the one that must be closed for it, if there are too many.
    pub fn begin(&self, origin: PeerOrigin, connection: C) -> Option<C> {
        let mut pending = self.lock();
        pending.push((origin, connection));
        if pending.len() <= self.limit {
            return None;
        }
        let mut counts: HashMap<PeerOrigin, usize> = HashMap::new();
        for (origin, _) in pending.iter() {
            *counts.entry(*origin).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let oldest = pending.iter().position(|(origin, _)| counts.get(origin).copied() == most)?;
        Some(pending.remove(oldest).1)
    }

    /// Removes a connection, if it is still there.
    pub fn end(&self, connection: &C) {
        self.lock().retain(|(_, other)| other != connection);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PeerOrigin, C)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_with_the_most_connections_loses_its_oldest() {
        let [ana, bob, cleo] = [1, 2, 3].map(PeerOrigin::User);
        let handshakes = PendingHandshakes::new(4);
        for (origin, connection) in [(bob, 0), (ana, 1), (ana, 2), (bob, 3)] {
            assert_eq!(handshakes.begin(origin, connection), None);
        }
        // One of each is as good as another: the oldest goes.
        assert_eq!(handshakes.begin(cleo, 4), Some(0));
        assert_eq!(handshakes.begin(ana, 5), Some(1));
        assert_eq!(handshakes.begin(ana, 6), Some(2));
        handshakes.end(&3);
        handshakes.end(&3);
        assert_eq!(handshakes.begin(bob, 7), None);
        // However many one user has begun, the others keep theirs.
        for connection in 8..100 {
            let closed = handshakes.begin(ana, connection).unwrap();
            assert!(![4, 7].contains(&closed), "{closed}");
        }
    }
}
