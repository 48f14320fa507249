//! A worker's share of moving a tensor: what it gives the others, and what it makes of what they give.
//!
//! Everything follows from the placements before and after, which all workers of a group are told alike. A worker that
//! has nothing to give, since what it should have is poisoned, does another thing than the rest: ranks that disagree
//! all learn it ([`gt_collectives::Communicator`]), and then tell each other why.

use super::device_link::{DeviceLink, Routes};
use super::exec_failure::{caught, failure, worker_lost};
use gt_backend::{Backend, DeviceBuffers, ExecError, HostRange, Input, Link};
use gt_collectives::{CollectiveError, Communicator, Operation, Reduce};
use gt_ops::failure::{Failure, Fault};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::slice_along;
use gt_ops::placement::ReduceOp;
use gt_ops::wire::{Completion, Reshard, Slot};
use gt_ops::{Attrs, DType, Meta, Op, Placement, Shape, TensorId, Workers};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

type Result<T> = std::result::Result<T, ExecError>;

/// Moves a tensor with the other ranks of `group`. `input` is what the worker `me` has of it, or why it has nothing.
/// There is no result for a worker that has nothing of it afterwards. Parts are used up: the whole may be where they
/// were.
///
/// # Errors
/// Why there is no result, on every rank; but what fails after everything was moved fails by itself.
pub fn reshard<B: Backend>(
    backend: &mut B,
    routes: Routes<'_>,
    me: usize,
    origin: TensorId,
    relocation: &Reshard,
    input: Option<std::result::Result<&B::Tensor, Failure>>,
) -> std::result::Result<Option<B::Tensor>, Failure> {
    let blame = |error| failure(error, origin, None);
    let Routes { group, devices } = routes;
    let mut mover = Mover { backend, share: Share { relocation, me }, devices };
    let mut packed = match input {
        Some(Err(failure)) => Err(failure),
        Some(Ok(tensor)) => caught(|| mover.pack(Some(tensor))).map_err(blame),
        None => caught(|| mover.pack(None)).map_err(blame),
    };
    let moved = match (&mut packed, devices) {
        (Ok(_), Some(_)) => mover.agree(group),
        (Ok(packed), None) => mover.exchange(group, packed),
        (Err(_), _) => group.barrier(),
    };
    match (moved, packed) {
        (Ok(()), Ok(mut packed)) => caught(|| {
            if let Some(link) = devices {
                mover.enqueue(link, &mut packed)?;
            }
            mover.unpack(packed)
        })
        .map_err(blame),
        (Ok(()), Err(failure)) => Err(failure),
        (Err(CollectiveError::Mismatch { .. }), packed) => Err(ask_why(group, packed.err(), origin)),
        (Err(error), packed) => {
            tracing::warn!(target: "gtd::worker", origin, %error, "a tensor could not be moved");
            Err(packed.err().unwrap_or(Failure {
                fault: who_is_lost(relocation, &error),
                instruction: origin,
                op: None,
            }))
        }
    }
}

/// Who of a group is gone, if that is why nothing was moved.
fn who_is_lost(relocation: &Reshard, error: &CollectiveError) -> Fault {
    let rank = match error {
        CollectiveError::Died { peer, .. } | CollectiveError::Left { peer, .. } => *peer,
        CollectiveError::Aborted { by, .. } | CollectiveError::TimedOut { by, .. } => *by,
        _ => return Fault::Internal,
    };
    let group = relocation.from.workers().with(relocation.to.workers());
    group.iter().nth(rank).map_or(Fault::Internal, worker_lost)
}

/// What has failed first, in the order of ranks.
fn ask_why(group: &mut dyn Communicator, own: Option<Failure>, origin: TensorId) -> Failure {
    let size = size_of::<Slot>();
    let unknown = Failure { fault: Fault::Internal, instruction: origin, op: None };
    let slot = Completion { token: 0, result: own.map_or(Ok(()), Err) }.encode();
    let mine: Vec<u8> = slot.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut all = vec![0; size * group.size()];
    let counts = vec![size; group.size()];
    if let Err(error) = group.all_gather(&mine, &mut all, &counts, DType::U8) {
        tracing::error!(target: "gtd::worker", origin, %error, "workers could not say why a tensor was not moved");
        return own.unwrap_or(unknown);
    }
    let failures = all.chunks_exact(size).filter_map(|bytes| {
        let mut slot = Slot::default();
        for (word, bytes) in slot.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Completion::decode(&slot).result.err()
    });
    let first = failures.into_iter().next();
    first.unwrap_or(unknown)
}

