//! The operations of a group.

use std::fmt;

/// An operation of a group of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// [`crate::Communicator::all_reduce`].
    AllReduce,
    /// [`crate::Communicator::all_gather`].
    AllGather,
    /// [`crate::Communicator::reduce_scatter`].
    ReduceScatter,
    /// [`crate::Communicator::broadcast`].
    Broadcast,
    /// [`crate::Communicator::all_to_all`].
    AllToAll,
    /// [`crate::Communicator::send`].
    Send,
    /// [`crate::Communicator::recv`].
    Recv,
    /// [`crate::Communicator::barrier`].
    Barrier,
    /// [`crate::Communicator::share`].
    Share,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 9] = [
        Operation::AllReduce,
        Operation::AllGather,
        Operation::ReduceScatter,
        Operation::Broadcast,
        Operation::AllToAll,
        Operation::Send,
        Operation::Recv,
        Operation::Barrier,
        Operation::Share,
    ];

    /// The name of the operation, which is also its method's name in [`crate::Communicator`].
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all_reduce",
            Operation::AllGather => "all_gather",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::Broadcast => "broadcast",
            Operation::AllToAll => "all_to_all",
            Operation::Send => "send",
            Operation::Recv => "recv",
            Operation::Barrier => "barrier",
            Operation::Share => "share",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
