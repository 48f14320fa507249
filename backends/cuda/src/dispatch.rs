//! The trait [`Backend`]: each instruction goes to the file of its op's class.

use crate::backend::{CudaBackend, Inputs, PendingFence};
use crate::error::{Result, failed, lost};
use crate::tensor::CudaTensor;
use crate::transfers::Transfer;
use gt_backend::{
    Backend, Cancellation, DeviceBuffers, ExecError, Fence, FenceStatus, HostRange, Input, Layout, Link, MemoryStats,
    MemoryUsage, Stage, StageInput,
};
use gt_ops::{Attrs, Class, Meta, Op, Row, Shape};
use std::ptr::NonNull;
use std::sync::Arc;

impl CudaBackend {
    /// Kernels that were launched cannot be withdrawn, so an instruction is cancelled before its first launch or not at
    /// all.
    #[inline]
    fn check_cancelled(&self) -> Result<()> {
        let (cancellation, label) = &self.cancellation;
        if cancellation.covers(*label) { Err(ExecError::Cancelled) } else { Ok(()) }
    }

    fn upload_checked(&mut self, tensor: &CudaTensor, offset_bytes: usize, src: HostRange) -> Result<Option<Transfer>> {
        if !tensor.contiguous || !tensor.is_sole_owner() {
            return Err(ExecError::internal("write to a tensor that is shared"));
        }
        tensor.check_range(offset_bytes, src.len())?;
        self.upload(tensor, offset_bytes, src)
    }

    /// Starts a copy of a tensor's bytes, in row-major order, to the host. If the tensor is read in pieces, the
    /// contiguous copy made for the first piece serves the next ones.
    fn download_straight(&mut self, tensor: &CudaTensor, offset_bytes: usize, dst: HostRange) -> Result<Transfer> {
        tensor.check_range(offset_bytes, dst.len())?;
        self.arrive(tensor)?;
        let straight = match self.straightened.take() {
            Some((of, straight)) if of.buffer.ptr() == tensor.buffer.ptr() && of.layout == tensor.layout => straight,
            _ if tensor.contiguous => tensor.clone(),
            _ => {
                self.progress.next().map_err(failed)?;
                self.contiguous(tensor)?
            }
        };
        let transfer = self.download(&straight, offset_bytes, dst)?;
        if !tensor.contiguous && offset_bytes + dst.len() < tensor.meta.bytes() {
            self.straightened = Some((tensor.clone(), straight));
        }
        Ok(transfer)
    }

