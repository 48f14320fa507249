//! A worker in a process of its own: the same program, which does nothing but work.
//!
//! Two rings in shared memory carry its steps and reports, as a session's do, with the roles of the two sides
//! exchanged: what a client submits are a worker's reports, and what a client is told are a worker's steps. A socket
//! beside them carries [`Message`]s with descriptors; a step in the ring says when the next one is to be read, so that
//! order holds.
//!
//! The process may die at any instant. Its [`keeper`] sees that and starts another; the link then reports every queued
//! step as failed, opens the sessions anew, and says of each tensor that is asked for and not there that it was lost.
//! Nothing that the process writes is believed: what makes no sense ends it.
//!
//! A process that registers itself is not started again: when it ends, the link stays for the sessions that knew it,
//! and says of all that it is asked that the worker is lost.
//!
//! A [`WorkerDevice`] names the device of a process, which reports the capabilities itself.
//!
//! Here is the dispatcher's side; in [`keeper`] the thread that starts the process and waits for its end, in [`child`]
//! the process itself, in [`life`] how one is noticed that does nothing any more, and in [`registering`] how one comes
//! that was not started here. The dispatcher waits for none of them.

pub mod child;
pub mod keeper;
pub mod life;
pub mod link;
pub mod message;
pub mod registering;
pub mod worker_device;
