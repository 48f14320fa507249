//! The trait that every device backend implements.

use crate::cancellation::Cancellation;
use crate::error::ExecError;
use crate::host::HostRange;
use crate::link::{DeviceBuffers, Link};
use crate::memory_usage::MemoryUsage;
use gt_ops::{Attrs, Meta, Op, Scalar};
use std::ptr::NonNull;
use std::sync::Arc;

/// [`Backend::fused_bytes_min`] of a processor: executing an instruction on less takes less time than finding others to
/// fuse it with.
pub const FUSED_BYTES_MIN: usize = 128 << 10;

/// An operand of [`Backend::execute`].
#[derive(Debug)]
pub enum Input<'a, T> {
    /// A tensor of the same backend.
    Tensor(&'a T),
    /// A number, converted to the dtype the op computes in.
    Scalar(Scalar),
}

// `derive` would require `T: Copy`, which a reference does not need.
impl<T> Clone for Input<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Input<'_, T> {}

/// An operand of a [`Stage`].
#[derive(Debug)]
pub enum StageInput<'a, T> {
    /// A tensor or a number from outside the program.
    External(Input<'a, T>),
    /// The result of an earlier stage, by its index.
    Stage(usize),
}

// `derive` would require `T: Copy`, which a reference does not need.
impl<T> Clone for StageInput<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for StageInput<'_, T> {}

/// One instruction of a program that [`Backend::execute_fused`] runs.
#[derive(Debug)]
pub struct Stage<'a, T> {
    /// An op for which [`gt_ops::Row::fuses`] holds.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<StageInput<'a, T>>,
    /// Its attributes.
    pub attrs: &'a Attrs,
    /// The shape and dtype of its result.
    pub out: Meta,
    /// Whether the caller wants the result; if not, it need never be written to memory.
    pub kept: bool,
    /// The operands that the caller drops, as in [`Backend::execute`]: only external ones that no later stage reads.
    pub last_use: u8,
}

/// A point in the sequence of a device's work. A device passes its fences in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// The outcome of a [`Fence`] that the device has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceStatus {
    /// The fence.
    pub fence: Fence,
    /// Nanoseconds that the device computed since the previous fence.
    pub computed_ns: u64,
    /// Nanoseconds that the transfer of this fence took between host and device; 0 without a transfer.
    pub copied_ns: u64,
    /// The outcome of the [`Backend::start_read`] that returned this fence; `Ok` for other fences.
    pub result: Result<(), ExecError>,
}

/// Kernels and memory of one device.
///
/// A tensor is a handle: cloning it copies no data, and dropping the last handle frees the data. Its elements never
/// change once an instruction or [`Backend::write`] has made them.
pub trait Backend {
    /// A handle of a tensor on this device.
    type Tensor: Clone + Send + 'static;

    /// Computes `op(inputs; attrs)`.
    ///
    /// The caller has run [`gt_ops::infer::infer`] on the same instruction, and `out` is its result: a backend does not
    /// check shapes, dtypes and attributes again. Bit `i` of `last_use` promises that the caller drops operand `i` (of
    /// the first 8) without using it again, whether this call succeeds or not: when no other handle shares its memory,
    /// the result may take it.
    ///
    /// # Errors
    /// Errors that only execution finds; see [`ExecError`]. Operands flagged in `last_use` are as before then, except
    /// after [`ExecError::Internal`] and [`ExecError::Lost`]: memory and indices are checked before the first element
    /// is overwritten, and an instruction that writes in place is cancelled with its session only.
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, Self::Tensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<Self::Tensor, ExecError>;