    fn run(
        &mut self,
        row: &Row,
        inputs: Inputs<'_, '_>,
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<CudaTensor> {
        let operand = |i: usize| match inputs.get(i) {
            Some(Input::Tensor(t)) => Ok(*t),
            Some(Input::Scalar(_)) => Err(ExecError::internal("a number where a tensor belongs")),
            None => Err(ExecError::internal("an operand is missing")),
        };
        match (row.class, attrs) {
            (Class::Creation | Class::Random, _) => self.create(row.op, inputs, attrs, out),
            (Class::Elementwise, _) => self.elementwise(row, inputs, out, last_use),
            (Class::Select, _) => self.select(inputs, out, last_use),
            (Class::Cast, _) => self.cast(operand(0)?, out, last_use),
            (Class::Contraction, _) if row.op == Op::Affine => {
                self.affine([operand(0)?, operand(1)?, operand(2)?], out)
            }
            (Class::Contraction, _) => self.matmul(operand(0)?, operand(1)?, out),
            (Class::SliceScatter, Attrs::Slice(spec)) => match inputs.get(1) {
                Some(number @ Input::Scalar(_)) => {
                    let base = operand(0)?;
                    let one = Meta::new(Shape::SCALAR, base.meta.dtype);
                    let create = Attrs::Create { shape: one.shape, dtype: one.dtype };
                    let filled = self.create(Op::Full, &[*number], &create, &one)?;
                    let layout = filled.layout.moved(Op::Expand, &Attrs::Shape(spec.sizes), &spec.sizes)?;
                    let layout = layout.ok_or_else(|| ExecError::internal("a number cannot be expanded"))?;
                    self.slice_scatter(base, &filled.seen(layout), spec, last_use)
                }
                _ => self.slice_scatter(operand(0)?, operand(1)?, spec, last_use),
            },
            (Class::Concatenation, Attrs::Axis(axis)) => self.cat(inputs, *axis as usize, out),
            (Class::Gather, Attrs::Axis(axis)) => self.gather(row.op, [operand(0)?, operand(1)?], *axis as usize, out),
            (Class::Scatter, Attrs::Axis(axis)) => {
                self.scatter(row.op, [operand(0)?, operand(1)?, operand(2)?], *axis as usize, last_use)
            }
            (Class::Reduction | Class::ArgReduction, Attrs::Axes { mask, .. } | Attrs::AxesInto { mask, .. }) => {
                self.reduce(row.op, operand(0)?, *mask, out)
            }
            (Class::Scan, Attrs::Axis(axis)) => self.scan(row.op, operand(0)?, *axis as usize, out),
            (Class::Sort, Attrs::Axis(axis)) => self.sort(row.op, operand(0)?, *axis as usize, out),
            (Class::Search, _) => self.search(row.op, operand(0)?, operand(1)?, out),
            (Class::Positions, _) => self.positions(operand(0)?, out),
            (Class::RowWise, _) => self.rows(row.op, inputs, attrs, out),
            (Class::Pooling, Attrs::Window(spec)) => {
                let other = if inputs.len() > 1 { Some(operand(1)?) } else { None };
                self.pooling(row.op, operand(0)?, other, spec, out)
            }
            (Class::Convolution, Attrs::Window(spec)) => {
                let bias = if inputs.len() > 2 { Some(operand(2)?) } else { None };
                self.convolution(row.op, [operand(0)?, operand(1)?], bias, spec, out)
            }
            (Class::Movement, _) => self.movement(row.op, operand(0)?, attrs, out),
            _ => Err(ExecError::internal(format!("{} has no CUDA kernel yet", row.name))),
        }
    }

    fn movement(&mut self, op: Op, t: &CudaTensor, attrs: &Attrs, out: &Meta) -> Result<CudaTensor> {
        match t.moved(op, attrs, &out.shape)? {
            Some(layout) => Ok(t.seen(layout)),
            None => {
                self.arrive(t)?;
                let copied = self.private_copy(t, false)?;
                Ok(copied.seen(Layout::contiguous(*out)))
            }
        }
    }
}

impl Backend for CudaBackend {
    type Tensor = CudaTensor;

    #[inline]
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, CudaTensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<CudaTensor> {
        self.check_cancelled()?;
        self.straightened = None;
        self.progress.next().map_err(failed)?;
        let row = op.row();
        // A view reads no data.
        if row.class != Class::Movement {
            for input in inputs {
                if let Input::Tensor(t) = input {
                    self.arrive(t)?;
                }
            }
        }
        let mut result = self.run(row, inputs, attrs, out, last_use)?;
        for input in inputs {
            if let Input::Tensor(t) = input
                && !t.checks.is_empty()
            {
                result.checks.join(&t.checks, self.progress.done());
            }
        }
        Ok(result)
    }

    fn fused_bytes_min(&self) -> usize {
        // However small, each kernel takes a microsecond or two: an optimizer has hundreds on biases.
        0
    }

