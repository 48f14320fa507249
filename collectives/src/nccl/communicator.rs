//! A communicator on bytes of the host, which it copies to its device and back.

use super::device::{DeviceComm, DeviceCommOptions};
use super::unique_id::UniqueId;
use crate::call::Call;
use crate::communicator::{AbortHandle, Health};
use crate::error::{CollectiveError, Result};
use crate::exchange::{CollectiveEngine, Exchange, MessageBuffer, compare};
use crate::operation::Operation;
use crate::reduce::Reduce;
use crate::stats::CommStats;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
use gt_ops::DType;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

/// The number of devices that CUDA finds.
///
/// # Errors
/// [`CollectiveError::Setup`] without a driver or a usable device.
pub fn device_count() -> Result<usize> {
    let what = "use a CUDA device";
    // SAFETY: the call opens and closes libcuda, whose initializers have no preconditions.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(CollectiveError::setup(
            what,
            "this machine has no NVIDIA driver: the loader finds no libcuda.so.1. Install the driver, or start the \
             container with its devices (docker run --gpus all)",
        ));
    }
    let count = CudaContext::device_count().map_err(|error| {
        CollectiveError::setup(what, format!("the NVIDIA driver is here but finds no device to use: {error}"))
    })?;
    Ok(count.max(0) as usize)
}

/// The abort flag that the ranks of one process share: 0, or one more than the rank that aborted.
pub type AbortFlag = Arc<AtomicU32>;

/// A handle that checks an abort flag.
fn health_of(flag: AbortFlag, rank: usize) -> Health {
    Health::new(move || match flag.load(Acquire) {
        0 => Ok(()),
        by => Err(CollectiveError::Aborted { operation: Operation::Barrier, rank, by: by as usize - 1 }),
    })
}

/// Options of a rank.
#[derive(Clone, Debug)]
pub struct NcclOptions {
    /// The rank's device, as CUDA numbers them.
    pub device: usize,
    /// How long a rank waits for the others before it aborts.
    pub patience: Duration,
    /// The abort flag, shared by the ranks of one process. NCCL does not pass an abort on to other processes: each of
    /// them has to be aborted.
    pub abort: AbortFlag,
}

/// One rank of a group of devices.
pub struct NcclCommunicator {
    comm: DeviceComm,
    stream: Arc<CudaStream>,
    stats: CommStats,
    abort: AbortFlag,
}

impl NcclCommunicator {
    /// Joins the group of `id` as `rank` of `size`, and waits until all ranks have. Every rank has a thread of its own.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] without NCCL, driver or device, or with NCCL's error.
    pub fn join(id: &UniqueId, rank: usize, size: usize, options: NcclOptions) -> Result<NcclCommunicator> {
        let devices = device_count()?;
        let what = format!("join a group of {size} as rank {rank}");
        if rank >= size || options.device >= devices {
            let why = format!("there are {devices} devices and ranks 0 to {}, not device {}", size, options.device);
            return Err(CollectiveError::setup(what, why));
        }
        let driver = |error: DriverError| CollectiveError::setup(what.clone(), error);
        let context = CudaContext::new(options.device).map_err(driver)?;
        // SAFETY: all work on this context's memory goes to one stream, in whose order it runs, so events between uses
        // are not needed.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(driver)?;
        let health = health_of(options.abort.clone(), rank);
        let comm = DeviceComm::join(id, DeviceCommOptions { rank, size, patience: options.patience, health })?;
        Ok(NcclCommunicator { comm, stream, stats: CommStats::default(), abort: options.abort })
    }

    /// The communicator for memory of the device, and the stream that this communicator uses itself.
    pub fn device(&mut self) -> (&mut DeviceComm, &Arc<CudaStream>) {
        (&mut self.comm, &self.stream)
    }

    fn failed(&self, operation: Operation) -> impl Fn(DriverError) -> CollectiveError + use<> {
        let rank = self.comm.rank();
        move |error| CollectiveError::Device { operation, rank, why: format!("CUDA says: {error}") }
    }

    /// Memory of the device with these bytes; at least one byte, as CUDA allocates no empty memory.
    fn upload(&self, operation: Operation, bytes: &[u8]) -> Result<CudaSlice<u8>> {
        let mut memory = self.room(operation, bytes.len())?;
        if !bytes.is_empty() {
            self.stream.memcpy_htod(bytes, &mut memory).map_err(self.failed(operation))?;
        }
        Ok(memory)
    }

