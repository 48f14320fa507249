//! The smallest backend of GT: each op is computed by the interpreter that the conformance suite compares with.
//!
//! It is an example for authors of backends, and a test that the daemon needs nothing of a backend but its crate and
//! its line in the registry. Convolutions, pooling and the ops along rows (`Class::RowWise`) but for
//! Fourier transforms are not implemented.
//! Workers run it as `--workers stub:1`, or `proc-stub:1` in a process.

use gt_backend::conformance::host::Host;
use gt_backend::conformance::oracle::{OracleOperand, interpret};
use gt_backend::{
    Backend, BackendFactory, BackendFacts, Cancellation, Capabilities, ExecError, HostRange, Input, Layout, LimitScope,
    MemoryStats, MemoryUsage, OpenOptions, OpenedBackend, Site,
};
use gt_ops::{Attrs, Class, DType, Meta, Op};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Opens [`StubBackend`]s.
pub struct StubFactory;

impl BackendFactory for StubFactory {
    type Backend = StubBackend;

    const FACTS: BackendFacts = BackendFacts {
        name: "stub",
        worker_prefix: "stub",
        site: Site::Host,
        help: "",
        unavailable: None,
        ready_deadline: Duration::from_secs(10),
        rates: |_| (0.01, 0.01),
        discovery: None,
        is_numbered: false,
    };

    fn open(options: &OpenOptions) -> Result<OpenedBackend<StubBackend>, String> {
        let capabilities = Capabilities::estimated(&StubFactory::FACTS, 1, options.memory_bytes_limit as u64);
        Ok(OpenedBackend { backend: StubBackend::new(options.memory_bytes_limit), capabilities, device: None })
    }
}

/// A tensor in row-major order, in memory of its own.
#[derive(Clone, Debug)]
pub struct StubTensor {
    meta: Meta,
    memory: Arc<StubBuffer>,
}

/// The bytes of a tensor, in words so that elements of every dtype are aligned.
#[derive(Debug)]
struct StubBuffer {
    words: Box<[u64]>,
    bytes: usize,
    usage: Option<Arc<MemoryUsage>>,
    held: Arc<Mutex<Held>>,
}

/// The bytes that tensors hold: for each usage by its id, in total, and the largest total so far.
#[derive(Debug, Default)]
struct Held {
    of: HashMap<u64, usize>,
    total: usize,
    peak: usize,
}

/// A backend that computes each op with the reference interpreter.
#[derive(Debug)]
pub struct StubBackend {
    limit_bytes: usize,
    usage: Option<Arc<MemoryUsage>>,
    held: Arc<Mutex<Held>>,
    /// The cancellation of the next instruction, and the label by which it knows that instruction.
    cancellation: (Arc<Cancellation>, u64),
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StubBuffer {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: `words` has at least `bytes` initialized bytes, and bytes need no alignment.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `words` has at least `bytes` initialized bytes, borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.bytes) }
    }
}

impl Drop for StubBuffer {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        held.total -= self.bytes;
        if let Some(usage) = &self.usage {
            usage.give(self.bytes);
            if let Some(of) = held.of.get_mut(&usage.id()) {
                *of -= self.bytes;
            }
        }
    }
}

impl StubBackend {
    /// A backend whose tensors take at most this many bytes.
    pub fn new(limit_bytes: usize) -> StubBackend {
        let cancellation = (Arc::default(), Cancellation::NEVER);
        StubBackend { limit_bytes, usage: None, held: Arc::default(), cancellation }
    }

    /// A tensor of zeros.
    fn zeros(&self, meta: &Meta) -> Result<StubTensor, ExecError> {
        let (bytes, limit) = (meta.bytes(), self.limit_bytes);
        let mut held = lock(&self.held);
        if held.total.checked_add(bytes).is_none_or(|total| total > limit) {
            let scope = LimitScope::Device;
            return Err(ExecError::OutOfMemory { requested: bytes, held: held.total, limit, scope });
        }
        if let Some(usage) = &self.usage {
            usage.take(bytes, bytes)?;
            *held.of.entry(usage.id()).or_default() += bytes;
        }
        held.total += bytes;
        held.peak = held.peak.max(held.total);
        let words = vec![0; bytes.div_ceil(size_of::<u64>())].into();
        let block = StubBuffer { words, bytes, usage: self.usage.clone(), held: self.held.clone() };
        Ok(StubTensor { meta: *meta, memory: Arc::new(block) })
    }
}

