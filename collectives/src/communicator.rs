//! [`Communicator`]: the interface of one rank of a group.

use crate::error::{CollectiveError, Result};
use crate::reduce::Reduce;
use crate::stats::CommStats;
use gt_ops::DType;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A value that a rank gives another.
pub type SharedValue = Box<dyn Any + Send>;

/// One rank of a group, used by one thread.
///
/// All ranks must call the same operations in the same order; `send` and `recv` concern two ranks only, and pair up
/// independently of the rest. Buffers are bytes of elements of one dtype in the machine's byte order. Any alignment
/// works, and 64 bytes is fastest. Counts are elements, one per rank; they may differ and may be zero. A call returns
/// when this rank's result is complete and no other rank uses its buffers any more.
///
/// # Errors
/// Every method returns a [`CollectiveError`](crate::CollectiveError). A rank with invalid arguments tells the others,
/// which then fail too instead of waiting. After an error the bytes of the result are unspecified.
pub trait Communicator: Send {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks in the group.
    fn size(&self) -> usize;

    /// Reduces the buffers of all ranks, element by element, into every one of them.
    ///
    /// # Errors
    /// See the trait.
    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()>;

    /// Concatenates the inputs of all ranks, in the order of ranks. Rank `r` contributes `counts[r]` elements.
    ///
    /// # Errors
    /// See the trait.
    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()>;

    /// Reduces the inputs of all ranks and scatters the result: rank `r` gets the `counts[r]` elements that follow
    /// those of the ranks before it.
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

    /// Sends rank `r` the `send_counts[r]` elements of the input that follow those for the ranks before it, and
    /// receives `recv_counts[r]` elements from rank `r` into the output, in the order of ranks.
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

    /// Sends a message to rank `to`, which must `recv` one of this length. May wait until that rank calls `recv`.
    ///
    /// # Errors
    /// See the trait.
    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()>;

    /// Receives a message of rank `from`.
    ///
    /// # Errors
    /// See the trait.
    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()>;

    /// Waits until every rank has called `barrier`.
    ///
    /// # Errors
    /// See the trait.
    fn barrier(&mut self) -> Result<()>;

    /// Whether the ranks are threads of one process, which can [`share`](Communicator::share) values.
    fn shares_values(&self) -> bool {
        false
    }

    /// Gives each rank a value: `values[r]` goes to rank `r`. Returns the values that the ranks gave this one, in the
    /// order of ranks.
    ///
    /// # Errors
    /// See the trait; [`CollectiveError::Setup`](crate::CollectiveError::Setup) unless the ranks can
    /// [share values](Communicator::shares_values). After an error no rank keeps a value of another.
    fn share(&mut self, values: Vec<SharedValue>) -> Result<Vec<SharedValue>> {
        drop(values);
        Err(not_one_process())
    }

    /// The counts of this rank's successful operations and bytes.
    fn stats(&self) -> CommStats;

    /// A handle to abort the group from any thread.
    fn abort_handle(&self) -> AbortHandle;

    /// A handle that tells any thread whether the group is broken.
    fn health(&self) -> Health;

    /// Aborts the group: every waiting and every later call on any rank fails.
    fn abort(&self) {
        self.abort_handle().abort();
    }
}

/// The error of ranks that are not threads of one process.
pub(crate) fn not_one_process() -> CollectiveError {
    CollectiveError::setup("share values", "the ranks are not threads of one process")
}

/// Tells from any thread whether a group is broken: see [`Communicator::health`].
#[derive(Clone)]
pub struct Health(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Health {
    /// A handle that calls `look`.
    pub fn new(look: impl Fn() -> Result<()> + Send + Sync + 'static) -> Health {
        Health(Arc::new(look))
    }

    /// Checks that no rank has died, aborted the group or run out of patience. A rank that has left
    /// is no error here: operations that all ranks began before still complete.
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