    fn room(&self, operation: Operation, bytes: usize) -> Result<CudaSlice<u8>> {
        self.stream.alloc_zeros::<u8>(bytes.max(1)).map_err(self.failed(operation))
    }

    /// Waits for the stream, and copies from the device.
    fn download(&mut self, operation: Operation, memory: &CudaSlice<u8>, to: &mut [u8]) -> Result<()> {
        // SAFETY: `self.stream` keeps the stream alive.
        unsafe { self.comm.finish(operation, self.stream.cu_stream())? };
        if to.is_empty() {
            return Ok(());
        }
        let len = to.len();
        self.stream.memcpy_dtoh(&memory.slice(..len), to).map_err(self.failed(operation))?;
        self.stream.synchronize().map_err(self.failed(operation))
    }

    /// Compares the calls of all ranks. If they differed, NCCL itself would wait for ever or corrupt memory.
    fn agree(&mut self, exchange: &Exchange<'_>) -> Result<()> {
        health_of(self.abort.clone(), self.comm.rank()).check()?;
        let (call, size) = (exchange.call, self.comm.size());
        let words = std::iter::once(call.encode())
            .chain(exchange.send_counts.iter().chain(exchange.recv_counts).map(|count| *count as u64));
        let own: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let (from, to) = (self.upload(call.operation, &own)?, self.room(call.operation, own.len() * size)?);
        let stream = self.stream.clone();
        let ((from, _from), (to_address, _to)) = (from.device_ptr(&stream), to.device_ptr(&stream));
        let counts = vec![own.len(); size];
        // SAFETY: `from` has `own.len()` bytes and `to` as many per rank; both are dropped after `download` has waited
        // for the stream.
        unsafe { self.comm.all_gather(from, to_address, &counts, DType::U8, stream.cu_stream())? };
        let mut all = vec![0; own.len() * size];
        self.download(call.operation, &to, &mut all)?;
        let all: Vec<u64> =
            all.chunks_exact(8).map(|word| word.iter().rev().fold(0, |x, byte| x << 8 | u64::from(*byte))).collect();
        let word = |rank: usize, index: usize| all[rank * (1 + 2 * size) + index];
        compare(
            call,
            self.comm.rank(),
            size,
            |peer| Call::decode(word(peer, 0)),
            |from, to| word(from, 1 + to),
            |to, from| word(to, 1 + size + from),
        )
    }
}

/// Widens 16-bit integers to 32 bits, because NCCL has no 16-bit integers. The lower half of the 32-bit reduction is
/// the 16-bit reduction.
fn widened(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks_exact(2).flat_map(|x| i32::from(i16::from_ne_bytes([x[0], x[1]])).to_ne_bytes()).collect()
}

fn narrow(wide: &[u8], to: &mut [u8]) {
    for (to, x) in to.chunks_exact_mut(2).zip(wide.chunks_exact(4)) {
        to.copy_from_slice(&(i32::from_ne_bytes([x[0], x[1], x[2], x[3]]) as i16).to_ne_bytes());
    }
}

impl CollectiveEngine for NcclCommunicator {
    fn own_rank(&self) -> usize {
        self.comm.rank()
    }

    fn ranks(&self) -> usize {
        self.comm.size()
    }

