//! The trait [`Backend`] over a Python process.
//!
//! An instruction becomes a message and returns at once. Views and contiguity are known on this side, as PyTorch
//! computes them: the process makes each result contiguous, and a view is one of PyTorch's where strides can express
//! it, except that PyTorch has no negative ones, so a slice that walks backwards is a copy.
//!
//! The process finds errors when it computes. They travel with the answer to a read of a tensor that depends on the
//! failed instruction, as those of an asynchronous device do.

use crate::connection::{Answer, Found, FoundError, ProcessConnection};
use crate::interpreter::{DeviceReport, InterpreterOptions, start};
use crate::memory::{CountedBytes, MemoryLedger};
use crate::message::{Control, attributes, number, number_dtype};
use crate::pickle::Pickler;
use gt_backend::{
    Backend, Cancellation, ExecError, Fence, FenceStatus, HostRange, Input, Layout, MemoryStats, MemoryUsage,
};
use gt_ops::{Attrs, Class, Meta, Op, Row};
use gt_shm::Arena;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The messages after which they are sent, if not sooner: Python begins while this side still encodes.
const MESSAGES_MAX: usize = 32;
/// The bytes of a piece in which the elements of large tensors travel.
const PIECE_BYTES: usize = 8 << 20;
/// Pieces begin at multiples of this many bytes, so that elements are aligned.
const ALIGN_BYTES: usize = 64;

type Result<T> = std::result::Result<T, ExecError>;

/// A tensor of the process, or a view of one.
#[derive(Clone, Debug)]
pub struct TorchTensor {
    layout: Layout,
    handle: Arc<TensorHandle>,
}

/// The process's reference to a tensor.
#[derive(Debug)]
struct TensorHandle {
    id: u64,
    memory: Arc<CountedBytes>,
    outbox: Arc<Mutex<Outbox>>,
}

impl Drop for TensorHandle {
    fn drop(&mut self) {
        lock(&self.outbox).freed.push(self.id);
    }
}

/// Messages that were not sent yet.
#[derive(Debug, Default)]
struct Outbox {
    messages: Pickler,
    count: usize,
    /// Tensors that no handle names any more; the process drops them before the next message.
    freed: Vec<u64>,
}

fn lock(outbox: &Mutex<Outbox>) -> MutexGuard<'_, Outbox> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// Begins the message `number` about the tensor `out`, up to its operands.
    fn begin(&mut self, number: i64, label: u64, out: u64) {
        if !self.freed.is_empty() {
            let freed = std::mem::take(&mut self.freed);
            self.head(Control::Free as i64, 0, 0);
            self.messages.empty_tuple();
            self.messages.begin_tuple();
            freed.iter().for_each(|id| self.messages.unsigned(*id));
            self.messages.end_tuple();
            self.messages.end_tuple();
            self.freed = freed;
            self.freed.clear();
        }
        self.head(number, label, out);
    }

    fn head(&mut self, number: i64, label: u64, out: u64) {
        self.messages.begin_tuple();
        self.messages.int(number);
        self.messages.unsigned(label);
        self.messages.unsigned(out);
    }

    /// Appends a message without operands.
    fn control(&mut self, control: Control, label: u64, out: u64, attributes: impl FnOnce(&mut Pickler)) {
        self.begin(control as i64, label, out);
        self.messages.empty_tuple();
        self.messages.begin_tuple();
        attributes(&mut self.messages);
        self.messages.end_tuple();
        self.messages.end_tuple();
        self.count += 1;
    }
}

/// A fence that the process has not answered.
struct UnansweredFence {
    fence: u64,
    /// Whether somebody asked for the fence; the others end the use of shared memory.
    is_asked: bool,
    /// The piece of shared memory that is free from the fence on, as its end.
    staged_to: Option<usize>,
    /// Where the bytes go that the process has read to shared memory.
    read: Option<(usize, HostRange)>,
}

