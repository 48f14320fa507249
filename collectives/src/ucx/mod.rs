//! Messages between processes by UCX, which uses RDMA where the machines have it.
//!
//! UCX neither encrypts nor authenticates, and does not check the addresses that it is given. A
//! [`UcxPort`] therefore sends only to peers whose address and tag the caller has learnt in a safer way, and drops
//! messages with tags that it has not given out.

mod library;
mod port;

pub use port::{Failed, Inbox, MESSAGE_BYTES_MAX, Taken, Transports, UcxPeer, UcxPort};
