//! A worker in a process of its own, which runs the daemon's program as `gtd worker`.
//!
//! Two rings in shared memory carry its steps and reports. They are a session's rings with the sides exchanged: the
//! worker submits reports where a client submits instructions, and receives steps where a client receives completions.
//! A socket beside them carries [`Message`](message::Message)s with descriptors; a step in the ring says when the next
//! message is to be read, so that messages and
//! steps keep their order.
//!
//! The process may die at any instant. Its [`keeper`] notices and starts another, while the dispatcher goes on: the
//! link reports every queued step as failed, and opens the sessions again in the new process, with their arenas. Each
//! later use of a tensor of the old process fails, because the tensor is lost. The daemon trusts the process no more
//! than a client: it ends a process that sends an invalid report.
//!
//! A process that registers itself is not started again. When it ends, the link stays for the sessions that use it, and
//! fails their steps because the worker is lost.
//!
//! A [`WorkerDevice`](worker_device::WorkerDevice) names the device of a process; the process reports the device's
//! capabilities.
//!
//! - [`link`]: the dispatcher's side, which never waits for the process.
//! - [`keeper`]: the thread that starts the process and waits for its end.
//! - [`child`]: the process itself.
//! - [`life`]: heartbeats, by which the daemon notices a process that is stopped, and lifelines, by which it kills one.
//! - [`rank_messages`]: how a process learns its rank in a group.
//! - [`registering`]: a process that was started by somebody else and registers itself.

pub mod child;
pub mod keeper;
pub mod life;
pub mod link;
pub mod message;
pub mod rank_messages;
pub mod registering;
pub mod worker_device;
