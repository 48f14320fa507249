//! The GT daemon: sessions, the pipeline, scheduling, worker links and the tape.
//!
//! It must not know how a kernel is written (that is a [`gt_backend::Backend`]'s business) nor anything of autograd or
//! Python (the client's). It trusts nothing in memory that a client can write: a command is copied, and the copy is
//! validated.
//!
//! A command's way, and where to read about it:
//! 1. [`dispatcher`]: the one thread that serves all sessions, in turn and by their share.
//! 2. [`session`]: copies slots from the submission ring, decodes and validates them against the session's
//!    [`table`], and makes steps of them.
//! 3. [`modifiers`]: may rewrite the steps.
//! 4. [`worker`]: links that do the steps, on this thread or another, and report how they ended.
//! 5. [`session`] again: writes the completion that the client waits for.
//!
//! Beside it: [`control_connection`] is the control socket, [`listen`] the listening one, [`tape`] and [`log`] say what
//! happened to instructions and [`journal`] to everything else, [`quota`] what each user may have, [`janitor`] drops
//! what takes long, [`ledger`] keeps what users have had where it outlives the daemon, [`config`] is the command line,
//! [`devices`] says what there is to compute on, [`reload`] reads the file beside it again, [`systemd`] is who may have
//! started the daemon, and [`start`] puts everything together.

pub mod affinity;
pub mod bandwidth;
pub mod config;
pub mod control_connection;
pub mod devices;
pub mod dispatcher;
pub mod fair_queue;
pub mod janitor;
pub mod journal;
pub mod ledger;
pub mod listen;
pub mod log;
pub mod modifiers;
pub mod quota;
pub mod reload;
pub mod session;
pub mod signals;
pub mod start;
pub mod systemd;
pub mod table;
pub mod tape;
pub mod worker;

pub use start::main;