/// A backend that computes with PyTorch.
pub struct TorchBackend {
    connection: ProcessConnection,
    staging: Arena,
    /// The shared memory in use: from `staging_tail` to `staging_head`, around its end.
    staging_head: usize,
    staging_tail: usize,
    outbox: Arc<Mutex<Outbox>>,
    frames: Vec<u8>,
    ledger: Arc<MemoryLedger>,
    usage: Option<Arc<MemoryUsage>>,
    next_id: u64,
    next_fence: u64,
    fences: VecDeque<UnansweredFence>,
    /// Fences that the device has passed and that nobody has heard of.
    passed: VecDeque<FenceStatus>,
    /// Time that the device computed up to passed fences that nobody asked for.
    computed_ns: u64,
    /// The first error of the pieces of the read that is under way.
    failed: Result<()>,
    /// Whether messages follow the last fence.
    is_unfenced: bool,
    label: u64,
    tf32: bool,
    /// The cancellation of the next instruction, and the label by which it knows that instruction.
    cancellation: (Arc<Cancellation>, u64),
}

impl TorchBackend {
    /// Starts Python and PyTorch. Tensors may take `memory_bytes_limit` bytes, or what the device has.
    ///
    /// # Errors
    /// Why PyTorch or the device cannot be used, as a sentence that says what to do.
    pub fn open(
        options: &InterpreterOptions,
        memory_bytes_limit: Option<usize>,
    ) -> std::result::Result<(TorchBackend, DeviceReport), String> {
        let (connection, staging, report) = start(options)?;
        let backend = TorchBackend {
            connection,
            staging,
            staging_head: 0,
            staging_tail: 0,
            outbox: Arc::default(),
            frames: Vec::new(),
            ledger: MemoryLedger::new(memory_bytes_limit.unwrap_or(report.memory_bytes as usize)),
            usage: None,
            // The process stores what no tensor is made of under 0.
            next_id: 1,
            next_fence: 1,
            fences: VecDeque::new(),
            passed: VecDeque::new(),
            computed_ns: 0,
            failed: Ok(()),
            is_unfenced: false,
            label: 0,
            tf32: false,
            cancellation: (Arc::default(), Cancellation::NEVER),
        };
        Ok((backend, report))
    }

    /// The id of the process that runs PyTorch.
    pub fn process_id(&self) -> u32 {
        self.connection.process_id()
    }

    /// A handle of a tensor that the next message makes.
    fn new_tensor(&mut self, layout: Layout, memory: Arc<CountedBytes>) -> TorchTensor {
        let id = self.next_id;
        self.next_id += 1;
        TorchTensor { layout, handle: Arc::new(TensorHandle { id, memory, outbox: self.outbox.clone() }) }
    }

    fn reserve(&self, meta: &Meta) -> Result<Arc<CountedBytes>> {
        self.ledger.take(meta.bytes(), self.usage.as_ref())
    }

    /// Appends a message without operands, and sends what waits if that is enough.
    fn control(&mut self, control: Control, out: u64, attributes: impl FnOnce(&mut Pickler)) -> Result<()> {
        lock(&self.outbox).control(control, self.label, out, attributes);
        self.appended()
    }

    /// Notes that a message was appended.
    #[inline]
    fn appended(&mut self) -> Result<()> {
        self.is_unfenced = true;
        if lock(&self.outbox).count >= MESSAGES_MAX { self.send() } else { Ok(()) }
    }

    /// Sends the messages that wait.
    fn send(&mut self) -> Result<()> {
        let mut outbox = lock(&self.outbox);
        if outbox.count == 0 {
            return Ok(());
        }
        outbox.count = 0;
        outbox.messages.frame(&mut self.frames);
        drop(outbox);
        let sent = self.connection.send(&self.frames);
        self.frames.clear();
        sent
    }

