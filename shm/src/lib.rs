//! Lock-free shared memory for GT: sealed segments, rings, doorbells, arenas, the broadcast ring.
//!
//! This crate moves 64-byte [`Slot`]s and byte ranges between one daemon and many clients that it
//! does not trust. It must not know what a slot means: no tensors, no instructions, no messages.
//!
//! Where to start reading:
//! 1. [`mod@ring`]: the single-producer single-consumer ring and the fences that keep it awake. It is
//!    generic over [`mem::Mem`], so the same code runs on heap memory, on mapped segments, under
//!    Miri and under loom.
//! 2. [`segment`]: sealed memfds, and how each side checks what the other gave it.
//! 3. [`port`]: two rings and a doorbell make a session: [`DaemonPort`] and [`ClientPort`].
//! 4. [`arena`]: bulk bytes, the daemon's checked access and the client's allocator.
//! 5. [`broadcast`]: one writer, any number of observers that can only look.
//! 6. [`socket`]: descriptors and short messages over a Unix socket.
//! 7. [`spin`]: how long to look for an answer before sleeping.
//!
//! Invariant: nothing in memory that the peer can write is ever believed. Cursors that matter live
//! in private memory; a slot is copied by relaxed atomic loads and only the copy is looked at.

#[cfg(not(loom))]
pub mod arena;
pub mod broadcast;
#[cfg(not(loom))]
pub mod doorbell;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod fifo;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
pub mod futex;
pub mod mem;
#[cfg(not(loom))]
pub mod port;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod socket;
#[cfg(not(loom))]
pub mod spin;
pub mod sync;

#[cfg(not(loom))]
pub use arena::{Arena, ArenaAllocator, ArenaBlock, ArenaRange};
#[cfg(not(loom))]
pub use doorbell::Doorbell;
#[cfg(not(loom))]
pub use error::{Error, Result};
#[cfg(not(loom))]
pub use fifo::{FifoReceiver, FifoSender, fifo};
#[cfg(not(loom))]
pub use port::{ClientPort, Completions, DaemonPort, PortFds, SessionState, Submitter};
pub use ring::{Consumer, Corrupt, Full, Producer, heap_ring};
#[cfg(not(loom))]
pub use segment::{Access, Segment};
#[cfg(not(loom))]
pub use socket::Socket;
#[cfg(not(loom))]
pub use spin::Spin;

/// 64-bit words in a [`Slot`]: eight, a 64-byte cache line. Two under loom, whose cost grows with
/// every atomic access.
pub const SLOT_WORDS: usize = if cfg!(loom) { 2 } else { 8 };

/// What a ring carries: one cache line of plain words whose meaning is the caller's.
pub type Slot = [u64; SLOT_WORDS];

/// Bytes in a [`Slot`].
pub const SLOT_BYTES: usize = size_of::<Slot>();

/// Bytes between two shared fields that different sides write: two cache lines, because the
/// adjacent-line prefetcher pulls lines in pairs.
pub const LINE_BYTES: usize = 128;