    /// Runs several instructions whose results have one shape, and returns those that are kept, bit for bit as if
    /// [`Backend::execute`] had run them in turn.
    ///
    /// # Errors
    /// As [`Backend::execute`]; after [`ExecError::OutOfMemory`] every operand is unchanged.
    fn execute_fused(&mut self, stages: &[Stage<'_, Self::Tensor>]) -> Result<Vec<Option<Self::Tensor>>, ExecError> {
        execute_one_by_one(self, stages)
    }

    /// Instructions whose results have fewer bytes are not worth finding others that they could be fused with.
    fn fused_bytes_min(&self) -> usize {
        FUSED_BYTES_MIN
    }

    /// An uninitialized tensor, for [`Backend::write`].
    ///
    /// The memory may hold old data of the same [`MemoryUsage`], never of another. The caller writes all bytes before
    /// the tensor is read.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`].
    fn allocate(&mut self, meta: &Meta) -> Result<Self::Tensor, ExecError>;

    /// Copies all of `src` into a tensor from [`Backend::allocate`], in row-major order from byte `offset_bytes` on. A
    /// bool is stored as 1 for any byte other than 0.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if the range does not lie in the tensor or cuts an element, or if the tensor is a view
    /// or has other handles.
    fn write(&mut self, tensor: &mut Self::Tensor, offset_bytes: usize, src: HostRange) -> Result<(), ExecError>;

    /// Fills `dst` with bytes of a tensor, in row-major order from byte `offset_bytes` on.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if the range does not lie in the tensor or cuts an element.
    fn read(&mut self, tensor: &Self::Tensor, offset_bytes: usize, dst: HostRange) -> Result<(), ExecError>;

    /// The address and size of a tensor's bytes, if this process can read them and they lie in row-major order without
    /// gaps. They are initialized, and stay in place as long as a handle of the tensor exists.
    fn bytes_of(&self, tensor: &Self::Tensor) -> Option<(NonNull<u8>, usize)>;

    /// Whether calls return before the device has done the work: [`Backend::fence`] and [`Backend::poll_fence`] then
    /// tell when it has.
    #[inline]
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Starts a [`Backend::read`] and returns a fence that the device passes once the read has ended; until then `dst`
    /// is in use. Returns `None` if the read has already ended.
    ///
    /// # Errors
    /// As [`Backend::read`]; errors that the device finds come with [`FenceStatus`].
    #[inline]
    fn start_read(
        &mut self,
        tensor: &Self::Tensor,
        offset_bytes: usize,
        dst: HostRange,
    ) -> Result<Option<Fence>, ExecError> {
        self.read(tensor, offset_bytes, dst).map(|()| None)
    }

    /// Starts a [`Backend::write`] and returns a fence that the device passes once the write has ended. Until then
    /// `src` is in use, but the tensor may be used at once.
    ///
    /// # Errors
    /// As [`Backend::write`].
    #[inline]
    fn start_write(
        &mut self,
        tensor: &mut Self::Tensor,
        offset_bytes: usize,
        src: HostRange,
    ) -> Result<Option<Fence>, ExecError> {
        self.write(tensor, offset_bytes, src).map(|()| None)
    }

    /// Returns a fence that the device passes once all work so far is done; `None` if it is already done.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    #[inline]
    fn fence(&mut self) -> Result<Option<Fence>, ExecError> {
        Ok(None)
    }

    /// Removes the oldest fence and returns its outcome, once the device has passed it; blocks until then if `wait`.
    /// None if there is no fence, or if the device has not passed it.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    #[inline]
    fn poll_fence(&mut self, wait: bool) -> Result<Option<FenceStatus>, ExecError> {
        let _ = wait;
        Ok(None)
    }

    /// Whether a tensor's bytes lie in row-major order without gaps, in host or device memory.
    fn is_contiguous(&self, tensor: &Self::Tensor) -> bool {
        self.bytes_of(tensor).is_some()
    }

    /// Whether an instruction that uses the tensor for the last time can write in its memory: it is in row-major order,
    /// and no other handle shares the memory.
    fn is_writable(&self, tensor: &Self::Tensor) -> bool {
        let _ = tensor;
        true
    }

    /// Whether two handles share memory.
    fn shares_memory(&self, one: &Self::Tensor, other: &Self::Tensor) -> bool {
        let _ = (one, other);
        false
    }

    /// Whether other backends of this type in the process, each used by a thread of its own, compute with the tensors
    /// of this one. A tensor that several hold is written in place by none, and freed when the last one drops it.
    fn shares_tensors(&self) -> bool {
        false
    }

    /// A tensor with the same elements in memory of its own.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`], [`ExecError::Cancelled`].
    fn copy(&mut self, tensor: &Self::Tensor) -> Result<Self::Tensor, ExecError> {
        Ok(tensor.clone())
    }

    /// The shape and dtype of a tensor.
    fn meta(&self, tensor: &Self::Tensor) -> Meta;

    /// The device's UUID, if it can exchange tensors with other devices without the host. Also makes the device current
    /// for libraries that this thread calls.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    fn device(&mut self) -> Result<Option<[u8; 16]>, ExecError> {
        Ok(None)
    }

