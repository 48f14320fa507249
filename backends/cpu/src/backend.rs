//! The backend's state: options, memory, threads and kernels. The files that compute each class of ops build on it.

use crate::kernels::{Kernel, KernelTable, SimdLevel};
use crate::memory::CachingAllocator;
use crate::rows::fourier_plans::FourierPlans;
use crate::rows::moments::RowMoments;
use crate::strided::copy;
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use gt_backend::{Cancellation, ExecError, Input};
use gt_ops::{DType, Meta};
use gt_shm::Segment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The options of a [`CpuBackend`].
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The number of computing threads, including the caller of [`gt_backend::Backend::execute`].
    pub threads: usize,
    /// The memory limit of all tensors together, in bytes.
    pub memory_bytes_limit: usize,
    /// The shared segment for tensors that other processes read, if any. It may be longer than the limit.
    pub shared: Option<Arc<Segment>>,
}

impl Default for CpuOptions {
    /// One thread per core, and three quarters of [`machine_bytes`].
    fn default() -> CpuOptions {
        CpuOptions {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes_limit: machine_bytes() / 4 * 3,
            shared: None,
        }
    }
}

/// The memory available to this process in bytes: the machine's, or the limit of its control group if that is less.
pub fn machine_bytes() -> usize {
    physical_bytes().min(group_bytes().unwrap_or(usize::MAX))
}

/// The lowest `memory.max` of this process's control group (version 2) and its ancestors, if any sets one.
fn group_bytes() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &std::path::Path| {
        let text =
            std::fs::read_to_string(std::path::Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok()?;
        text.trim().parse().ok()
    };
    std::path::Path::new(own).ancestors().filter_map(limit).min()
}

fn physical_bytes() -> usize {
    // SAFETY: `sysconf` takes a number and reads no memory of ours.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) if pages > 0 => pages.saturating_mul(page),
        // The size is unknown, so no limit applies.
        _ => usize::MAX / 8,
    }
}

/// The CPU backend: its memory, its threads, and the kernels for the machine's vector instructions.
pub struct CpuBackend {
    pub(crate) allocator: CachingAllocator,
    pub(crate) pool: ThreadPool,
    pub(crate) kernels: KernelTable,
    pub(crate) level: SimdLevel,
    /// The calls so far that may have written or allocated memory. [`RowMoments`] are valid only in the call after the
    /// one that cached them.
    pub(crate) step: StepCount,
    pub(crate) moments: Option<RowMoments>,
    pub(crate) fourier_plans: FourierPlans,
    /// The instruction to come, and what may cancel it.
    pub(crate) cancellation: (Arc<Cancellation>, u64),
}

/// A number of calls, which a backend and its companion count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepCount(Arc<AtomicU64>);

impl StepCount {
    /// The number so far.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts one more. One thread at a time uses a backend and its companion, so no count is lost.
    #[inline]
    pub(crate) fn advance(&self) {
        self.0.store(self.get() + 1, Relaxed);
    }
}

pub(crate) type Result<T> = std::result::Result<T, ExecError>;
pub(crate) type Inputs<'a, 'b> = &'a [Input<'b, CpuTensor>];

impl CpuBackend {
    /// A backend with its own threads and its own allocator, at the best vector level of this machine.
    pub fn new(options: CpuOptions) -> CpuBackend {
        let level = SimdLevel::available().last().copied().unwrap_or(SimdLevel::Baseline);
        CpuBackend::at_level(options, level)
    }

    pub(crate) fn at_level(options: CpuOptions, level: SimdLevel) -> CpuBackend {
        CpuBackend {
            allocator: CachingAllocator::new(options.memory_bytes_limit, options.shared),
            pool: ThreadPool::new(options.threads),
            kernels: KernelTable::of(level),
            level,
            step: StepCount::default(),
            moments: None,
            fourier_plans: FourierPlans::default(),
            cancellation: (Arc::default(), Cancellation::NEVER),
        }
    }

    /// As [`Backend::companion`](gt_backend::Backend::companion): it shares memory and has no threads of its own, since
    /// those of this backend go on with its instruction.
    pub(crate) fn on_the_same_memory(&self) -> CpuBackend {
        CpuBackend {
            allocator: self.allocator.companion(),
            pool: ThreadPool::new(1),
            kernels: KernelTable::of(self.level),
            level: self.level,
            step: self.step.clone(),
            moments: None,
            fourier_plans: FourierPlans::default(),
            cancellation: (Arc::default(), Cancellation::NEVER),
        }
    }

    /// Begins an instruction.
    ///
    /// # Errors
    /// [`ExecError::Cancelled`] if it is cancelled already.
    #[inline]
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.step.advance();
        let (cancellation, label) = &self.cancellation;
        self.pool.watch.set(cancellation, *label);
        self.pool.watch.check()
    }

    #[inline]
    pub(crate) fn new_tensor(&self, meta: &Meta) -> Result<CpuTensor> {
        Ok(CpuTensor::contiguous(self.allocator.allocate(meta.bytes())?, *meta))
    }

    pub(crate) fn widen(&self, dtype: DType) -> Option<Kernel> {
        match dtype {
            DType::F16 => Some(self.kernels.widen[0]),
            DType::BF16 => Some(self.kernels.widen[1]),
            _ => None,
        }
    }

    pub(crate) fn narrow(&self, dtype: DType) -> Option<Kernel> {
        match dtype {
            DType::F16 => Some(self.kernels.narrow[0]),
            DType::BF16 => Some(self.kernels.narrow[1]),
            _ => None,
        }
    }

    /// The tensor in row-major order without gaps: itself, or a copy.
    pub(crate) fn contiguous(&mut self, t: &CpuTensor) -> Result<CpuTensor> {
        if t.contiguous {
            return Ok(t.clone());
        }
        let out = self.new_tensor(&t.meta)?;
        // SAFETY: `out` was just allocated with `t`'s shape and dtype, so both are valid for all elements and disjoint.
        unsafe { copy(&mut self.pool, &t.meta.shape, t.size(), (out.ptr(), &out.strides), (t.ptr(), &t.strides))? };
        Ok(out)
    }

    /// A tensor with `t`'s elements that may be written: `t` itself if this is its last use (`given_up`) and its only
    /// handle and it is contiguous, else a copy.
    pub(crate) fn private_copy(&mut self, t: &CpuTensor, given_up: bool) -> Result<CpuTensor> {
        if given_up && t.is_writable() {
            self.pool.watch.keep_going();
            return Ok(t.clone());
        }
        let out = self.new_tensor(&t.meta)?;
        // SAFETY: `out` was just allocated with `t`'s shape and dtype, so both are valid for all elements and disjoint.
        unsafe { copy(&mut self.pool, &t.meta.shape, t.size(), (out.ptr(), &out.strides), (t.ptr(), &t.strides))? };
        Ok(out)
    }
}

/// The dtype that kernels compute in: `f32` for `f16` and `bf16`, else the operand's own.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    if dtype.is_float() && dtype != DType::F64 { DType::F32 } else { dtype }
}

pub(crate) fn tensor<'a>(input: &Input<'a, CpuTensor>) -> Result<&'a CpuTensor> {
    match input {
        Input::Tensor(t) => Ok(t),
        Input::Scalar(_) => Err(ExecError::internal("a number where a tensor belongs")),
    }
}
