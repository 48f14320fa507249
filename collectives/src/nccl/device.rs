//! NCCL's collectives on memory of the device, enqueued on a stream.
//!
//! The ranks' calls are not compared here: they must agree, as NCCL requires. A communicator is used by one thread. A
//! call waits until NCCL has accepted it, and meanwhile polls NCCL, the health of the group and the clock; the caller
//! waits for the stream.

use super::library::{CommHandle, IN_PROGRESS, NcclConfig, NcclLibrary, SUCCESS, StreamHandle, UniqueId};
use crate::communicator::Health;
use crate::error::{CollectiveError, Result};
use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

/// The number of polls without a pause, after which a wait sleeps between polls.
const SPINS: u32 = 2000;
/// The sleep between polls.
const PAUSE: Duration = Duration::from_micros(50);

/// A rank's place in its group, and how it waits.
#[derive(Debug)]
pub struct DeviceCommOptions {
    /// The number of this rank.
    pub rank: usize,
    /// The number of ranks in the group.
    pub size: usize,
    /// How long the rank waits until NCCL has accepted a call.
    pub patience: Duration,
    /// A check of the group's health, made while the rank waits.
    pub health: Health,
}

/// A communicator of NCCL.
pub struct DeviceComm {
    library: &'static NcclLibrary,
    /// Null once the communicator has been aborted.
    comm: CommHandle,
    options: DeviceCommOptions,
}

// SAFETY: NCCL lets any thread use a communicator, one at a time, which `&mut self` of every method ensures.
unsafe impl Send for DeviceComm {}