/// What a group does to move a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CollectiveKind {
    AllReduce(Reduce),
    ReduceScatter(Reduce),
    AllGather,
    Broadcast { root: usize },
    AllToAll,
}

/// A tensor on its way: what a rank gives and room for what it takes, row-major. In elements, by ranks.
struct ReshardBuffers<T> {
    kind: CollectiveKind,
    input: Option<T>,
    output: Option<T>,
    /// What `input` and `output` hold, where the processor does not reach them in the device's memory.
    staged: Option<[Vec<u8>; 2]>,
    gives: Vec<usize>,
    takes: Vec<usize>,
}

/// What `worker` does when a tensor is moved, and how many bytes it sends to others, counted as by
/// [`gt_collectives::CommStats`].
pub fn traffic(relocation: &Reshard, worker: usize) -> Option<(Operation, u64)> {
    let share = Share { relocation, me: worker };
    let meta = &relocation.meta;
    let (group, whole) = (share.group(), meta.bytes() as u64);
    let others = group.len() as u64 - 1;
    let local = |placement: &Placement| placement.local(meta, worker).bytes() as u64;
    Some(match share.kind().ok()? {
        CollectiveKind::AllReduce(_) => (Operation::AllReduce, 2 * others * whole / group.len() as u64),
        CollectiveKind::ReduceScatter(_) => (Operation::ReduceScatter, whole - local(&relocation.to)),
        CollectiveKind::AllGather => (Operation::AllGather, others * local(&relocation.from)),
        CollectiveKind::Broadcast { root } if group.rank_of(worker) == Some(root) => {
            (Operation::Broadcast, others * whole)
        }
        CollectiveKind::Broadcast { .. } => (Operation::Broadcast, 0),
        CollectiveKind::AllToAll => {
            let pieces = group.iter().filter(|taker| *taker != worker).filter_map(|taker| share.piece(worker, taker));
            let elements: usize = pieces.map(|piece| piece.shape.numel()).sum();
            (Operation::AllToAll, (elements * meta.dtype.size()) as u64)
        }
    })
}

/// A worker's share of a move.
#[derive(Clone, Copy)]
struct Share<'a> {
    relocation: &'a Reshard,
    me: usize,
}

impl Share<'_> {
    fn group(&self) -> Workers {
        self.relocation.from.workers().with(self.relocation.to.workers())
    }

    fn kind(&self) -> Result<CollectiveKind> {
        let Reshard { from, to, .. } = self.relocation;
        let same = from.workers() == to.workers();
        Ok(match (from, to) {
            (Placement::Partial { reduce_op, .. }, Placement::Replicated { .. }) if same => {
                CollectiveKind::AllReduce(reduce(*reduce_op))
            }
            (Placement::Partial { reduce_op, .. }, Placement::Sharded { .. }) if same => {
                CollectiveKind::ReduceScatter(reduce(*reduce_op))
            }
            (Placement::Partial { .. }, _) | (_, Placement::Partial { .. }) => {
                return Err(ExecError::internal("parts are joined where they are"));
            }
            (Placement::Sharded { .. }, Placement::Replicated { .. }) if same => CollectiveKind::AllGather,
            (Placement::Replicated { workers }, Placement::Replicated { .. }) if workers.len() == 1 => {
                let root = workers.first().and_then(|worker| self.group().rank_of(worker));
                CollectiveKind::Broadcast { root: root.unwrap_or_default() }
            }
            _ => CollectiveKind::AllToAll,
        })
    }

    /// What `giver` gives `taker` of what it has; nothing if `taker` gets it from somebody else.
    fn piece(&self, giver: usize, taker: usize) -> Option<Piece> {
        let Reshard { meta, from, to, .. } = self.relocation;
        if !to.workers().contains(taker) || !from.workers().contains(giver) {
            return None;
        }
        if let Placement::Replicated { workers } = from {
            let near = if workers.contains(taker) {
                Some(taker)
            } else {
                self.group().rank_of(taker).and_then(|rank| workers.iter().nth(rank % workers.len()))
            };
            if near != Some(giver) {
                return None;
            }
        }
        let own = from.local(meta, giver).shape;
        let Some(wanted) = to.stretch_of(&meta.shape, taker) else {
            return Some(Piece { shape: own, range: None });
        };
        let Placement::Sharded { axis, .. } = to else { return None };
        let axis = *axis as usize;
        let range = match (from, from.stretch_of(&meta.shape, giver)) {
            (Placement::Sharded { axis: along, .. }, Some(has)) if *along as usize == axis => {
                let (start, end) = (wanted.start.max(has.start), wanted.end.min(has.end));
                let start = start.min(end);
                start.saturating_sub(has.start)..end.saturating_sub(has.start)
            }
            _ => wanted,
        };
        Some(Piece { shape: own.with_dim(axis, range.len()), range: Some((axis, range)) })
    }
}

