//! Lock-free shared memory for GT: sealed segments, rings, doorbells, arenas and the broadcast ring.
//!
//! This crate moves 64-byte [`Slot`]s and byte ranges between one daemon and many clients that it does not trust. It
//! must not know the meaning of a slot: no tensors, no instructions, no messages.
//!
//! Where to start reading:
//! 1. [`mod@ring`]: the single-producer single-consumer ring, and the fences that prevent lost wake-ups. It is generic
//!    over [`mem::Mem`], so the same code runs on heap memory, on mapped segments, under Miri and under loom.
//! 2. [`segment`]: sealed memfds, and the checks of a received one.
//! 3. [`port`]: a session's two rings and doorbell: [`DaemonPort`] and [`ClientPort`].
//! 4. [`arena`]: bulk bytes, with the daemon's bounds checks and the client's allocator.
//! 5. [`broadcast`]: a seqlock ring with one writer and any number of read-only observers.
//! 6. [`labels`]: words and texts for a client's newest records, which observers can read.
//! 7. [`socket`]: descriptors and short messages over a Unix socket.
//! 8. [`spin`]: adaptive spinning before a sleep.
//! 9. [`cores`]: the cores that a client and the daemon run on.
//! 10. [`written_pages`]: whether memory of this process was written.
//! 11. [`mod@copy`]: copies of bytes that are fast at every address.
//!
//! Invariant: the daemon trusts nothing in memory that a peer can write. The cursors that matter are in private memory.
//! A slot is copied by relaxed atomic loads, and only the copy is used.

#[cfg(not(loom))]
pub mod arena;
pub mod broadcast;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod cores;
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
#[cfg(not(loom))]
pub mod labels;
pub mod mem;
#[cfg(not(loom))]
pub mod port;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
mod slot;
#[cfg(not(loom))]
pub mod socket;
#[cfg(not(loom))]
pub mod spin;
pub mod sync;
#[cfg(not(loom))]
pub mod written_pages;

#[cfg(not(loom))]
pub use arena::{Arena, ArenaAllocator, ArenaBlock, ArenaSlice};
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
pub use slot::{LINE_BYTES, SLOT_BYTES, SLOT_WORDS, Slot};
#[cfg(not(loom))]
pub use socket::Socket;
#[cfg(not(loom))]
pub use spin::Spin;
#[cfg(not(loom))]
pub use written_pages::WrittenPages;