    fn exchange(&mut self, exchange: Exchange<'_>) -> Result<()> {
        self.agree(&exchange)?;
        let Exchange { call, input, output, send_counts, recv_counts, .. } = exchange;
        let Call { operation, mut dtype, reduce, root, .. } = call;
        if operation == Operation::Barrier {
            return Ok(());
        }
        let wide = reduce.is_some() && dtype == DType::I16;
        if wide {
            dtype = DType::I32;
        }
        let sent: &[u8] = if operation == Operation::AllReduce { output } else { input };
        let from = if wide { self.upload(operation, &widened(sent))? } else { self.upload(operation, sent)? };
        let result_bytes = if wide { 2 * output.len() } else { output.len() };
        let to = self.room(operation, result_bytes)?;
        let stream = self.stream.clone();
        let (rank, cu) = (self.comm.rank(), stream.cu_stream());
        let ((a, _a), (b, _b)) = (from.device_ptr(&stream), to.device_ptr(&stream));
        let how = reduce.unwrap_or(Reduce::Sum);
        // SAFETY: `check` found that the buffers hold as many elements as the counts say, and both memories live until
        // `download` has waited for the stream.
        unsafe {
            match operation {
                Operation::AllReduce => self.comm.all_reduce(a, b, recv_counts[rank], dtype, how, cu)?,
                Operation::AllGather => self.comm.all_gather(a, b, recv_counts, dtype, cu)?,
                Operation::ReduceScatter => self.comm.reduce_scatter(a, b, send_counts, dtype, how, cu)?,
                Operation::Broadcast => {
                    let (elements, memory) = if rank == root { (input.len(), a) } else { (output.len(), b) };
                    self.comm.broadcast(memory, elements, root, DType::U8, cu)?;
                }
                _ => self.comm.all_to_all(a, b, send_counts, recv_counts, dtype, cu)?,
            }
        }
        if wide {
            let mut result = vec![0; result_bytes];
            self.download(operation, &to, &mut result)?;
            narrow(&result, output);
            return Ok(());
        }
        self.download(operation, &to, output)
    }

    fn refuse(&mut self, exchange: Exchange<'_>) -> Result<()> {
        self.agree(&exchange)
    }

    fn message(&mut self, peer: usize, dtype: DType, side: MessageBuffer<'_>) -> Result<()> {
        let (operation, bytes) = match &side {
            MessageBuffer::Send(data) => (Operation::Send, data.len()),
            MessageBuffer::Receive(data) => (Operation::Recv, data.len()),
        };
        let stream = self.stream.clone();
        let cu = stream.cu_stream();
        // Both sides first exchange the length and dtype that they expect.
        let own = [Call::new(Operation::Send, dtype).encode(), bytes as u64].map(u64::to_ne_bytes).concat();
        let (heading, answer) = (self.upload(operation, &own)?, self.room(operation, own.len())?);
        {
            let ((a, _a), (b, _b)) = (heading.device_ptr(&stream), answer.device_ptr(&stream));
            // SAFETY: both memories have `own.len()` bytes and live until `download` below has waited for the stream.
            unsafe { self.comm.swap(operation, a, b, own.len(), peer, cu)? };
        }
        let mut theirs = vec![0; own.len()];
        self.download(operation, &answer, &mut theirs)?;
        if theirs != own {
            let word = |at: usize| theirs[at..at + 8].iter().rev().fold(0u64, |x, byte| x << 8 | u64::from(*byte));
            let dtype_found = Call::decode(word(0)).map_or("nothing", |call| call.dtype.name());
            return Err(CollectiveError::Mismatch {
                operation,
                rank: self.comm.rank(),
                peer,
                expected: format!("a message of {bytes} bytes of {dtype}"),
                found: format!("it expects {} bytes of {dtype_found}", word(8)),
            });
        }
        match side {
            MessageBuffer::Send(data) => {
                let memory = self.upload(operation, data)?;
                let (address, _guard) = memory.device_ptr(&stream);
                // SAFETY: `memory` has `bytes` bytes and lives until `finish` has waited for the stream.
                unsafe {
                    self.comm.send(address, bytes, peer, DType::U8, cu)?;
                    self.comm.finish(operation, cu)
                }
            }
            MessageBuffer::Receive(data) => {
                let memory = self.room(operation, bytes)?;
                let (address, guard) = memory.device_ptr(&stream);
                // SAFETY: `memory` has `bytes` bytes and lives until `download` has waited for the stream.
                unsafe { self.comm.recv(address, bytes, peer, DType::U8, cu)? };
                drop(guard);
                self.download(operation, &memory, data)
            }
        }
    }

    fn tally(&self) -> &CommStats {
        &self.stats
    }

    fn tally_mut(&mut self) -> &mut CommStats {
        &mut self.stats
    }

    fn aborter(&self) -> AbortHandle {
        let (flag, word) = (self.abort.clone(), self.comm.rank() as u32 + 1);
        AbortHandle::new(move || {
            // The first rank that aborts is the one reported.
            let _ = flag.compare_exchange(0, word, AcqRel, Acquire);
        })
    }

    fn watch_health(&self) -> Health {
        health_of(self.abort.clone(), self.comm.rank())
    }
}

impl std::fmt::Debug for NcclCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NcclCommunicator(rank {} of {})", self.comm.rank(), self.comm.size())
    }
}