/// A share and the device that does it.
struct Mover<'a, B> {
    backend: &'a mut B,
    share: Share<'a>,
    devices: Option<&'a Arc<DeviceLink>>,
}

impl<B: Backend> Mover<'_, B> {
    fn pack(&mut self, input: Option<&B::Tensor>) -> Result<ReshardBuffers<B::Tensor>> {
        let Reshard { meta, from, to, .. } = *self.share.relocation;
        let kind = self.share.kind()?;
        if let (Some(own), true) = (input, self.devices.is_some()) {
            // The others cannot see what this device finds later.
            self.backend.wait_for_checks(own)?;
        }
        let lengths = |placement: Placement| -> Vec<usize> {
            self.share.group().iter().map(|worker| placement.local(&meta, worker).shape.numel()).collect()
        };
        let (mut gives, mut takes) = (Vec::new(), Vec::new());
        let (input, output) = match (kind, input) {
            (CollectiveKind::AllReduce(_), Some(own)) => (None, Some(self.taken_over(own)?)),
            (CollectiveKind::ReduceScatter(_), Some(own)) => {
                gives = lengths(to);
                let Placement::Sharded { axis, .. } = to else { return Err(ExecError::internal("not cut")) };
                let laid = match axis {
                    0 => self.laid_out(own)?,
                    _ => {
                        let mut pieces = Vec::new();
                        for worker in self.share.group().iter() {
                            let range = to.stretch_of(&meta.shape, worker).unwrap_or_default();
                            pieces.push(self.slice(own, axis as usize, &range)?);
                        }
                        self.copy(&pieces.iter().collect::<Vec<_>>())?
                    }
                };
                (Some(laid), Some(self.backend.allocate(&to.local(&meta, self.share.me))?))
            }
            (CollectiveKind::AllGather, Some(own)) => {
                takes = lengths(from);
                (Some(self.laid_out(own)?), Some(self.flat(meta.shape.numel())?))
            }
            (CollectiveKind::Broadcast { .. }, Some(own)) => (None, Some(self.laid_out(own)?)),
            (CollectiveKind::Broadcast { .. }, None) => (None, Some(self.backend.allocate(&meta)?)),
            (CollectiveKind::AllToAll, own) => {
                let mut pieces = Vec::new();
                for worker in self.share.group().iter() {
                    gives.push(self.share.piece(self.share.me, worker).map_or(0, |piece| piece.shape.numel()));
                    takes.push(self.share.piece(worker, self.share.me).map_or(0, |piece| piece.shape.numel()));
                    if let (Some(own), Some(piece)) = (own, self.share.piece(self.share.me, worker)) {
                        pieces.push(match &piece.range {
                            Some((axis, range)) => self.slice(own, *axis, range)?,
                            None => own.clone(),
                        });
                    }
                }
                let input = if pieces.is_empty() { None } else { Some(self.copy(&pieces.iter().collect::<Vec<_>>())?) };
                (input, Some(self.flat(takes.iter().sum())?))
            }
            (_, None) => return Err(ExecError::internal("a worker without its part")),
        };
        let staged = match self.devices {
            Some(_) => None,
            None => self.staged(kind, input.as_ref(), output.as_ref())?,
        };
        Ok(ReshardBuffers { kind, input, output, staged, gives, takes })
    }

    /// Copies for the others to read and write, unless these tensors can be reached.
    fn staged(
        &mut self,
        kind: CollectiveKind,
        input: Option<&B::Tensor>,
        output: Option<&B::Tensor>,
    ) -> Result<Option<[Vec<u8>; 2]>> {
        let unreachable =
            |tensor: &&B::Tensor| self.backend.bytes_of(tensor).is_none() && self.backend.meta(tensor).bytes() > 0;
        if input.filter(unreachable).is_none() && output.filter(unreachable).is_none() {
            return Ok(None);
        }
        // What others write over entirely need not be read.
        let is_given = match kind {
            CollectiveKind::AllReduce(_) => true,
            CollectiveKind::Broadcast { root } => self.share.group().rank_of(self.share.me) == Some(root),
            CollectiveKind::ReduceScatter(_) | CollectiveKind::AllGather | CollectiveKind::AllToAll => false,
        };
        let input = input.map_or(Ok(Vec::new()), |tensor| self.host_copy(tensor, true))?;
        let output = output.map_or(Ok(Vec::new()), |tensor| self.host_copy(tensor, is_given))?;
        Ok(Some([input, output]))
    }

    /// As many bytes as a tensor has, and those that it has if they are wanted.
    fn host_copy(&mut self, tensor: &B::Tensor, wanted: bool) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.backend.meta(tensor).bytes()];
        if wanted {
            self.backend.read(tensor, 0, host_range(&mut bytes))?;
        }
        Ok(bytes)
    }

    /// A tensor like `tensor` that holds `bytes`.
    fn device_copy(&mut self, tensor: &B::Tensor, mut bytes: Vec<u8>) -> Result<B::Tensor> {
        let mut copy = self.backend.allocate(&self.backend.meta(tensor))?;
        self.backend.write(&mut copy, 0, host_range(&mut bytes))?;
        Ok(copy)
    }

    /// Learns, without a word to the device, whether all ranks are about to do the same. They wait for each other here,
    /// and never in the device for one that does not come.
    fn agree(&self, group: &mut dyn Communicator) -> std::result::Result<(), CollectiveError> {
        let Reshard { meta, from, to, .. } = self.share.relocation;
        let mut hasher = DefaultHasher::new();
        (meta.shape.dims(), meta.dtype, from, to).hash(&mut hasher);
        let own = hasher.finish().to_ne_bytes();
        let mut all = vec![0; own.len() * group.size()];
        group.all_gather(&own, &mut all, &vec![own.len(); group.size()], DType::U8)?;
        match all.chunks_exact(own.len()).position(|other| other != own) {
            None => Ok(()),
            Some(peer) => Err(CollectiveError::Mismatch {
                operation: Operation::Barrier,
                rank: group.rank(),
                peer,
                expected: format!("a move from {from} to {to}"),
                found: "another move".into(),
            }),
        }
    }

    /// Gives the device its part of the move.
    fn enqueue(&mut self, link: &Arc<DeviceLink>, packed: &mut ReshardBuffers<B::Tensor>) -> Result<()> {
        let Meta { shape, dtype } = self.share.relocation.meta;
        if shape.numel() == 0 {
            return Ok(());
        }
        let reduces = matches!(packed.kind, CollectiveKind::AllReduce(_) | CollectiveKind::ReduceScatter(_));
        // NCCL has no 16-bit integers: they are combined as 32-bit ones, which wrap to the same.
        let wide = if reduces && dtype == DType::I16 { DType::I32 } else { dtype };
        if wide != dtype {
            for tensor in [&mut packed.input, &mut packed.output].into_iter().flatten() {
                *tensor = self.cast(tensor, wide)?;
            }
        }
        let ReshardBuffers { kind, input, output, gives, takes, .. } = &mut *packed;
        let group = self.share.group();
        let elements = shape.numel();
        let call = &mut |at: DeviceBuffers| {
            link.enqueue(|comm| {
                let DeviceBuffers { input, output, stream } = at;
                let stream = stream as usize as *mut _;
                // SAFETY: the backend gives addresses of tensors that are as large as the placements say, which all
                // ranks have compared, and keeps them until the stream has done the move.
                unsafe {
                    match *kind {
                        CollectiveKind::AllReduce(how) => comm.all_reduce(output, output, elements, wide, how, stream),
                        CollectiveKind::ReduceScatter(how) => {
                            comm.reduce_scatter(input, output, gives, wide, how, stream)
                        }
                        CollectiveKind::AllGather => comm.all_gather(input, output, takes, wide, stream),
                        CollectiveKind::Broadcast { root } => comm.broadcast(output, elements, root, wide, stream),
                        CollectiveKind::AllToAll => comm.all_to_all(input, output, gives, takes, wide, stream),
                    }
                }
            })
        };
        debug_assert_eq!(group.len(), link.size());
        let to_all: Arc<dyn Link> = link.clone();
        self.backend.communicate(&to_all, input.as_ref(), output.as_mut(), call)?;
        if wide != dtype
            && let Some(output) = &mut packed.output
        {
            *output = self.cast(output, dtype)?;
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        group: &mut dyn Communicator,
        packed: &mut ReshardBuffers<B::Tensor>,
    ) -> std::result::Result<(), CollectiveError> {
        let dtype = self.share.relocation.meta.dtype;
        let ReshardBuffers { kind, gives, takes, .. } = packed;
        let (input, output) = match &mut packed.staged {
            Some([input, output]) => (input.as_slice(), output.as_mut_slice()),
            None => (
                packed.input.as_ref().map_or(&[][..], |tensor| self.bytes(tensor)),
                packed.output.as_ref().map_or(&mut [][..], |tensor| self.bytes_mut(tensor)),
            ),
        };
        match *kind {
            CollectiveKind::AllReduce(reduce) => group.all_reduce(output, dtype, reduce),
            CollectiveKind::ReduceScatter(reduce) => group.reduce_scatter(input, output, gives, dtype, reduce),
            CollectiveKind::AllGather => group.all_gather(input, output, takes, dtype),
            CollectiveKind::Broadcast { root } => group.broadcast(output, root, dtype),
            CollectiveKind::AllToAll => group.all_to_all(input, output, gives, takes, dtype),
        }
    }

    fn unpack(&mut self, packed: ReshardBuffers<B::Tensor>) -> Result<Option<B::Tensor>> {
        let Reshard { meta, from, to, .. } = *self.share.relocation;
        let Some(mut output) = packed.output.filter(|_| to.workers().contains(self.share.me)) else { return Ok(None) };
        if let Some([_, bytes]) = packed.staged {
            output = self.device_copy(&output, bytes)?;
        }
        let local = to.local(&meta, self.share.me);
        let cut = match (packed.kind, from) {
            (CollectiveKind::AllGather | CollectiveKind::AllToAll, Placement::Sharded { axis, .. }) if axis > 0 => axis,
            _ => return self.reshape(&output, &local.shape).map(Some),
        };
        let mut pieces = Vec::new();
        let mut start = 0;
        for (worker, length) in self.share.group().iter().zip(&packed.takes) {
            let shape = match packed.kind {
                CollectiveKind::AllGather => Some(from.local(&meta, worker).shape),
                _ => self.share.piece(worker, self.share.me).map(|piece| piece.shape),
            };
            if let Some(shape) = shape {
                let piece = self.slice(&output, 0, &(start..start + length))?;
                pieces.push(self.reshape(&piece, &shape)?);
            }
            start += length;
        }
        let operands: Vec<Input<'_, B::Tensor>> = pieces.iter().map(Input::Tensor).collect();
        self.run(Op::Cat, &operands, &Attrs::Axis(cut)).map(Some)
    }

    fn run(&mut self, op: Op, operands: &[Input<'_, B::Tensor>], attrs: &Attrs) -> Result<B::Tensor> {
        self.run_last(op, operands, attrs, 0)
    }

    fn run_last(
        &mut self,
        op: Op,
        operands: &[Input<'_, B::Tensor>],
        attrs: &Attrs,
        last_use: u8,
    ) -> Result<B::Tensor> {
        let metas: Vec<InputMeta> = operands
            .iter()
            .map(|operand| match operand {
                Input::Tensor(tensor) => InputMeta::Tensor(self.backend.meta(tensor)),
                Input::Scalar(number) => InputMeta::Scalar(*number),
            })
            .collect();
        let out = infer(op, &metas, attrs).map_err(|error| ExecError::internal(error.to_string()))?;
        self.backend.execute(op, operands, attrs, &out, last_use)
    }

    fn cast(&mut self, tensor: &B::Tensor, dtype: DType) -> Result<B::Tensor> {
        self.run(Op::Cast, &[Input::Tensor(tensor)], &Attrs::DType(dtype))
    }

    fn slice(&mut self, tensor: &B::Tensor, axis: usize, range: &Range<usize>) -> Result<B::Tensor> {
        let shape = self.backend.meta(tensor).shape;
        self.run(Op::Slice, &[Input::Tensor(tensor)], &slice_along(&shape, axis, range))
    }

    fn reshape(&mut self, tensor: &B::Tensor, shape: &Shape) -> Result<B::Tensor> {
        self.run(Op::Reshape, &[Input::Tensor(tensor)], &Attrs::Shape(*shape))
    }

    /// Room for so many elements.
    fn flat(&mut self, elements: usize) -> Result<B::Tensor> {
        self.backend.allocate(&Meta::new(line(elements)?, self.share.relocation.meta.dtype))
    }

    /// The elements of some tensors, one behind the other, in memory that nobody else knows.
    fn copy(&mut self, tensors: &[&B::Tensor]) -> Result<B::Tensor> {
        let mut lines = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let elements = self.backend.meta(tensor).shape.numel();
            lines.push(self.reshape(tensor, &line(elements)?)?);
        }
        let operands: Vec<Input<'_, B::Tensor>> = lines.iter().map(Input::Tensor).collect();
        self.run(Op::Cat, &operands, &Attrs::Axis(0))
    }

    /// A part that is not used again, in memory that nobody else knows: where it is, if that is so.
    fn taken_over(&mut self, part: &B::Tensor) -> Result<B::Tensor> {
        let Meta { shape, dtype } = self.backend.meta(part);
        if shape.rank() == 0 {
            return self.copy(&[part]);
        }
        // Of its elements none is replaced: a copy, unless the memory may be taken.
        let none = self.backend.allocate(&Meta::new(shape.with_dim(0, 0), dtype))?;
        let operands = [Input::Tensor(part), Input::Tensor(&none)];
        self.run_last(Op::SliceScatter, &operands, &slice_along(&shape, 0, &(0..0)), 1)
    }

    /// A tensor whose elements lie in row-major order without gaps: the same one if they do.
    fn laid_out(&mut self, tensor: &B::Tensor) -> Result<B::Tensor> {
        if self.backend.is_contiguous(tensor) { Ok(tensor.clone()) } else { self.copy(&[tensor]) }
    }

    fn bytes<'t>(&self, tensor: &'t B::Tensor) -> &'t [u8] {
        let Some((start, len)) = self.backend.bytes_of(tensor) else { return &[] };
        // SAFETY: the memory is the tensor's, which lives for 't; tensors do not change once they are made.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    #[expect(clippy::mut_from_ref, reason = "a tensor is a handle of memory elsewhere")]
    fn bytes_mut<'t>(&self, tensor: &'t B::Tensor) -> &'t mut [u8] {
        let Some((start, len)) = self.backend.bytes_of(tensor) else { return &mut [] };
        // SAFETY: the memory is the tensor's, which lives for 't. It is new, and no other reference to it is made; but
        // for a broadcast's root, whose buffer a communicator only reads, as its contract says.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