impl DeviceComm {
    /// Joins the group of `id` on this thread's current device, without waiting for the other ranks. The communicator
    /// can be used once it [is ready](DeviceComm::is_ready).
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] without NCCL, or with NCCL's error.
    pub fn begin(id: &UniqueId, options: DeviceCommOptions) -> Result<DeviceComm> {
        let library = NcclLibrary::get()?;
        let mut config = NcclConfig::non_blocking();
        let (size, rank) = (options.size as c_int, options.rank as c_int);
        let mut comm = DeviceComm { library, comm: std::ptr::null_mut(), options };
        // SAFETY: `ncclCommInitRankConfig` writes one communicator, and reads the configuration during the call only.
        let status = unsafe { (library.comm_init)(&raw mut comm.comm, size, *id, rank, &raw mut config) };
        if [SUCCESS, IN_PROGRESS].contains(&status) {
            return Ok(comm);
        }
        let why = library.explain(status, std::ptr::null_mut());
        comm.give_up();
        Err(CollectiveError::setup(format!("join a group of {} as rank {}", comm.size(), comm.rank()), why))
    }

    /// Whether NCCL has completed its last non-blocking call, above all the initialization with all ranks.
    ///
    /// # Errors
    /// NCCL's error, or that the communicator was aborted.
    pub fn is_ready(&self) -> Result<bool> {
        self.check_alive(Operation::Barrier)?;
        self.is_idle(Operation::Barrier)
    }

    /// Fails if the communicator was aborted.
    fn check_alive(&self, operation: Operation) -> Result<()> {
        if !self.comm.is_null() {
            return Ok(());
        }
        let why = "the communicator was given up before".into();
        Err(CollectiveError::Device { operation, rank: self.rank(), why })
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.options.rank
    }

    /// The number of ranks in the group.
    pub fn size(&self) -> usize {
        self.options.size
    }

    fn error(&self, operation: Operation, status: c_int) -> CollectiveError {
        let why = self.library.explain(status, self.comm);
        CollectiveError::Device { operation, rank: self.rank(), why }
    }

    /// Waits until NCCL has accepted a call that returned `status`. Aborts the communicator on an error, a broken group
    /// or the end of patience.
    fn settle(&mut self, operation: Operation, status: c_int) -> Result<()> {
        let accepted = self.poll(operation, status);
        if accepted.is_err() {
            self.give_up();
        }
        accepted
    }

    fn poll(&self, operation: Operation, status: c_int) -> Result<()> {
        if ![SUCCESS, IN_PROGRESS].contains(&status) {
            return Err(self.error(operation, status));
        }
        let (started, rank, waited) = (Instant::now(), self.rank(), self.options.patience);
        let mut polls = 0;
        while !self.is_idle(operation)? {
            // The health of the group takes longer to check, so not every poll checks it.
            if polls % SPINS == 0 {
                self.options.health.check()?;
            }
            if started.elapsed() >= waited {
                return Err(CollectiveError::TimedOut { operation, rank, by: rank, waited });
            }
            polls += 1;
            if polls > SPINS { std::thread::sleep(PAUSE) } else { std::hint::spin_loop() }
        }
        Ok(())
    }

    fn is_idle(&self, operation: Operation) -> Result<bool> {
        let mut state = SUCCESS;
        // SAFETY: `check_alive` has found that `self.comm` is not null, so it lives; the call writes one int.
        let status = unsafe { (self.library.comm_async_error)(self.comm, &raw mut state) };
        match if status == SUCCESS { state } else { status } {
            SUCCESS => Ok(true),
            IN_PROGRESS => Ok(false),
            failed => Err(self.error(operation, failed)),
        }
    }

    /// Aborts the communicator, which ends its kernels on the device and frees it. It also frees a communicator whose
    /// work is done.
    pub fn give_up(&mut self) {
        let comm = std::mem::replace(&mut self.comm, std::ptr::null_mut());
        if !comm.is_null() {
            // SAFETY: `comm` was not null, so it lives, and `self.comm` is null from now on.
            unsafe { (self.library.comm_abort)(comm) };
        }
    }

    /// Enqueues `calls` as one group (`ncclGroupStart`), and waits until NCCL has accepted them, not until they
    /// complete.
    fn group(&mut self, operation: Operation, calls: impl FnOnce(&NcclLibrary, CommHandle) -> c_int) -> Result<()> {
        self.check_alive(operation)?;
        // SAFETY: `ncclGroupStart` has no preconditions; `ncclGroupEnd` below ends the group on the same thread.
        let begun = unsafe { (self.library.group_start)() };
        let called = calls(self.library, self.comm);
        // SAFETY: the group was begun above, on this thread.
        let ended = unsafe { (self.library.group_end)() };
        let failed = [begun, called, ended].into_iter().find(|status| ![SUCCESS, IN_PROGRESS].contains(status));
        self.settle(operation, failed.unwrap_or(ended))
    }

    /// Reduces `elements` elements of every rank into `to`, which may be `from`.
    ///
    /// # Safety
    /// Both addresses are of this rank's device and hold `elements` elements until the stream has completed the call;
    /// the stream is of that device, too. All ranks make the same call.
    ///
    /// # Errors
    /// NCCL's error, or an abort.
    pub unsafe fn all_reduce(
        &mut self,
        from: u64,
        to: u64,
        elements: usize,
        dtype: DType,
        reduce: Reduce,
        stream: StreamHandle,
    ) -> Result<()> {
        let (kind, how) = self.kinds(Operation::AllReduce, dtype, reduce)?;
        self.group(Operation::AllReduce, |nccl, comm| {
            // SAFETY: by the contract of this method, both buffers hold `elements` elements until the stream is done.
            unsafe { (nccl.all_reduce)(address(from), address(to), elements, kind, how, comm, stream) }
        })
    }

    /// As [`Communicator::all_gather`](crate::Communicator::all_gather).
    ///
    /// # Safety
    /// As [`DeviceComm::all_reduce`]; the buffers hold as many elements as the counts say.
    ///
    /// # Errors
    /// As [`DeviceComm::all_reduce`].
    pub unsafe fn all_gather(
        &mut self,
        from: u64,
        to: u64,
        counts: &[usize],
        dtype: DType,
        stream: StreamHandle,
    ) -> Result<()> {
        let bytes: Vec<usize> = counts.iter().map(|count| count * dtype.size()).collect();
        let kind = byte_kind();
        self.group(Operation::AllGather, |nccl, comm| {
            if bytes.iter().all(|count| *count == bytes[0]) {
                // SAFETY: by the contract of this method, `from` holds `bytes[0]` bytes and `to` as many per rank.
                return unsafe { (nccl.all_gather)(address(from), address(to), bytes[0], kind, comm, stream) };
            }
            worst(pieces(&bytes).filter(|(_, _, len)| *len > 0).map(|(root, start, len)| {
                let to = address(to + start as u64);
                // SAFETY: by the contract of this method, `to` has `len` bytes at `start`, and at the root, which alone
                // reads it, `from` has as many.
                unsafe { (nccl.broadcast)(address(from), to, len, kind, root, comm, stream) }
            }))
        })
    }

    /// As [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    ///
    /// # Safety
    /// As [`DeviceComm::all_gather`].
    ///
    /// # Errors
    /// As [`DeviceComm::all_reduce`].
    pub unsafe fn reduce_scatter(
        &mut self,
        from: u64,
        to: u64,
        counts: &[usize],
        dtype: DType,
        reduce: Reduce,
        stream: StreamHandle,
    ) -> Result<()> {
        let (kind, how) = self.kinds(Operation::ReduceScatter, dtype, reduce)?;
        self.group(Operation::ReduceScatter, |nccl, comm| {
            if counts.iter().all(|count| *count == counts[0]) {
                // SAFETY: by the contract of this method, `to` holds `counts[0]` elements and `from` as many per rank.
                return unsafe {
                    (nccl.reduce_scatter)(address(from), address(to), counts[0], kind, how, comm, stream)
                };
            }
            worst(pieces(counts).filter(|(_, _, len)| *len > 0).map(|(root, start, len)| {
                let from = address(from + (start * dtype.size()) as u64);
                // SAFETY: by the contract of this method, `from` has `len` elements at `start`, and at the root, which
                // alone writes it, `to` has as many.
                unsafe { (nccl.reduce)(from, address(to), len, kind, how, root, comm, stream) }
            }))
        })
    }

    /// As [`Communicator::broadcast`](crate::Communicator::broadcast).
    ///
    /// # Safety
    /// As [`DeviceComm::all_reduce`].
    ///
    /// # Errors
    /// As [`DeviceComm::all_reduce`].
    pub unsafe fn broadcast(
        &mut self,
        buffer: u64,
        elements: usize,
        root: usize,
        dtype: DType,
        stream: StreamHandle,
    ) -> Result<()> {
        let (bytes, buffer) = (elements * dtype.size(), address(buffer));
        self.group(Operation::Broadcast, |nccl, comm| {
            // SAFETY: by the contract of this method, `buffer` holds `bytes` bytes until the stream is done.
            unsafe { (nccl.broadcast)(buffer, buffer, bytes, byte_kind(), root as c_int, comm, stream) }
        })
    }

    /// As [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    ///
    /// # Safety
    /// As [`DeviceComm::all_gather`].
    ///
    /// # Errors
    /// As [`DeviceComm::all_reduce`].
    pub unsafe fn all_to_all(
        &mut self,
        from: u64,
        to: u64,
        send_counts: &[usize],
        recv_counts: &[usize],
        dtype: DType,
        stream: StreamHandle,
    ) -> Result<()> {
        let element = dtype.size();
        self.group(Operation::AllToAll, |nccl, comm| {
            let sends = pieces(send_counts).filter(|(_, _, len)| *len > 0).map(|(peer, start, len)| {
                let from = address(from + (start * element) as u64);
                // SAFETY: by the contract of this method, `from` holds the pieces that `send_counts` says.
                unsafe { (nccl.send)(from, len * element, byte_kind(), peer, comm, stream) }
            });
            let recv_counts = pieces(recv_counts).filter(|(_, _, len)| *len > 0).map(|(peer, start, len)| {
                let to = address(to + (start * element) as u64);
                // SAFETY: by the contract of this method, `to` has room for the pieces that `recv_counts` says.
                unsafe { (nccl.recv)(to, len * element, byte_kind(), peer, comm, stream) }
            });
            worst(sends.chain(recv_counts))
        })
    }

    /// NCCL's numbers (`ncclDataType_t`, `ncclRedOp_t`) of a dtype and a reduction. A bool is a byte of 0 or 1.
    fn kinds(&self, operation: Operation, dtype: DType, reduce: Reduce) -> Result<(c_int, c_int)> {
        let rank = self.rank();
        let kind = match dtype {
            DType::I8 => 0,
            DType::Bool | DType::U8 => 1,
            DType::I32 | DType::U32 => 2,
            DType::I64 | DType::U64 => 4,
            DType::F16 => 6,
            DType::F32 | DType::C64 => 7,
            DType::F64 | DType::C128 => 8,
            DType::BF16 => 9,
            DType::I16 | DType::U16 => return Err(CollectiveError::Undefined { operation, rank, reduce, dtype }),
        };
        let how = match (reduce, dtype) {
            (Reduce::Sum, DType::Bool) | (Reduce::Max, _) => 2,
            (Reduce::Prod, DType::Bool) | (Reduce::Min, _) => 3,
            (Reduce::Sum, _) => 0,
            (Reduce::Prod, _) => 1,
            // NCCL 2.28 gives 0 for the last element of a rank's own mean of an odd number of float64.
            (Reduce::Mean, _) if dtype.is_float() && self.size() == 1 => 0,
            (Reduce::Mean, _) if dtype.is_float() => 4,
            (Reduce::Mean, _) => return Err(CollectiveError::Undefined { operation, rank, reduce, dtype }),
        };
        Ok((kind, how))
    }
}

