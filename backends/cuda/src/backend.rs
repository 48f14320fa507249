//! The state of a CUDA backend, and helpers that every op uses.

use crate::blas::gemm::Blas;
use crate::checks::{CheckBoard, Slot};
use crate::compile::compiler::Compiler;
use crate::compile::prebuilt::{Architecture, Prebuilt};
use crate::compile::store::Store;
use crate::dnn::conv::Dnn;
use crate::driver::{self, CudaStream, Driver};
use crate::error::{Result, failed};
use crate::graphs::{Graphs, LaunchCounts, Launches};
use crate::kernels::Kernels;
use crate::memory::Allocator;
use crate::moves::Moves;
use crate::progress::StreamProgress;
use crate::tensor::CudaTensor;
use crate::transfers::{Transfer, Transfers};
use gt_backend::{Cancellation, ExecError, Fence, Input};
use gt_ops::{Meta, Op};
use std::collections::VecDeque;
use std::sync::Arc;

/// The operands of an instruction.
pub(crate) type Inputs<'a, 'b> = &'a [Input<'b, CudaTensor>];

/// The least multiply-adds of convolutions that libraries compute; see [`CudaBackend::library_products_min`].
const LIBRARY_PRODUCTS_MIN: usize = 1 << 20;

/// A fence, and the work that the device must do to pass it.
pub(crate) struct PendingFence {
    pub(crate) fence: Fence,
    /// The step that the device must have done; `None` if it had done all steps when the fence was set.
    pub(crate) point: Option<u64>,
    pub(crate) transfer: Option<Transfer>,
}

/// A backend on one CUDA device.
pub struct CudaBackend {
    pub(crate) transfers: Transfers,
    pub(crate) board: CheckBoard,
    pub(crate) progress: StreamProgress,
    pub(crate) tf32: bool,
    /// Convolutions with fewer multiply-adds take one kernel of GT's, rather than several launches.
    pub(crate) library_products_min: usize,
    pub(crate) moves: Moves,
    pub(crate) memory: Allocator,
    pub(crate) kernels: Kernels,
    pub(crate) stream: CudaStream,
    pub(crate) launches: Arc<Launches>,
    /// `launches`, as the driver that the other parts use.
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) label: u64,
    /// The cancellation of the next instruction, and the label by which it knows that instruction.
    pub(crate) cancellation: (Arc<Cancellation>, u64),
    /// Fences that have not been reported yet, oldest first, and the number of the next.
    pub(crate) fences: VecDeque<PendingFence>,
    pub(crate) next_fence: u64,
    /// A tensor that is read piece by piece, and its row-major copy.
    pub(crate) straightened: Option<(CudaTensor, CudaTensor)>,
}

impl CudaBackend {
    /// A backend on the device of `driver`, whose tensors may take `memory_bytes_limit` bytes together.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(
        driver: Arc<dyn Driver>,
        compiler: Box<dyn Compiler>,
        store: Store,
        memory_bytes_limit: usize,
    ) -> driver::Result<CudaBackend> {
        let launches = Arc::new(Launches::new(driver)?);
        let (stream, driver): (_, Arc<dyn Driver>) = (launches.stream(), launches.clone());
        Ok(CudaBackend {
            transfers: Transfers::new(driver.clone())?,
            board: CheckBoard::new(driver.clone())?,
            progress: StreamProgress::new(driver.clone(), stream),
            moves: Moves::new(&*driver)?,
            memory: Allocator::new(driver.clone(), stream, memory_bytes_limit),
            kernels: Kernels::new(driver.clone(), compiler, store),
            stream,
            launches,
            tf32: false,
            library_products_min: LIBRARY_PRODUCTS_MIN,
            driver,
            label: 0,
            cancellation: (Arc::default(), Cancellation::NEVER),
            fences: VecDeque::new(),
            next_fence: 0,
            straightened: None,
        })
    }

    /// The same backend with a library for matrix products of floats; without one, GT's own kernels compute them.
    #[must_use]
    pub fn with_blas(self, blas: Box<dyn Blas>) -> CudaBackend {
        self.launches.set_blas(blas);
        self
    }

    /// The same backend with a library for convolutions; without one, GT's own kernels and the library for matrix
    /// products compute them.
    #[must_use]
    pub fn with_dnn(self, dnn: Box<dyn Dnn>) -> CudaBackend {
        self.launches.set_dnn(dnn);
        self
    }

    /// The same backend with kernels that were compiled beforehand.
    #[must_use]
    pub fn with_prebuilt(mut self, prebuilt: Prebuilt) -> CudaBackend {
        self.kernels.use_prebuilt(prebuilt);
        self
    }

    /// Waits until the host memory that was registered is pinned, as far as it can be.
    pub fn await_pinned(&self) {
        self.transfers.await_pinned();
    }

    /// The architecture of the kernels that were compiled beforehand, if there are any.
    pub fn prebuilt_for(&self) -> Option<Architecture> {
        self.kernels.prebuilt_for()
    }

    /// Hands convolutions with at least this many multiply-adds to libraries.
    pub fn set_library_products_min(&mut self, products: usize) {
        self.library_products_min = products;
    }

    /// Sets which launches are captured as graphs; at first, those of repeated sequences.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn set_graphs(&mut self, graphs: Graphs) -> driver::Result<()> {
        self.launches.set_graphs(graphs)
    }

    /// Counts of the launches so far.
    pub fn launch_counts(&self) -> LaunchCounts {
        self.launches.counts()
    }

    /// The device's properties.
    pub fn properties(&self) -> &driver::Properties {
        self.driver.properties()
    }

    #[inline]
    pub(crate) fn new_tensor(&self, meta: &Meta) -> Result<CudaTensor> {
        Ok(CudaTensor::contiguous(self.memory.allocate(meta.bytes())?, *meta))
    }

    /// A slot in which a kernel of this step, for `op`, can report an error; `out`, the kernel's result, depends on the
    /// check.
    pub(crate) fn check(&mut self, op: Op, out: &mut CudaTensor) -> Result<Slot> {
        let label = (self.label, op);
        let begun = match self.board.begin(self.progress.step(), self.progress.done(), label) {
            Some(begun) => Some(begun),
            None => {
                let point = self.progress.point().map_err(failed)?;
                self.progress.reached(point.unwrap_or(0), true).map_err(failed)?;
                // A wait for this step covers the kernels issued so far; the next kernel belongs to a new step.
                self.progress.next().map_err(failed)?;
                self.board.begin(self.progress.step(), self.progress.done(), label)
            }
        };
        let (slot, checks) = begun.ok_or_else(|| ExecError::internal("more checks under way than there are slots"))?;
        out.checks.join(&checks, self.progress.done());
        Ok(slot)
    }

    pub(crate) fn set_fence(&mut self, transfer: Option<Transfer>) -> Result<Option<Fence>> {
        let point = self.progress.point().map_err(failed)?;
        if point.is_none() && transfer.is_none() {
            return Ok(self.fences.back().map(|last| last.fence));
        }
        let fence = Fence(self.next_fence);
        self.next_fence += 1;
        self.fences.push_back(PendingFence { fence, point, transfer });
        Ok(Some(fence))
    }
}