impl Backend for StubBackend {
    type Tensor = StubTensor;

    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, StubTensor>],
        attrs: &Attrs,
        out: &Meta,
        _last_use: u8,
    ) -> Result<StubTensor, ExecError> {
        let (cancellation, label) = &self.cancellation;
        if cancellation.covers(*label) {
            return Err(ExecError::Cancelled);
        }
        let by_oracle = matches!(op, Op::Fourier | Op::InverseFourier | Op::CtcForward | Op::CtcPosteriors)
            || matches!(op, Op::RealFourier | Op::InverseRealFourier | Op::LstmCell | Op::LstmCellBackward)
            || matches!(op, Op::ComplexMul | Op::ComplexDiv);
        if matches!(op.row().class, Class::Convolution | Class::Pooling | Class::RowWise) && !by_oracle {
            return Err(ExecError::internal(format!("the stub does not implement {}", op.name())));
        }
        let mut result = self.zeros(out)?;
        let operand = |input: &Input<'_, StubTensor>| match input {
            Input::Tensor(tensor) => OracleOperand::Tensor(Host::from_bytes(tensor.meta, tensor.memory.as_slice())),
            Input::Scalar(scalar) => OracleOperand::Scalar(*scalar),
        };
        let operands: Vec<OracleOperand> = inputs.iter().map(operand).collect();
        let computed = interpret(op, &operands, attrs, out)?;
        if let Some(block) = Arc::get_mut(&mut result.memory) {
            block.as_mut_slice().copy_from_slice(&computed.to_bytes());
        }
        Ok(result)
    }

    fn allocate(&mut self, meta: &Meta) -> Result<StubTensor, ExecError> {
        self.zeros(meta)
    }

    fn write(&mut self, tensor: &mut StubTensor, offset_bytes: usize, src: HostRange) -> Result<(), ExecError> {
        Layout::contiguous(tensor.meta).check_range(offset_bytes, src.len())?;
        let Some(block) = Arc::get_mut(&mut tensor.memory) else {
            return Err(ExecError::internal("write to a tensor that is shared"));
        };
        let to = &mut block.as_mut_slice()[offset_bytes..offset_bytes + src.len()];
        // SAFETY: `HostRange::new` promises that `src` is readable and that no reference to it is live, so it does not
        // overlap `to`, which has the same length.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), to.as_mut_ptr(), src.len()) };
        if tensor.meta.dtype == DType::Bool {
            to.iter_mut().for_each(|byte| *byte = (*byte != 0).into());
        }
        Ok(())
    }

    fn read(&mut self, tensor: &StubTensor, offset_bytes: usize, dst: HostRange) -> Result<(), ExecError> {
        Layout::contiguous(tensor.meta).check_range(offset_bytes, dst.len())?;
        let from = &tensor.memory.as_slice()[offset_bytes..offset_bytes + dst.len()];
        // SAFETY: `HostRange::new` promises that `dst` is writable and that no reference to it is live, so it does not
        // overlap `from`, which has the same length.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), dst.as_ptr(), dst.len()) };
        Ok(())
    }

    fn bytes_of(&self, tensor: &StubTensor) -> Option<(NonNull<u8>, usize)> {
        let bytes = tensor.memory.as_slice();
        Some((NonNull::from_ref(bytes).cast(), bytes.len()))
    }

    fn meta(&self, tensor: &StubTensor) -> Meta {
        tensor.meta
    }

    fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
        self.cancellation = (cancellation.clone(), label);
    }

    fn charge(&mut self, usage: &Arc<MemoryUsage>) {
        self.usage = Some(usage.clone());
    }

    fn held(&self, usage: &MemoryUsage) -> usize {
        lock(&self.held).of.get(&usage.id()).copied().unwrap_or(0)
    }

    fn memory(&self) -> MemoryStats {
        let Held { total, peak, .. } = *lock(&self.held);
        MemoryStats { used_bytes: total, used_bytes_peak: peak, cached_bytes: 0, limit_bytes: self.limit_bytes }
    }

    fn trim(&mut self) {}
}