/// A part of what one rank has that another gets: its shape, and the stretch of an axis that it is.
struct Piece {
    shape: Shape,
    range: Option<(usize, Range<usize>)>,
}

fn host_range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: it is used for one transfer, while the bytes are borrowed; nobody else looks at them.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

fn line(elements: usize) -> Result<Shape> {
    Shape::new(&[elements]).map_err(|error| ExecError::internal(error.to_string()))
}

const fn reduce(reduce_op: ReduceOp) -> Reduce {
    match reduce_op {
        ReduceOp::Sum => Reduce::Sum,
        ReduceOp::Prod => Reduce::Prod,
        ReduceOp::Max => Reduce::Max,
        ReduceOp::Min => Reduce::Min,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_collectives::local::LocalGroup;
    use gt_cpu::{CpuBackend, CpuOptions};

    fn host(numbers: &mut [f32]) -> HostRange {
        let start = NonNull::new(numbers.as_mut_ptr().cast()).unwrap();
        // SAFETY: the numbers outlive the call this is made for, and nobody else looks at them meanwhile.
        unsafe { HostRange::new(start, size_of_val(numbers)) }
    }

    /// A device whose memory the processor does not reach.
    struct Apart(CpuBackend);

    impl Backend for Apart {
        type Tensor = <CpuBackend as Backend>::Tensor;

        fn execute(
            &mut self,
            op: Op,
            inputs: &[Input<'_, Self::Tensor>],
            attrs: &Attrs,
            out: &Meta,
            last_use: u8,
        ) -> Result<Self::Tensor> {
            self.0.execute(op, inputs, attrs, out, last_use)
        }
        fn allocate(&mut self, meta: &Meta) -> Result<Self::Tensor> {
            self.0.allocate(meta)
        }
        fn write(&mut self, tensor: &mut Self::Tensor, offset_bytes: usize, src: HostRange) -> Result<()> {
            self.0.write(tensor, offset_bytes, src)
        }
        fn read(&mut self, tensor: &Self::Tensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
            self.0.read(tensor, offset_bytes, dst)
        }
        fn bytes_of(&self, _: &Self::Tensor) -> Option<(NonNull<u8>, usize)> {
            None
        }
        fn meta(&self, tensor: &Self::Tensor) -> Meta {
            self.0.meta(tensor)
        }
        fn charge(&mut self, usage: &std::sync::Arc<gt_backend::MemoryUsage>) {
            self.0.charge(usage);
        }
        fn held(&self, usage: &gt_backend::MemoryUsage) -> usize {
            self.0.held(usage)
        }
        fn memory(&self) -> gt_backend::MemoryStats {
            self.0.memory()
        }
        fn trim(&mut self) {
            self.0.trim();
        }
    }

    /// What every worker of both placements has afterwards, after what was counted was compared with what was planned.
    /// Every other worker is [`Apart`].
    fn moved(meta: Meta, from: Placement, to: Placement, part: impl Fn(usize, usize) -> f32 + Sync) -> Vec<Vec<f32>> {
        let relocation = Reshard { out: 2, input: 1, meta, from, to };
        let workers = from.workers().with(to.workers());
        let ranks = LocalGroup::threads(workers.len()).unwrap();
        let part = &part;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (me, mut rank) in workers.iter().zip(ranks) {
                let work = move || {
                    let options = CpuOptions { threads: 1, memory_bytes_limit: 1 << 20, ..CpuOptions::default() };
                    let backend = CpuBackend::new(options);
                    match me % 2 {
                        0 => of_one(backend, &mut rank, me, &relocation, part),
                        _ => of_one(Apart(backend), &mut rank, me, &relocation, part),
                    }
                };
                threads.push(scope.spawn(work));
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// What worker `me` has afterwards.
    fn of_one<B: Backend>(
        mut backend: B,
        rank: &mut dyn Communicator,
        me: usize,
        relocation: &Reshard,
        part: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let Reshard { meta, from, to, .. } = *relocation;
        let input = from.workers().contains(me).then(|| {
            let local = from.local(&meta, me);
            let mut numbers: Vec<f32> = (0..local.shape.numel()).map(|i| part(me, i)).collect();
            let mut tensor = backend.allocate(&local).unwrap();
            backend.write(&mut tensor, 0, host(&mut numbers)).unwrap();
            tensor
        });
        let before = rank.stats();
        let made = reshard(&mut backend, Routes::by_host(rank), me, 2, relocation, input.as_ref().map(Ok)).unwrap();
        let (operation, bytes) = traffic(relocation, me).unwrap();
        let after = rank.stats();
        assert_eq!(after.calls(operation) - before.calls(operation), 1, "{from} to {to}");
        assert_eq!(after.sent_bytes - before.sent_bytes, bytes, "{operation}, {from} to {to}, worker {me}");
        assert_eq!(made.is_some(), to.workers().contains(me));
        made.map_or_else(Vec::new, |tensor| {
            let mut numbers = vec![0.0; backend.meta(&tensor).shape.numel()];
            backend.read(&tensor, 0, host(&mut numbers)).unwrap();
            numbers
        })
    }

    /// The elements of a tensor that counts from 0, as `placement` gives them to `worker`.
    fn counted(meta: &Meta, placement: &Placement, worker: usize) -> Vec<f32> {
        let [rows, columns] = *meta.shape.dims() else { return Vec::new() };
        let mut stretches = [0..rows, 0..columns];
        if let (Placement::Sharded { axis, .. }, Some(stretch)) = (placement, placement.stretch_of(&meta.shape, worker))
        {
            stretches[*axis as usize] = stretch;
        }
        let [down, across] = stretches;
        down.flat_map(|row| across.clone().map(move |column| (row * columns + column) as f32)).collect()
    }

    #[test]
    fn a_tensor_gets_from_any_placement_to_any_other_and_what_is_sent_is_what_was_planned() {
        let meta = Meta::new(Shape::new(&[7, 5]).unwrap(), DType::F32);
        let set = Workers::from_bits;
        let cut = |bits, axis| Placement::sharded(set(bits), axis, 1, &meta.shape);
        let copies = |bits| Placement::Replicated { workers: set(bits) };
        let all =
            [cut(0b111, 0), cut(0b111, 1), cut(0b011, 0), cut(0b1100, 1), copies(0b111), copies(0b1010), copies(1)];
        for from in all {
            for to in all {
                let found = moved(meta, from, to, |me, i| counted(&meta, &from, me)[i]);
                for (worker, found) in from.workers().with(to.workers()).iter().zip(found) {
                    let wanted = if to.workers().contains(worker) { counted(&meta, &to, worker) } else { Vec::new() };
                    assert_eq!(found, wanted, "{from} to {to}, worker {worker}");
                }
            }
        }
    }

    #[test]
    fn parts_are_joined_where_they_are_unless_somebody_else_sees_them() {
        let meta = Meta::new(Shape::new(&[7, 5]).unwrap(), DType::F32);
        let workers = Workers::first_of(2);
        let (from, to) = (Placement::Partial { workers, reduce_op: ReduceOp::Sum }, Placement::Replicated { workers });
        let relocation = Reshard { out: 2, input: 1, meta, from, to };
        std::thread::scope(|scope| {
            for (me, mut rank) in LocalGroup::threads(2).unwrap().into_iter().enumerate() {
                scope.spawn(move || {
                    let options = CpuOptions { threads: 1, memory_bytes_limit: 1 << 20, ..CpuOptions::default() };
                    let mut backend = CpuBackend::new(options);
                    for seen in [false, true] {
                        let mut part = backend.allocate(&meta).unwrap();
                        backend.write(&mut part, 0, host(&mut [3.0; 35])).unwrap();
                        let other = seen.then(|| part.clone());
                        let sum =
                            reshard(&mut backend, Routes::by_host(&mut rank), me, 2, &relocation, Some(Ok(&part)));
                        let sum = sum.unwrap().unwrap();
                        assert_eq!(backend.bytes_of(&sum) == backend.bytes_of(&part), !seen);
                        for (tensor, number) in std::iter::once((&sum, 6.0)).chain(other.as_ref().map(|own| (own, 3.0)))
                        {
                            let mut numbers = [0.0; 35];
                            backend.read(tensor, 0, host(&mut numbers)).unwrap();
                            assert_eq!(numbers, [number; 35]);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn parts_are_joined_into_copies_or_shards() {
        let meta = Meta::new(Shape::new(&[7, 5]).unwrap(), DType::F32);
        let workers = Workers::first_of(3);
        let from = Placement::Partial { workers, reduce_op: ReduceOp::Sum };
        let shards = [0, 1].map(|axis| Placement::sharded(workers, axis, 1, &meta.shape));
        for to in [Placement::Replicated { workers }, shards[0], shards[1]] {
            let found = moved(meta, from, to, |me, i| (i * (me + 1)) as f32);
            for (worker, found) in workers.iter().zip(found) {
                let wanted: Vec<f32> = counted(&meta, &to, worker).iter().map(|x| x * 6.0).collect();
                assert_eq!(found, wanted, "{to}, worker {worker}");
            }
        }
    }
}