    /// Waits until the device has run the checks that `tensor` depends on, except those of transfers between devices.
    ///
    /// # Errors
    /// The error that the device found, as [`Backend::read`] reports it.
    fn wait_for_checks(&mut self, tensor: &Self::Tensor) -> Result<(), ExecError> {
        let _ = tensor;
        Ok(())
    }

    /// Lets `enqueue` put a transfer over `link` into a stream of the device. The transfer reads `input` and reads or
    /// writes `output`, both in row-major order without gaps. Later instructions run beside it, until one reads
    /// `output`; that one [fails](ExecError::Unreached) if the transfer did.
    ///
    /// # Errors
    /// Those of `enqueue`; [`ExecError::Internal`] for a backend without a [`Backend::device`].
    fn communicate(
        &mut self,
        link: &Arc<dyn Link>,
        input: Option<&Self::Tensor>,
        output: Option<&mut Self::Tensor>,
        enqueue: &mut dyn FnMut(DeviceBuffers) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let _ = (link, input, output, enqueue);
        Err(ExecError::internal("a device that reaches no others"))
    }

    /// Labels the instructions from here on: [`ExecError::Earlier`] carries the label where the device finds an error
    /// later. Backends that find every error at once ignore labels.
    #[inline]
    fn label(&mut self, label: u64) {
        let _ = label;
    }

    /// Lets `cancellation` cancel the instructions from here on, which it knows by `label`. An instruction that is
    /// cancelled before it begins fails with [`ExecError::Cancelled`] and computes nothing; one that computes already
    /// ends with that error as soon as the device allows: on a host within milliseconds, on an asynchronous device
    /// before it launches the next kernel.
    fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64);

    /// A second backend on the same memory, which may be called on the same thread at this one's
    /// [preemption points](crate::preemption_point). None for a backend without such points.
    fn companion(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Sets whether f32 matrix products may round operands to 11 bits (TF32) where that is faster; at first they may
    /// not.
    #[inline]
    fn allow_tf32(&mut self, allowed: bool) {
        let _ = allowed;
    }

    /// Starts work that the backend has put off to combine it with later instructions; called when no instructions are
    /// left, and again while some are in flight: a device that is busy may get the rest later.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    #[inline]
    fn flush(&mut self) -> Result<(), ExecError> {
        Ok(())
    }

    /// Announces host memory that many transfers will use, so that a device can register it and copy at full speed;
    /// withdraws it if not `present`. Transfers with withdrawn memory have ended when this returns.
    ///
    /// # Safety
    /// The range stays mapped as long as it is present.
    unsafe fn register_host_memory(&mut self, range: HostRange, present: bool) {
        let _ = (range, present);
    }

    /// Counts tensors made from here on in `usage`, until the next call. Memory that another usage held is cleared
    /// before it is reused.
    fn charge(&mut self, usage: &Arc<MemoryUsage>);

    /// The bytes of this backend's memory that count in `usage`.
    fn held(&self, usage: &MemoryUsage) -> usize;

    /// Memory statistics.
    fn memory(&self) -> MemoryStats;

    /// Returns cached memory to the system; called when nothing has run for a while.
    fn trim(&mut self);
}

/// [`Backend::execute_fused`] for a backend without fusion.
///
/// # Errors
/// As [`Backend::execute`].
pub fn execute_one_by_one<B: Backend + ?Sized>(
    backend: &mut B,
    stages: &[Stage<'_, B::Tensor>],
) -> Result<Vec<Option<B::Tensor>>, ExecError> {
    let mut made: Vec<B::Tensor> = Vec::with_capacity(stages.len());
    for stage in stages {
        let mut inputs: Vec<Input<'_, B::Tensor>> = Vec::with_capacity(stage.inputs.len());
        for feed in &stage.inputs {
            inputs.push(match *feed {
                StageInput::External(input) => input,
                StageInput::Stage(earlier) => Input::Tensor(&made[earlier]),
            });
        }
        made.push(backend.execute(stage.op, &inputs, stage.attrs, &stage.out, 0)?);
    }
    Ok(made.into_iter().zip(stages).map(|(tensor, stage)| stage.kept.then_some(tensor)).collect())
}

/// Bytes of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes that tensors hold.
    pub used_bytes: usize,
    /// The most bytes that tensors held at one time.
    pub used_bytes_peak: usize,
    /// Bytes that are kept for reuse and hold no tensor.
    pub cached_bytes: usize,
    /// The most bytes that tensors may hold together.
    pub limit_bytes: usize,
}
