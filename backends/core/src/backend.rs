//! The trait that every device backend implements.

use crate::error::ExecError;
use crate::host::HostRange;
use crate::link::{DeviceBuffers, Link};
use crate::memory_usage::MemoryUsage;
use gt_ops::{Attrs, Meta, Op, Scalar};
use std::ptr::NonNull;
use std::sync::Arc;

/// An operand of [`Backend::execute`].
#[derive(Debug)]
pub enum Input<'a, T> {
    /// A tensor of the same backend.
    Tensor(&'a T),
    /// A number, converted to the dtype the op computes in.
    Scalar(Scalar),
}

// Derived impls would ask for `T: Copy`.
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
    /// The result of the stage at this index, which is an earlier one.
    Stage(usize),
}

// Derived impls would ask for `T: Copy`.
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
    /// The rest of what it says.
    pub attrs: &'a Attrs,
    /// The shape and dtype of its result.
    pub out: Meta,
    /// Whether the result is wanted after the program; if not, it need never be in memory.
    pub kept: bool,
    /// As in [`Backend::execute`], for given operands that no later stage reads.
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
    /// Nanoseconds that the device computed since the fence before.
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
    type Tensor: Clone + Send;

    /// Computes `op(inputs; attrs)`.
    ///
    /// The caller has run [`gt_ops::infer::infer`] on the same instruction, and `out` is what it returned: shapes,
    /// dtypes and attributes are not checked again. Bit `i` of `last_use` promises that the caller drops operand `i`
    /// (of the first 8) without using it again, whether this call succeeds or not: when no other handle shares its
    /// memory, the result may take it.
    ///
    /// # Errors
    /// What only execution finds; see [`ExecError`]. Operands flagged in `last_use` may be overwritten even then.
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, Self::Tensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<Self::Tensor, ExecError>;

    /// Runs several instructions whose results have one shape, and returns those that are kept: exactly what
    /// [`Backend::execute`] gives for one after the other.
    ///
    /// # Errors
    /// As [`Backend::execute`]; after [`ExecError::OutOfMemory`] every operand is as it was.
    fn execute_fused(&mut self, stages: &[Stage<'_, Self::Tensor>]) -> Result<Vec<Option<Self::Tensor>>, ExecError> {
        execute_one_by_one(self, stages)
    }

    /// A tensor to be filled by [`Backend::write`].
    ///
    /// Its bytes are whatever the memory held before for the same usage; the caller writes all of them
    /// before anybody may read the tensor.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`].
    fn allocate(&mut self, meta: &Meta) -> Result<Self::Tensor, ExecError>;

    /// Copies all bytes of `src` into a tensor fresh from [`Backend::allocate`], from byte `offset_bytes` on, in
    /// row-major order. Bytes of bools other than 0 count as 1.
    ///
    /// # Errors
    /// [`ExecError::Internal`] when the range does not lie in the tensor, when it cuts an element, or when the tensor
    /// is a view or has other handles.
    fn write(&mut self, tensor: &mut Self::Tensor, offset_bytes: usize, src: HostRange) -> Result<(), ExecError>;

    /// Copies bytes of a tensor, in row-major order from byte `offset_bytes` on, over all of `dst`.
    ///
    /// # Errors
    /// [`ExecError::Internal`] when the range does not lie in the tensor, or when it cuts an element.
    fn read(&mut self, tensor: &Self::Tensor, offset_bytes: usize, dst: HostRange) -> Result<(), ExecError>;

    /// Where a tensor's bytes lie in the device's memory, and how many they are, if they lie in row-major order without
    /// gaps. They are initialized, and stay there as long as a handle of the tensor does.
    fn bytes_of(&self, tensor: &Self::Tensor) -> Option<(NonNull<u8>, usize)>;

    /// Whether calls return before the device has done the work: [`Backend::fence`] and [`Backend::poll_fence`] then
    /// tell when it has.
    #[inline]
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Starts a [`Backend::read`] and returns the fence behind it: `dst` is in use until the device has passed that.
    /// None if the read has ended already.
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

    /// Starts a [`Backend::write`] and returns the fence behind it: `src` is in use until the device has passed that,
    /// but the tensor may be used at once.
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

    /// Puts a fence behind all work so far; none if that is done.
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

    /// Whether a tensor's bytes lie in row-major order without gaps, wherever that is.
    fn is_contiguous(&self, tensor: &Self::Tensor) -> bool {
        self.bytes_of(tensor).is_some()
    }

    /// The shape and dtype of a tensor.
    fn meta(&self, tensor: &Self::Tensor) -> Meta;

    /// Which device this is, if it can move tensors to and from others without the host. Makes it the one that
    /// libraries use on this thread.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    fn device(&mut self) -> Result<Option<[u8; 16]>, ExecError> {
        Ok(None)
    }

    /// Waits until it is known that nothing is wrong with what `tensor` was computed from, as far as that does not
    /// depend on other devices.
    ///
    /// # Errors
    /// What is wrong, as [`Backend::read`] says it.
    fn wait_for_checks(&mut self, tensor: &Self::Tensor) -> Result<(), ExecError> {
        let _ = tensor;
        Ok(())
    }

    /// Lets `enqueue` give a stream of the device a move that reads `input` and reads or writes `output`, both in
    /// row-major order without gaps, by a rank of `link`. Nothing waits for it: what comes later computes meanwhile,
    /// until something reads `output`, which [fails](ExecError::Unreached) by then if the move did.
    ///
    /// # Errors
    /// Those of `enqueue`; [`ExecError::Internal`] for a backend that is no [`Backend::device`].
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

    /// The instructions from now on are part of what the caller calls `label`: [`ExecError::Earlier`] says so where a
    /// device finds later what is wrong. A backend that finds everything at once need not know.
    #[inline]
    fn label(&mut self, label: u64) {
        let _ = label;
    }

    /// Whether products of f32 may from now on be rounded to 11 bits, where that is faster; at first they may not.
    #[inline]
    fn allow_tf32(&mut self, allowed: bool) {
        let _ = allowed;
    }

    /// Nothing more is asked for at present: what was put off, so as to be done together with what follows, begins now.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    #[inline]
    fn flush(&mut self) -> Result<(), ExecError> {
        Ok(())
    }

    /// Memory that transfers will read and write many times, from now on or, if not `present`, no longer: a device may
    /// have to know it to copy at full speed. Where it is no longer present, transfers with it have ended at return.
    ///
    /// # Safety
    /// The range stays mapped as long as it is present.
    unsafe fn register_host_memory(&mut self, range: HostRange, present: bool) {
        let _ = (range, present);
    }

    /// What is made from now on is counted in `usage`, until the next call. Memory that others held is
    /// cleared before it is theirs.
    fn charge(&mut self, usage: &Arc<MemoryUsage>);

    /// Bytes that `usage` holds here.
    fn held(&self, usage: &MemoryUsage) -> usize;

    /// What memory is in use now.
    fn memory(&self) -> MemoryStats;

    /// Returns memory that is only kept for reuse to the system; for when nothing has run for a while.
    fn trim(&mut self);
}

/// [`Backend::execute_fused`] for a backend that fuses nothing.
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
    /// Held by tensors.
    pub used_bytes: usize,
    /// The most that tensors held at one time.
    pub used_bytes_peak: usize,
    /// Kept for reuse, held by none.
    pub cached_bytes: usize,
    /// What tensors may hold together.
    pub limit_bytes: usize,
}