    fn compute(
        &mut self,
        row: &Row,
        inputs: &[Input<'_, TorchTensor>],
        attrs: &Attrs,
        out: TorchTensor,
        in_place: bool,
    ) -> Result<TorchTensor> {
        let mut outbox = lock(&self.outbox);
        outbox.begin(row.op as i64, self.label, out.handle.id);
        let to = &mut outbox.messages;
        let first = inputs.iter().find_map(|input| match input {
            Input::Tensor(tensor) => Some(tensor.layout.meta.dtype),
            Input::Scalar(_) => None,
        });
        to.begin_tuple();
        for input in inputs {
            match input {
                Input::Tensor(tensor) => to.unsigned(tensor.handle.id),
                Input::Scalar(scalar) => {
                    number(to, *scalar, number_dtype(row, first, &out.layout.meta), row.wide_numbers);
                }
            }
        }
        to.end_tuple();
        attributes(to, row, attrs, &out.layout.meta, in_place);
        to.end_tuple();
        outbox.count += 1;
        drop(outbox);
        self.appended()?;
        Ok(out)
    }

    /// A view where PyTorch makes one, else a copy.
    fn movement(
        &mut self,
        row: &Row,
        tensor: &TorchTensor,
        inputs: &[Input<'_, TorchTensor>],
        attrs: &Attrs,
        out: &Meta,
    ) -> Result<TorchTensor> {
        let backwards = match attrs {
            Attrs::Slice(spec) => (0..spec.sizes.rank()).any(|axis| spec.step[axis] < 0 && spec.sizes.dims()[axis] > 1),
            _ => false,
        };
        let view = if backwards { None } else { tensor.layout.moved(row.op, attrs, &out.shape)? };
        let (layout, memory) = match view {
            Some(layout) => (layout, tensor.handle.memory.clone()),
            None => (Layout::contiguous(*out), self.reserve(out)?),
        };
        let out = self.new_tensor(layout, memory);
        self.compute(row, inputs, attrs, out, false)
    }

    /// A new fence, which the process answers.
    fn new_fence(&mut self, is_asked: bool, staged_to: Option<usize>, read: Option<(usize, HostRange)>) -> u64 {
        let fence = self.next_fence;
        self.next_fence += 1;
        self.fences.push_back(UnansweredFence { fence, is_asked, staged_to, read });
        fence
    }

    /// Sends a fence that nobody asked for.
    fn fence_unasked(&mut self, staged_to: Option<usize>) -> Result<()> {
        let fence = self.new_fence(false, staged_to, None);
        self.control(Control::Fence, 0, |to| to.unsigned(fence))
    }

    /// The offset of `bytes` bytes of shared memory that nothing uses. Waits for transfers if there is no room.
    fn stage(&mut self, bytes: usize) -> Result<usize> {
        let all = self.staging.len() as usize;
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        loop {
            let (head, tail) = (self.staging_head, self.staging_tail);
            // One byte stays unused, so that full is not taken for empty.
            let at = if head >= tail {
                if bytes < all - head || bytes == all - head && tail > 0 {
                    Some(head)
                } else {
                    (bytes < tail).then_some(0)
                }
            } else {
                (bytes < tail - head).then_some(head)
            };
            if let Some(at) = at {
                self.staging_head = (at + bytes) % all;
                return Ok(at);
            }
            if !self.advance(true)? {
                return Err(ExecError::internal("shared memory that no transfer uses is not free"));
            }
        }
    }

    /// Takes the process's next answer; if `wait`, waits for it. False if there is none.
    fn advance(&mut self, wait: bool) -> Result<bool> {
        if self.fences.is_empty() {
            return Ok(false);
        }
        if wait {
            self.send()?;
        }
        let Some(Answer { fence, computed_ns, copied_ns, found }) = self.connection.answer(wait)? else {
            return Ok(false);
        };
        let Some(pending) = self.fences.pop_front().filter(|pending| pending.fence == fence) else {
            return Err(ExecError::Lost("the process that runs PyTorch answers something else".into()));
        };
        self.computed_ns += computed_ns;
        if let Some(found) = found {
            let failed = Err(self.found(found));
            self.failed = std::mem::replace(&mut self.failed, Ok(())).and(failed);
        } else if let Some((at, to)) = pending.read {
            let from =
                self.staging.range(at as u64, to.len() as u64).map_err(|e| ExecError::internal(e.to_string()))?;
            // SAFETY: `from` has as many bytes as `to`, was written before the process answered and is not written
            // again before it is freed below; `to` is writable until its fence is reported, by `HostRange::new`.
            unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), to.len()) };
        }
        if let Some(end) = pending.staged_to {
            self.staging_tail = end;
        }
        if pending.is_asked {
            let computed_ns = std::mem::take(&mut self.computed_ns);
            let result = std::mem::replace(&mut self.failed, Ok(()));
            self.passed.push_back(FenceStatus { fence: Fence(fence), computed_ns, copied_ns, result });
        }
        Ok(true)
    }

    fn found(&self, Found { label, op, error }: Found) -> ExecError {
        let error = match error {
            FoundError::Exec(error) => error,
            FoundError::NoRoom(bytes) => self.ledger.exhausted(bytes),
        };
        ExecError::Earlier { label, op, error: Box::new(error) }
    }

    /// Waits until the device has passed a fence that was asked for, and removes it.
    fn wait_for(&mut self, fence: Fence) -> Result<()> {
        loop {
            if let Some(at) = self.passed.iter().position(|passed| passed.fence == fence) {
                return self.passed.remove(at).map_or(Ok(()), |passed| passed.result);
            }
            if !self.advance(true)? {
                return Err(ExecError::internal("a fence that was never set"));
            }
        }
    }

    /// Lets the process copy bytes of a tensor into shared memory, in pieces, and returns the fence of the last.
    fn begin_read(&mut self, tensor: &TorchTensor, offset_bytes: usize, dst: HostRange) -> Result<Fence> {
        tensor.layout.check_range(offset_bytes, dst.len())?;
        let id = tensor.handle.id;
        let mut at = 0;
        loop {
            let bytes = PIECE_BYTES.min(dst.len() - at);
            let is_last = at + bytes == dst.len();
            let staged = self.stage(bytes)?;
            // SAFETY: the piece lies in `dst`, whose promises it keeps.
            let piece = unsafe { HostRange::new(NonNull::new_unchecked(dst.as_ptr().add(at)), bytes) };
            let fence = self.new_fence(is_last, Some(self.staging_head), Some((staged, piece)));
            let offset = offset_bytes + at;
            self.control(Control::Read, 0, |to| {
                to.unsigned(fence);
                to.unsigned(id);
                [offset, bytes, staged].into_iter().for_each(|x| to.size(x));
            })?;
            self.send()?;
            self.is_unfenced = false;
            at += bytes;
            if is_last {
                return Ok(Fence(fence));
            }
        }
    }
}

