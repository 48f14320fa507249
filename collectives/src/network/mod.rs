//! Groups whose ranks are on several machines.
//!
//! A [`NetworkCommunicator`] knows no sockets: a [`RankTransport`] carries its bytes to other ranks, and delivers
//! theirs to its [`Mailbox`]. Every rank reaches every other directly. A call takes one or two steps, whatever the
//! number of ranks: each rank sends every other its part and reduces what it gets in the order of ranks, so that the
//! result has the bits of a local group's. Where several ranks are on one machine, they may work together on large
//! calls, so that their bytes cross the network once for the machine (`by_machine`).

mod by_machine;
mod communicator;
mod machine_group;
mod mailbox;

pub use communicator::{NetworkCommunicator, RankTransport};
pub use machine_group::has_ranks_to_join;
pub use mailbox::{GroupNotice, Mailbox, RankStream};