impl Drop for DeviceComm {
    fn drop(&mut self) {
        // This does not wait for the other ranks, as `ncclCommFinalize` would: callers have waited for the stream, or
        // given up.
        self.give_up();
    }
}

/// `ncclUint8`.
fn byte_kind() -> c_int {
    1
}

fn address(pointer: u64) -> *mut c_void {
    pointer as usize as *mut c_void
}

/// The rank, start and length of each piece of a buffer with these counts.
fn pieces(counts: &[usize]) -> impl Iterator<Item = (c_int, usize, usize)> {
    let mut next = 0;
    counts.iter().enumerate().map(move |(rank, len)| {
        let start = next;
        next += len;
        (rank as c_int, start, *len)
    })
}

/// The first failure among the results of calls. All calls are made, even after a failure.
fn worst(results: impl Iterator<Item = c_int>) -> c_int {
    results.fold(SUCCESS, |worst, status| if [SUCCESS, IN_PROGRESS].contains(&worst) { status } else { worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_behind_each_other() {
        assert!(pieces(&[2, 0, 3]).eq([(0, 0, 2), (1, 2, 0), (2, 2, 3)]));
        assert_eq!(worst([SUCCESS, IN_PROGRESS, 5, 3].into_iter()), 5);
        assert_eq!(worst([SUCCESS, IN_PROGRESS].into_iter()), IN_PROGRESS);
    }
}
