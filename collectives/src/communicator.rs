//! What a group of ranks can do.

use crate::error::Result;
use crate::reduce::Reduce;
use crate::stats::CommStats;
use gt_ops::DType;
use std::fmt;
use std::sync::Arc;

/// One rank of a group, used by one thread.
///
/// Every rank calls the same operations in the same order; `send` and `recv` concern two ranks and pair up by
/// themselves. Buffers are bytes of elements of one dtype in the machine's order, of any alignment; at 64 bytes they
/// are fastest. Counts are elements, one a rank; they may differ and be zero. A call returns when this rank's result is
/// there and its buffers are its own again.
///
/// # Errors
/// Every method returns a [`CollectiveError`](crate::CollectiveError). A rank whose arguments are wrong by themselves
/// tells the others, so that they fail too instead of waiting. After an error the result's bytes are unspecified.
pub trait Communicator: Send {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Ranks in the group.
    fn size(&self) -> usize;

    /// Combines the buffers of all ranks, element by element, into every one of them.
    ///
    /// # Errors
    /// See the trait.
    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()>;

    /// Puts the inputs of all ranks one behind the other, in the order of ranks. Rank `r` brings `counts[r]` elements.
    ///
    /// # Errors
    /// See the trait.
    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()>;

    /// Combines the inputs of all ranks and gives each its piece: rank `r` the `counts[r]` elements behind those of the
    /// ranks before it.
    ///
    /// # Errors
    /// See the trait.
    fn reduce_scatter(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
        reduce: Reduce,
    ) -> Result<()>;

    /// Copies the buffer of rank `root` to every other rank.
    ///
    /// # Errors
    /// See the trait.
    fn broadcast(&mut self, buffer: &mut [u8], root: usize, dtype: DType) -> Result<()>;

    /// Gives rank `r` the `gives[r]` elements of the input that follow those of the ranks before it, and takes
    /// `takes[r]` elements from rank `r`, which lie in the output in the order of ranks.
    ///
    /// # Errors
    /// See the trait.
    fn all_to_all(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        send_counts: &[usize],
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<()>;

    /// Sends to rank `to`, which must `recv` as much. May wait until it does.
    ///
    /// # Errors
    /// See the trait.
    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()>;

    /// Receives what rank `from` sends.
    ///
    /// # Errors
    /// See the trait.
    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()>;

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// See the trait.
    fn barrier(&mut self) -> Result<()>;

    /// What this rank has done so far.
    fn stats(&self) -> CommStats;

    /// What aborts the group from any thread.
    fn abort_handle(&self) -> AbortHandle;

    /// What tells from any thread whether the group is broken.
    fn health(&self) -> Health;

    /// Ends the group: whoever waits in it, and every later call on any rank, gets an error.
    fn abort(&self) {
        self.abort_handle().abort();
    }
}

/// Tells from any thread whether a group is broken: see [`Communicator::health`].
#[derive(Clone)]
pub struct Health(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Health {
    /// A handle that calls `look`.
    pub fn new(look: impl Fn() -> Result<()> + Send + Sync + 'static) -> Health {
        Health(Arc::new(look))
    }

    /// That no rank has died, aborted the group or lost its patience. One may have left: what all ranks have begun
    /// before is still done.
    ///
    /// # Errors
    /// Why the group is broken.
    pub fn check(&self) -> Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Health")
    }
}

/// Aborts a group from any thread: see [`Communicator::abort`].
#[derive(Clone)]
pub struct AbortHandle(Arc<dyn Fn() + Send + Sync>);

impl AbortHandle {
    /// A handle that calls `abort`.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> AbortHandle {
        AbortHandle(Arc::new(abort))
    }

    /// As [`Communicator::abort`].
    pub fn abort(&self) {
        (self.0)();
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AbortHandle")
    }
}