    fn execute_fused(&mut self, stages: &[Stage<'_, CudaTensor>]) -> Result<Vec<Option<CudaTensor>>> {
        self.check_cancelled()?;
        self.straightened = None;
        self.progress.next().map_err(failed)?;
        for feed in stages.iter().flat_map(|stage| &stage.inputs) {
            if let StageInput::External(Input::Tensor(t)) = feed {
                self.arrive(t)?;
            }
        }
        self.fused(stages)
    }

    fn allocate(&mut self, meta: &Meta) -> Result<CudaTensor> {
        // Memory may have to be cleared first, which counts as a step.
        self.progress.next().map_err(failed)?;
        self.new_tensor(meta)
    }

    fn write(&mut self, tensor: &mut CudaTensor, offset_bytes: usize, src: HostRange) -> Result<()> {
        match self.upload_checked(tensor, offset_bytes, src)? {
            Some(transfer) => self.finish(transfer),
            None => Ok(()),
        }
    }

    fn start_write(&mut self, tensor: &mut CudaTensor, offset_bytes: usize, src: HostRange) -> Result<Option<Fence>> {
        let transfer = self.upload_checked(tensor, offset_bytes, src)?;
        self.set_fence(transfer)
    }

    fn read(&mut self, tensor: &CudaTensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
        let transfer = self.download_straight(tensor, offset_bytes, dst)?;
        self.finish(transfer)
    }

    fn start_read(&mut self, tensor: &CudaTensor, offset_bytes: usize, dst: HostRange) -> Result<Option<Fence>> {
        let transfer = self.download_straight(tensor, offset_bytes, dst)?;
        self.set_fence(Some(transfer))
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    #[inline]
    fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
        if !Arc::ptr_eq(&self.cancellation.0, cancellation) {
            self.cancellation.0 = cancellation.clone();
        }
        self.cancellation.1 = label;
    }

    fn fence(&mut self) -> Result<Option<Fence>> {
        self.set_fence(None).map_err(lost)
    }

    fn poll_fence(&mut self, wait: bool) -> Result<Option<FenceStatus>> {
        let Some(PendingFence { point, transfer, .. }) = self.fences.front() else { return Ok(None) };
        if let Some(point) = point
            && !self.progress.reached(*point, wait).map_err(lost)?
        {
            return Ok(None);
        }
        if let Some(transfer) = transfer
            && !self.transfers.has_ended(transfer, wait).map_err(lost)?
        {
            return Ok(None);
        }
        let Some(PendingFence { fence, transfer, .. }) = self.fences.pop_front() else { return Ok(None) };
        let (copied_ns, result) = transfer.map_or(Ok((0, Ok(()))), |transfer| self.end(transfer)).map_err(lost)?;
        Ok(Some(FenceStatus { fence, computed_ns: self.progress.take_computed_ns(), copied_ns, result }))
    }

    fn device(&mut self) -> Result<Option<[u8; 16]>> {
        self.driver.enter().map_err(failed)?;
        Ok(self.driver.properties().uuid)
    }

    fn wait_for_checks(&mut self, tensor: &CudaTensor) -> Result<()> {
        if let Some(step) = tensor.checks.last_step(self.progress.done()) {
            self.progress.await_step(step).map_err(failed)?;
        }
        tensor.checks.wait()
    }

    fn communicate(
        &mut self,
        link: &Arc<dyn Link>,
        input: Option<&CudaTensor>,
        output: Option<&mut CudaTensor>,
        enqueue: &mut dyn FnMut(DeviceBuffers) -> Result<()>,
    ) -> Result<()> {
        self.straightened = None;
        // Copies that several devices compute should have the same bits.
        self.launches.stop_tuning().map_err(failed)?;
        self.progress.next().map_err(failed)?;
        self.give_to_link(link, input, output, enqueue)
    }

    fn bytes_of(&self, _tensor: &CudaTensor) -> Option<(NonNull<u8>, usize)> {
        // The bytes are in device memory, which this process cannot read.
        None
    }

    fn is_contiguous(&self, tensor: &CudaTensor) -> bool {
        tensor.contiguous
    }

    fn is_writable(&self, tensor: &CudaTensor) -> bool {
        tensor.contiguous && tensor.is_sole_owner()
    }

    fn shares_memory(&self, one: &CudaTensor, other: &CudaTensor) -> bool {
        Arc::ptr_eq(&one.buffer, &other.buffer)
    }

    fn copy(&mut self, tensor: &CudaTensor) -> Result<CudaTensor> {
        self.arrive(tensor)?;
        self.private_copy(tensor, false)
    }

    fn meta(&self, tensor: &CudaTensor) -> Meta {
        tensor.meta
    }

    fn flush(&mut self) -> Result<()> {
        self.launches.let_go().map_err(failed)
    }

    fn label(&mut self, label: u64) {
        self.label = label;
    }

    fn allow_tf32(&mut self, allowed: bool) {
        self.tf32 = allowed;
    }

    unsafe fn register_host_memory(&mut self, range: HostRange, present: bool) {
        for transfer in self.fences.iter().filter(|_| !present).filter_map(|fenced| fenced.transfer.as_ref()) {
            if let Err(error) = self.transfers.has_ended(transfer, true) {
                // A lost device copies nothing any more.
                tracing::warn!(target: "gtd::cuda", %error, "a transfer could not be waited for");
            }
        }
        // SAFETY: `range` stays mapped while present, by the contract of this method, and the loop above waited for its
        // transfers.
        unsafe { self.transfers.register_host_memory(range, present) };
    }

    #[inline]
    fn charge(&mut self, account: &Arc<MemoryUsage>) {
        self.memory.charge(account);
    }

    fn held(&self, account: &MemoryUsage) -> usize {
        self.memory.held(account)
    }

    fn memory(&self) -> MemoryStats {
        self.memory.stats()
    }

    fn trim(&mut self) {
        self.straightened = None;
        self.memory.trim();
    }
}
