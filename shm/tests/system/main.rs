//! What needs a kernel: sealed segments, sockets, arenas, sessions, and processes that are killed.
#![cfg(not(loom))]

mod port;