impl Backend for TorchBackend {
    type Tensor = TorchTensor;

    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, TorchTensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<TorchTensor> {
        let (cancellation, label) = &self.cancellation;
        if cancellation.covers(*label) {
            return Err(ExecError::Cancelled);
        }
        let row = op.row();
        let first = match inputs.first() {
            Some(Input::Tensor(tensor)) => Some(*tensor),
            _ => None,
        };
        if row.class == Class::Movement {
            let tensor = first.ok_or_else(|| ExecError::internal("a number where a tensor belongs"))?;
            return self.movement(row, tensor, inputs, attrs, out);
        }
        let replaced = first.filter(|tensor| row.writes_part() && last_use & 1 == 1 && self.is_writable(tensor));
        let memory = match replaced {
            Some(tensor) => tensor.handle.memory.clone(),
            None => self.reserve(out)?,
        };
        let out = self.new_tensor(Layout::contiguous(*out), memory);
        self.compute(row, inputs, attrs, out, replaced.is_some())
    }

    fn allocate(&mut self, meta: &Meta) -> Result<TorchTensor> {
        let memory = self.reserve(meta)?;
        let tensor = self.new_tensor(Layout::contiguous(*meta), memory);
        self.control(Control::Allocate, tensor.handle.id, |to| {
            to.sizes(meta.shape.dims());
            to.int(meta.dtype as i64);
        })?;
        Ok(tensor)
    }

    fn write(&mut self, tensor: &mut TorchTensor, offset_bytes: usize, src: HostRange) -> Result<()> {
        if !self.is_writable(tensor) {
            return Err(ExecError::internal("write to a tensor that is shared"));
        }
        tensor.layout.check_range(offset_bytes, src.len())?;
        let mut at = 0;
        while at < src.len() {
            let bytes = PIECE_BYTES.min(src.len() - at);
            let staged = self.stage(bytes)?;
            let to = self.staging.range(staged as u64, bytes as u64).map_err(|e| ExecError::internal(e.to_string()))?;
            // SAFETY: the piece lies in `src`, which is readable, and `to` has as many bytes, which nothing uses since
            // `stage` returned them.
            unsafe { to.as_ptr().copy_from_nonoverlapping(src.as_ptr().add(at), bytes) };
            let (id, offset) = (tensor.handle.id, offset_bytes + at);
            self.control(Control::Write, 0, |to| {
                to.unsigned(id);
                [offset, bytes, staged].into_iter().for_each(|x| to.size(x));
            })?;
            // The shared memory is in use until the process answers.
            self.fence_unasked(Some(self.staging_head))?;
            at += bytes;
        }
        Ok(())
    }

    fn read(&mut self, tensor: &TorchTensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
        let fence = self.begin_read(tensor, offset_bytes, dst)?;
        self.wait_for(fence)
    }

    fn start_read(&mut self, tensor: &TorchTensor, offset_bytes: usize, dst: HostRange) -> Result<Option<Fence>> {
        self.begin_read(tensor, offset_bytes, dst).map(Some)
    }

    fn bytes_of(&self, _tensor: &TorchTensor) -> Option<(NonNull<u8>, usize)> {
        // The bytes are in another process, or in a device's memory.
        None
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn fence(&mut self) -> Result<Option<Fence>> {
        if !self.is_unfenced && self.fences.is_empty() {
            return Ok(None);
        }
        let fence = self.new_fence(true, None, None);
        self.control(Control::Fence, 0, |to| to.unsigned(fence))?;
        self.is_unfenced = false;
        self.send()?;
        Ok(Some(Fence(fence)))
    }

    fn poll_fence(&mut self, wait: bool) -> Result<Option<FenceStatus>> {
        loop {
            if let Some(passed) = self.passed.pop_front() {
                return Ok(Some(passed));
            }
            let is_asked = self.fences.iter().any(|pending| pending.is_asked);
            if !self.advance(wait && is_asked)? {
                return Ok(None);
            }
        }
    }

    fn is_contiguous(&self, tensor: &TorchTensor) -> bool {
        tensor.layout.contiguous
    }

    fn is_writable(&self, tensor: &TorchTensor) -> bool {
        tensor.layout.contiguous
            && Arc::strong_count(&tensor.handle) == 1
            && Arc::strong_count(&tensor.handle.memory) == 1
    }

    fn shares_memory(&self, one: &TorchTensor, other: &TorchTensor) -> bool {
        Arc::ptr_eq(&one.handle.memory, &other.handle.memory)
    }

    fn copy(&mut self, tensor: &TorchTensor) -> Result<TorchTensor> {
        let meta = tensor.layout.meta;
        let memory = self.reserve(&meta)?;
        let copy = self.new_tensor(Layout::contiguous(meta), memory);
        let of = tensor.handle.id;
        self.control(Control::Copy, copy.handle.id, |to| to.unsigned(of))?;
        Ok(copy)
    }

    fn meta(&self, tensor: &TorchTensor) -> Meta {
        tensor.layout.meta
    }

    fn wait_for_checks(&mut self, tensor: &TorchTensor) -> Result<()> {
        // A read of no bytes fails as any other does.
        // SAFETY: nothing is written to a range without bytes.
        let nothing = unsafe { HostRange::new(NonNull::dangling(), 0) };
        self.read(tensor, 0, nothing)
    }

    fn label(&mut self, label: u64) {
        self.label = label;
    }

    fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
        if !Arc::ptr_eq(&self.cancellation.0, cancellation) {
            self.cancellation.0 = cancellation.clone();
        }
        self.cancellation.1 = label;
    }

    fn allow_tf32(&mut self, allowed: bool) {
        if self.tf32 != allowed {
            self.tf32 = allowed;
            lock(&self.outbox).control(Control::Precision, self.label, 0, |to| to.bool(allowed));
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.send()
    }

    fn charge(&mut self, usage: &Arc<MemoryUsage>) {
        if self.usage.as_ref().is_none_or(|charged| !Arc::ptr_eq(charged, usage)) {
            self.usage = Some(usage.clone());
        }
    }

    fn held(&self, usage: &MemoryUsage) -> usize {
        self.ledger.held(usage)
    }

    fn memory(&self) -> MemoryStats {
        self.ledger.stats()
    }

    fn trim(&mut self) {
        lock(&self.outbox).control(Control::Trim, 0, 0, |_| ());
        if let Err(error) = self.send() {
            tracing::error!(target: "gtd::worker", %error, "PyTorch's memory could not be given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::DType;

    #[test]
    fn dtypes_have_the_codes_that_python_expects() {
        // `DTYPES` of `python/elementwise.py` is in this order.
        for (code, dtype) in DType::STORED.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
        }
    }

    #[test]
    fn a_backend_moves_to_the_thread_that_works_with_it() {
        fn moves<T: Send>() {}
        moves::<TorchBackend>();
        moves::<TorchTensor>();
    }
}
