//! A worker's part in resharding a tensor, from one placement to another, as a collective.
//!
//! The placements before and after decide the collective: partial to replicated is an all-reduce, partial to sharded a
//! reduce-scatter, sharded to replicated an all-gather, one copy to several a broadcast, and everything else an
//! all-to-all. A worker whose operand is poisoned calls a barrier instead; every rank then notices the mismatch
//! ([`gt_collectives::Communicator`]), and the ranks exchange their failures.

use super::device_link::{DeviceLink, Routes};
use super::exec_failure::{caught, failure, worker_lost};
use super::shared_replica::{Part, SharedReplicas, show};
use gt_backend::{Backend, DeviceBuffers, ExecError, HostRange, Input, Link};
use gt_collectives::{CollectiveError, Communicator, JointResult, Operation, Reduce};
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

/// Reshards a tensor with the other ranks of the group. `input` is what worker `me` holds of the tensor, or the failure
/// that poisoned it. There is no result on a worker outside the new placement. A partial input is consumed: the result
/// may take its memory.
///
/// # Errors
/// The failure, the same on every rank; but an error after the exchange fails this rank alone.
pub fn reshard_tensor<B: Backend>(
    backend: &mut B,
    routes: Routes<'_>,
    me: usize,
    origin: TensorId,
    reshard: &Reshard,
    input: Option<std::result::Result<&B::Tensor, Failure>>,
) -> std::result::Result<Option<B::Tensor>, Failure> {
    let blame = |error| failure(error, origin, None);
    let Routes { group, devices, replicas } = routes;
    let share = Share { reshard, me };
    let mut mover = Mover { backend, share, devices };
    let input = input.transpose();
    if let Some(maker) = replicas.and_then(|replicas| share.maker(replicas)) {
        let part = input.and_then(|input| caught(|| mover.part(maker, input)).map_err(blame));
        let made = match &part {
            Ok(part) => mover.make_together(group, maker, part),
            Err(_) => group.barrier().map(|()| None),
        };
        return match (made, part.err()) {
            (Ok(made), None) => {
                made.map(|made| caught(|| mover.reshape(&made, &reshard.meta.shape)).map_err(blame)).transpose()
            }
            (Ok(_), Some(failure)) => Err(failure),
            (Err(error), failure) => Err(why_not_moved(group, &error, failure, reshard, origin)),
        };
    }
    let mut packed = input.and_then(|input| caught(|| mover.pack(input)).map_err(blame));
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
        (Err(error), packed) => Err(why_not_moved(group, &error, packed.err(), reshard, origin)),
    }
}

/// The failure of a reshard whose collective failed. `own` is the failure of this rank, if it has one.
fn why_not_moved(
    group: &mut dyn Communicator,
    error: &CollectiveError,
    own: Option<Failure>,
    reshard: &Reshard,
    origin: TensorId,
) -> Failure {
    if let CollectiveError::Mismatch { .. } = error {
        return ask_why(group, own, origin);
    }
    tracing::warn!(target: "gtd::worker", origin, %error, "a tensor could not be moved");
    own.unwrap_or(Failure { fault: lost_worker(reshard, error), instruction: origin, op: None })
}

/// The loss of the worker that made the collective fail; an internal fault if no worker did.
fn lost_worker(reshard: &Reshard, error: &CollectiveError) -> Fault {
    let rank = match error {
        CollectiveError::Died { peer, .. } | CollectiveError::Left { peer, .. } => *peer,
        CollectiveError::Aborted { by, .. } | CollectiveError::TimedOut { by, .. } => *by,
        _ => return Fault::Internal,
    };
    let group = reshard.from.workers().with(reshard.to.workers());
    group.iter().nth(rank).map_or(Fault::Internal, worker_lost)
}

/// Gathers the failures of all ranks, and returns that of the lowest rank that has one.
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

/// The collective that reshards a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CollectiveKind {
    AllReduce(Reduce),
    ReduceScatter(Reduce),
    AllGather,
    Broadcast { root: usize },
    AllToAll,
}

/// The contiguous buffers of a collective on one rank, with the counts of elements by rank.
struct ReshardBuffers<T> {
    kind: CollectiveKind,
    input: Option<T>,
    output: Option<T>,
    /// Copies of `input` and `output` in host memory, if those lie where the host cannot reach them.
    staged: Option<[Vec<u8>; 2]>,
    send_counts: Vec<usize>,
    recv_counts: Vec<usize>,
}

/// The collective in which `worker` takes part, and the bytes that it sends, counted as in
/// [`gt_collectives::CommStats`].
pub fn traffic(reshard: &Reshard, worker: usize) -> Option<(Operation, u64)> {
    let share = Share { reshard, me: worker };
    let meta = &reshard.meta;
    let (group, whole) = (share.group(), meta.bytes() as u64);
    let others = group.len() as u64 - 1;
    let local = |placement: &Placement| placement.local(meta, worker).bytes() as u64;
    Some(match share.kind().ok()? {
        CollectiveKind::AllReduce(_) => (Operation::AllReduce, 2 * others * whole / group.len() as u64),
        CollectiveKind::ReduceScatter(_) => (Operation::ReduceScatter, whole - local(&reshard.to)),
        CollectiveKind::AllGather => (Operation::AllGather, others * local(&reshard.from)),
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

/// A worker's part in a reshard.
#[derive(Clone, Copy)]
struct Share<'a> {
    reshard: &'a Reshard,
    me: usize,
}

impl Share<'_> {
    fn group(&self) -> Workers {
        self.reshard.from.workers().with(self.reshard.to.workers())
    }

    fn kind(&self) -> Result<CollectiveKind> {
        let Reshard { from, to, .. } = self.reshard;
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
            (Placement::Mesh { .. }, _) | (_, Placement::Mesh { .. }) => {
                return Err(ExecError::internal("a mesh is resharded by its rows or columns"));
            }
            (Placement::Sharded { .. }, Placement::Replicated { .. }) if same => CollectiveKind::AllGather,
            (Placement::Replicated { workers }, Placement::Replicated { .. }) if workers.len() == 1 => {
                let root = workers.first().and_then(|worker| self.group().rank_of(worker));
                CollectiveKind::Broadcast { root: root.unwrap_or_default() }
            }
            _ => CollectiveKind::AllToAll,
        })
    }

    /// The rank that makes the replica which the workers then hold together; none if the new placement has no replicas,
    /// or only at other workers than the old one.
    fn maker(&self, replicas: &mut SharedReplicas) -> Option<usize> {
        let Reshard { from, to, meta, .. } = self.reshard;
        let Placement::Replicated { workers } = to else { return None };
        let group = self.group();
        let mut next = || {
            let ranks: Vec<usize> = workers.iter().filter_map(|worker| group.rank_of(worker)).collect();
            replicas.next_maker(&ranks, meta.bytes() as u64)
        };
        match from {
            _ if workers.len() < 2 => None,
            Placement::Replicated { workers: holders } if workers.contains_all(*holders) => {
                holders.first().and_then(|worker| group.rank_of(worker))
            }
            Placement::Sharded { .. } => next(),
            Placement::Partial { workers: holders, .. } if holders == workers => next(),
            _ => None,
        }
    }

    /// The piece that `giver` sends to `taker`; none if `taker` needs none, or gets it from another rank.
    fn piece(&self, giver: usize, taker: usize) -> Option<Piece> {
        let Reshard { meta, from, to, .. } = self.reshard;
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
        let Some(wanted) = to.shard_of(&meta.shape, taker) else {
            return Some(Piece { shape: own, range: None });
        };
        let Placement::Sharded { axis, .. } = to else { return None };
        let axis = *axis as usize;
        let range = match (from, from.shard_of(&meta.shape, giver)) {
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

/// A worker's part in a reshard, and the backend that executes it.
struct Mover<'a, B> {
    backend: &'a mut B,
    share: Share<'a>,
    devices: Option<&'a Arc<DeviceLink>>,
}

impl<B: Backend> Mover<'_, B> {
    fn pack(&mut self, input: Option<&B::Tensor>) -> Result<ReshardBuffers<B::Tensor>> {
        let Reshard { meta, from, to, .. } = *self.share.reshard;
        let kind = self.share.kind()?;
        if let (Some(own), true) = (input, self.devices.is_some()) {
            // The other ranks could not see an error that this device finds later.
            self.backend.wait_for_checks(own)?;
        }
        let lengths = |placement: Placement| -> Vec<usize> {
            self.share.group().iter().map(|worker| placement.local(&meta, worker).shape.numel()).collect()
        };
        let (mut send_counts, mut recv_counts) = (Vec::new(), Vec::new());
        let (input, output) = match (kind, input) {
            (CollectiveKind::AllReduce(_), Some(own)) => (None, Some(self.taken_over(own)?)),
            (CollectiveKind::ReduceScatter(_), Some(own)) => {
                send_counts = lengths(to);
                let Placement::Sharded { axis, .. } = to else { return Err(ExecError::internal("not cut")) };
                let laid = match axis {
                    0 => self.contiguous(own)?,
                    _ => {
                        let mut pieces = Vec::new();
                        for worker in self.share.group().iter() {
                            let range = to.shard_of(&meta.shape, worker).unwrap_or_default();
                            pieces.push(self.slice(own, axis as usize, &range)?);
                        }
                        self.copy(&pieces.iter().collect::<Vec<_>>())?
                    }
                };
                (Some(laid), Some(self.backend.allocate(&to.local(&meta, self.share.me))?))
            }
            (CollectiveKind::AllGather, Some(own)) => {
                recv_counts = lengths(from);
                (Some(self.contiguous(own)?), Some(self.flat(meta.shape.numel())?))
            }
            (CollectiveKind::Broadcast { .. }, Some(own)) => (None, Some(self.contiguous(own)?)),
            (CollectiveKind::Broadcast { .. }, None) => (None, Some(self.backend.allocate(&meta)?)),
            (CollectiveKind::AllToAll, own) => {
                let mut pieces = Vec::new();
                for worker in self.share.group().iter() {
                    send_counts.push(self.share.piece(self.share.me, worker).map_or(0, |piece| piece.shape.numel()));
                    recv_counts.push(self.share.piece(worker, self.share.me).map_or(0, |piece| piece.shape.numel()));
                    if let (Some(own), Some(piece)) = (own, self.share.piece(self.share.me, worker)) {
                        pieces.push(match &piece.range {
                            Some((axis, range)) => self.slice(own, *axis, range)?,
                            None => own.clone(),
                        });
                    }
                }
                let input = if pieces.is_empty() { None } else { Some(self.copy(&pieces.iter().collect::<Vec<_>>())?) };
                (input, Some(self.flat(recv_counts.iter().sum())?))
            }
            (_, None) => return Err(ExecError::internal("a worker without its part")),
        };
        let staged = match self.devices {
            Some(_) => None,
            None => self.staged(kind, input.as_ref(), output.as_ref())?,
        };
        Ok(ReshardBuffers { kind, input, output, staged, send_counts, recv_counts })
    }

    /// This worker's part of a replica that rank `maker` makes. A sum takes the memory of the maker's summand.
    fn part(&mut self, maker: usize, input: Option<&B::Tensor>) -> Result<Part<B::Tensor>> {
        let Reshard { meta, from, .. } = *self.share.reshard;
        let is_maker = self.share.group().rank_of(self.share.me) == Some(maker);
        Ok(match (from, input) {
            (Placement::Replicated { .. }, Some(own)) if is_maker => {
                Part { operand: None, result: Some(self.contiguous(own)?) }
            }
            (Placement::Replicated { .. }, _) => Part { operand: None, result: None },
            (Placement::Partial { .. }, Some(own)) if is_maker => {
                let own = self.taken_over(own)?;
                Part { operand: Some(own.clone()), result: Some(own) }
            }
            (Placement::Partial { .. }, None) => return Err(ExecError::internal("a worker without its part")),
            (_, own) => {
                let operand = own.map(|own| self.contiguous(own)).transpose()?;
                let is_allocated = is_maker && !matches!(from, Placement::Partial { .. });
                let result = if is_allocated { Some(self.backend.allocate(&meta)?) } else { None };
                Part { operand, result }
            }
        })
    }

    /// Makes a replica with the other ranks. Returns this worker's handle of it, if it is to have one.
    fn make_together(
        &mut self,
        group: &mut dyn Communicator,
        maker: usize,
        part: &Part<B::Tensor>,
    ) -> std::result::Result<Option<B::Tensor>, CollectiveError> {
        let Reshard { meta, from, to, .. } = *self.share.reshard;
        let parts = show(group, part)?;
        // A worker that gives up makes the others give up, too, instead of waiting at the barrier.
        let defect = |group: &mut dyn Communicator, why: &str| {
            group.abort();
            CollectiveError::Setup { what: "make a replica together".into(), why: why.into() }
        };
        let Some(replica) = parts.get(maker).and_then(|part| part.result.clone()) else {
            return Err(defect(group, "its maker has none"));
        };
        let Some((start, len)) = self.backend.bytes_of(&replica).filter(|(_, len)| *len == meta.bytes()) else {
            return Err(defect(group, "its memory is out of reach"));
        };
        // SAFETY: `bytes_of` names initialized memory of the replica, which the handle keeps. Its maker took or
        // allocated it for this reshard, and nobody reads it before the barrier below but to write it by these calls.
        let mut result = unsafe { JointResult::new(start.as_ptr(), len) };
        match from {
            Placement::Partial { reduce_op, .. } => {
                let operands: Vec<_> =
                    parts.iter().filter_map(|part| self.backend.bytes_of(part.operand.as_ref()?)).collect();
                if operands.len() != parts.len() || operands.iter().any(|(_, other)| *other != len) {
                    return Err(defect(group, "a worker has another part"));
                }
                let operands: Vec<*const u8> = operands.iter().map(|(start, _)| start.as_ptr().cast_const()).collect();
                // SAFETY: all operands have the length of the result, and `parts` keeps their memory, of which only
                // the maker's is written.
                unsafe { result.reduce_share(&operands, group.rank(), meta.dtype, reduce(reduce_op)) };
            }
            Placement::Sharded { axis, .. } => {
                if let (Some(own), Some(range)) = (&part.operand, from.shard_of(&meta.shape, self.share.me)) {
                    let dims = meta.shape.dims();
                    let inner = dims[usize::from(axis) + 1..].iter().product::<usize>() * meta.dtype.size();
                    let columns = range.start * inner..range.end * inner;
                    result.write_columns(self.bytes(own), dims[usize::from(axis)] * inner, columns);
                }
            }
            _ => {}
        }
        // The sum's operands are dropped before the barrier: afterwards only the workers that hold the replica have it.
        drop(parts);
        if !matches!(from, Placement::Replicated { .. }) {
            group.barrier()?;
        }
        Ok(to.workers().contains(self.share.me).then_some(replica))
    }

    /// Host copies of the buffers, unless the host reaches them all.
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
        // An output that is overwritten entirely need not be copied to the host.
        let is_given = match kind {
            CollectiveKind::AllReduce(_) => true,
            CollectiveKind::Broadcast { root } => self.share.group().rank_of(self.share.me) == Some(root),
            CollectiveKind::ReduceScatter(_) | CollectiveKind::AllGather | CollectiveKind::AllToAll => false,
        };
        let input = input.map_or(Ok(Vec::new()), |tensor| self.host_copy(tensor, true))?;
        let output = output.map_or(Ok(Vec::new()), |tensor| self.host_copy(tensor, is_given))?;
        Ok(Some([input, output]))
    }

    /// A host buffer of a tensor's length, which holds the tensor's bytes if they are `wanted`.
    fn host_copy(&mut self, tensor: &B::Tensor, wanted: bool) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.backend.meta(tensor).bytes()];
        if wanted {
            self.backend.read(tensor, 0, host_range(&mut bytes))?;
        }
        Ok(bytes)
    }

    /// A new tensor of the shape and dtype of `tensor` that holds `bytes`.
    fn device_copy(&mut self, tensor: &B::Tensor, mut bytes: Vec<u8>) -> Result<B::Tensor> {
        let mut copy = self.backend.allocate(&self.backend.meta(tensor))?;
        self.backend.write(&mut copy, 0, host_range(&mut bytes))?;
        Ok(copy)
    }

    /// Compares the reshard with that of all ranks, on the host. The devices then never wait for a rank that does not
    /// come.
    fn agree(&self, group: &mut dyn Communicator) -> std::result::Result<(), CollectiveError> {
        let Reshard { meta, from, to, .. } = self.share.reshard;
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

    /// Enqueues the collective on the device.
    fn enqueue(&mut self, link: &Arc<DeviceLink>, packed: &mut ReshardBuffers<B::Tensor>) -> Result<()> {
        let Meta { shape, dtype } = self.share.reshard.meta;
        if shape.numel() == 0 {
            return Ok(());
        }
        let reduces = matches!(packed.kind, CollectiveKind::AllReduce(_) | CollectiveKind::ReduceScatter(_));
        // NCCL has no 16-bit integers: they are reduced as 32-bit ones, whose lower halves are the same.
        let wide = if reduces && dtype == DType::I16 { DType::I32 } else { dtype };
        if wide != dtype {
            for tensor in [&mut packed.input, &mut packed.output].into_iter().flatten() {
                *tensor = self.cast(tensor, wide)?;
            }
        }
        let ReshardBuffers { kind, input, output, send_counts, recv_counts, .. } = &mut *packed;
        let group = self.share.group();
        let elements = shape.numel();
        let call = &mut |at: DeviceBuffers| {
            link.enqueue(|comm| {
                let DeviceBuffers { input, output, stream } = at;
                let stream = stream as usize as *mut _;
                // SAFETY: `pack` made both buffers with the lengths that the placements give, all ranks compared
                // those in `agree`, and `Backend::communicate` keeps the buffers until the stream has passed the
                // collective.
                unsafe {
                    match *kind {
                        CollectiveKind::AllReduce(how) => comm.all_reduce(output, output, elements, wide, how, stream),
                        CollectiveKind::ReduceScatter(how) => {
                            comm.reduce_scatter(input, output, send_counts, wide, how, stream)
                        }
                        CollectiveKind::AllGather => comm.all_gather(input, output, recv_counts, wide, stream),
                        CollectiveKind::Broadcast { root } => comm.broadcast(output, elements, root, wide, stream),
                        CollectiveKind::AllToAll => {
                            comm.all_to_all(input, output, send_counts, recv_counts, wide, stream)
                        }
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
        let dtype = self.share.reshard.meta.dtype;
        let ReshardBuffers { kind, send_counts, recv_counts, .. } = packed;
        let (input, output) = match &mut packed.staged {
            Some([input, output]) => (input.as_slice(), output.as_mut_slice()),
            None => (
                packed.input.as_ref().map_or(&[][..], |tensor| self.bytes(tensor)),
                packed.output.as_ref().map_or(&mut [][..], |tensor| self.bytes_mut(tensor)),
            ),
        };
        match *kind {
            CollectiveKind::AllReduce(reduce) => group.all_reduce(output, dtype, reduce),
            CollectiveKind::ReduceScatter(reduce) => group.reduce_scatter(input, output, send_counts, dtype, reduce),
            CollectiveKind::AllGather => group.all_gather(input, output, recv_counts, dtype),
            CollectiveKind::Broadcast { root } => group.broadcast(output, root, dtype),
            CollectiveKind::AllToAll => group.all_to_all(input, output, send_counts, recv_counts, dtype),
        }
    }

    fn unpack(&mut self, packed: ReshardBuffers<B::Tensor>) -> Result<Option<B::Tensor>> {
        let Reshard { meta, from, to, .. } = *self.share.reshard;
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
        for (worker, length) in self.share.group().iter().zip(&packed.recv_counts) {
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

    /// An uninitialized one-dimensional tensor of `elements` elements.
    fn flat(&mut self, elements: usize) -> Result<B::Tensor> {
        self.backend.allocate(&Meta::new(line(elements)?, self.share.reshard.meta.dtype))
    }

    /// The elements of some tensors, concatenated in new memory.
    fn copy(&mut self, tensors: &[&B::Tensor]) -> Result<B::Tensor> {
        let mut lines = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let elements = self.backend.meta(tensor).shape.numel();
            lines.push(self.reshape(tensor, &line(elements)?)?);
        }
        let operands: Vec<Input<'_, B::Tensor>> = lines.iter().map(Input::Tensor).collect();
        self.run(Op::Cat, &operands, &Attrs::Axis(0))
    }

    /// The elements of a partial tensor that is not used again, in memory that no other tensor shares: the tensor's own
    /// memory if no other tensor shares that, otherwise a copy.
    fn taken_over(&mut self, part: &B::Tensor) -> Result<B::Tensor> {
        let Meta { shape, dtype } = self.backend.meta(part);
        if shape.rank() == 0 {
            return self.copy(&[part]);
        }
        // Scattering an empty slice copies the tensor, unless the result can take its memory.
        let none = self.backend.allocate(&Meta::new(shape.with_dim(0, 0), dtype))?;
        let operands = [Input::Tensor(part), Input::Tensor(&none)];
        self.run_last(Op::SliceScatter, &operands, &slice_along(&shape, 0, &(0..0)), 1)
    }

    /// A contiguous tensor of the same elements: `tensor` itself if it is contiguous, otherwise a copy.
    fn contiguous(&mut self, tensor: &B::Tensor) -> Result<B::Tensor> {
        if self.backend.is_contiguous(tensor) {
            return Ok(tensor.clone());
        }
        // Most reshapes of such a tensor copy it.
        let flat = self.reshape(tensor, &line(self.backend.meta(tensor).shape.numel())?)?;
        if self.backend.is_contiguous(&flat) { Ok(flat) } else { self.copy(&[&flat]) }
    }

    fn bytes<'t>(&self, tensor: &'t B::Tensor) -> &'t [u8] {
        let Some((start, len)) = self.backend.bytes_of(tensor) else { return &[] };
        // SAFETY: `bytes_of` names initialized memory of the tensor, which lives for 't; a tensor never changes once it
        // is made.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    #[expect(clippy::mut_from_ref, reason = "a tensor is a handle of memory elsewhere")]
    fn bytes_mut<'t>(&self, tensor: &'t B::Tensor) -> &'t mut [u8] {
        let Some((start, len)) = self.backend.bytes_of(tensor) else { return &mut [] };
        // SAFETY: `bytes_of` names initialized memory of the tensor, which lives for 't. `pack` made it for this
        // collective, so no other reference to it exists; the exception is the root's buffer of a broadcast, which
        // communicators only read.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

/// The part of one rank's shard that another rank gets: its shape, and its range along an axis.
struct Piece {
    shape: Shape,
    range: Option<(usize, Range<usize>)>,
}

fn host_range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: the callers pass the range to one synchronous transfer while they own `bytes`, so it stays allocated and
    // nothing else accesses it.
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
    use gt_collectives::local::{LocalCommunicator, LocalGroup};
    use gt_cpu::{CpuBackend, CpuOptions};

    type CpuTensor = <CpuBackend as Backend>::Tensor;

    fn host(numbers: &mut [f32]) -> HostRange {
        let start = NonNull::new(numbers.as_mut_ptr().cast()).unwrap();
        // SAFETY: the callers pass the range to one synchronous transfer while they borrow `numbers` mutably.
        unsafe { HostRange::new(start, size_of_val(numbers)) }
    }

    /// A device whose memory the host does not reach.
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
        fn cancelled_by(&mut self, cancellation: &std::sync::Arc<gt_backend::Cancellation>, label: u64) {
            self.0.cancelled_by(cancellation, label);
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

    /// The local numbers of every worker of both placements after a reshard. Every other worker is [`Apart`]. Checks
    /// that [`traffic`] predicted the counted bytes.
    fn moved(meta: Meta, from: Placement, to: Placement, part: impl Fn(usize, usize) -> f32 + Sync) -> Vec<Vec<f32>> {
        let reshard = Reshard { out: 2, input: 1, meta, from, to };
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
                        0 => on_worker(backend, &mut rank, me, &reshard, part),
                        _ => on_worker(Apart(backend), &mut rank, me, &reshard, part),
                    }
                };
                threads.push(scope.spawn(work));
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The local numbers of worker `me` after a reshard.
    fn on_worker<B: Backend>(
        mut backend: B,
        rank: &mut dyn Communicator,
        me: usize,
        reshard: &Reshard,
        part: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let Reshard { meta, from, to, .. } = *reshard;
        let input = from.workers().contains(me).then(|| {
            let local = from.local(&meta, me);
            let mut numbers: Vec<f32> = (0..local.shape.numel()).map(|i| part(me, i)).collect();
            let mut tensor = backend.allocate(&local).unwrap();
            backend.write(&mut tensor, 0, host(&mut numbers)).unwrap();
            tensor
        });
        let before = rank.stats();
        let made = reshard_tensor(&mut backend, Routes::by_host(rank), me, 2, reshard, input.as_ref().map(Ok)).unwrap();
        let (operation, bytes) = traffic(reshard, me).unwrap();
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

    /// The elements that `placement` gives `worker`, of a tensor that counts from 0.
    fn counted(meta: &Meta, placement: &Placement, worker: usize) -> Vec<f32> {
        let [rows, columns] = *meta.shape.dims() else { return Vec::new() };
        let mut stretches = [0..rows, 0..columns];
        if let (Placement::Sharded { axis, .. }, Some(stretch)) = (placement, placement.shard_of(&meta.shape, worker)) {
            stretches[*axis as usize] = stretch;
        }
        let [down, across] = stretches;
        down.flat_map(|row| across.clone().map(move |column| (row * columns + column) as f32)).collect()
    }

    #[test]
    fn a_tensor_is_resharded_from_any_placement_to_any_other_with_the_predicted_traffic() {
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
    fn partial_tensors_are_reduced_in_place_unless_another_handle_shares_them() {
        let meta = Meta::new(Shape::new(&[7, 5]).unwrap(), DType::F32);
        let workers = Workers::first_of(2);
        let (from, to) = (Placement::Partial { workers, reduce_op: ReduceOp::Sum }, Placement::Replicated { workers });
        let reshard = Reshard { out: 2, input: 1, meta, from, to };
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
                            reshard_tensor(&mut backend, Routes::by_host(&mut rank), me, 2, &reshard, Some(Ok(&part)));
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

    /// A worker of a process whose workers hold replicas together.
    struct Together {
        me: usize,
        backend: CpuBackend,
        rank: LocalCommunicator,
        replicas: SharedReplicas,
    }

    impl Together {
        /// A tensor that counts from `first` on.
        fn counting(&mut self, meta: &Meta, first: f32) -> CpuTensor {
            let mut numbers: Vec<f32> = (0..meta.shape.numel()).map(|i| first + i as f32).collect();
            self.filled(meta, &mut numbers)
        }

        fn filled(&mut self, meta: &Meta, numbers: &mut [f32]) -> CpuTensor {
            let mut tensor = self.backend.allocate(meta).unwrap();
            self.backend.write(&mut tensor, 0, host(numbers)).unwrap();
            tensor
        }

        fn reshard(
            &mut self,
            meta: Meta,
            from: Placement,
            to: Placement,
            input: Option<std::result::Result<&CpuTensor, Failure>>,
        ) -> std::result::Result<Option<CpuTensor>, Failure> {
            let routes = Routes { group: &mut self.rank, devices: None, replicas: Some(&mut self.replicas) };
            let reshard = Reshard { out: 2, input: 1, meta, from, to };
            reshard_tensor(&mut self.backend, routes, self.me, 2, &reshard, input)
        }

        fn numbers(&mut self, tensor: &CpuTensor) -> Vec<f32> {
            let mut numbers = vec![0.0; self.backend.meta(tensor).shape.numel()];
            self.backend.read(tensor, 0, host(&mut numbers)).unwrap();
            numbers
        }

        fn used_bytes(&self) -> usize {
            self.backend.memory().used_bytes
        }
    }

    /// Runs `run` on every worker of a process, with so many bytes for each.
    fn together<R: Send>(workers: usize, limit: usize, run: impl Fn(&mut Together) -> R + Sync) -> Vec<(Together, R)> {
        let run = &run;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (me, mut rank) in LocalGroup::threads(workers).unwrap().into_iter().enumerate() {
                threads.push(scope.spawn(move || {
                    let options = CpuOptions { threads: 1, memory_bytes_limit: limit, ..CpuOptions::default() };
                    let backend = CpuBackend::new(options);
                    let replicas = SharedReplicas::agree(&backend, &mut rank).unwrap().unwrap();
                    let mut worker = Together { me, backend, rank, replicas };
                    let result = run(&mut worker);
                    (worker, result)
                }));
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn workers_of_a_process_hold_one_replica_together_which_counts_once() {
        let meta = Meta::new(Shape::new(&[7, 5]).unwrap(), DType::F32);
        let (all, set) = (Workers::first_of(3), Workers::from_bits);
        let cut = |bits, axis| Placement::sharded(set(bits), axis, 1, &meta.shape);
        let copies = |bits| Placement::Replicated { workers: set(bits) };
        let sum = Placement::Partial { workers: all, reduce_op: ReduceOp::Sum };
        for from in [cut(0b111, 0), cut(0b111, 1), cut(0b011, 1), copies(0b010), copies(0b101), sum] {
            let (to, parts) = (copies(0b111), if from == sum { 3.0 } else { 1.0 });
            let made = together(3, 1 << 20, |worker| {
                let local = from.local(&meta, worker.me);
                let mut numbers = counted(&meta, &from, worker.me);
                let held = from.workers().contains(worker.me).then(|| worker.filled(&local, &mut numbers));
                worker.reshard(meta, from, to, held.as_ref().map(Ok)).unwrap().unwrap()
            });
            let (mut workers, tensors): (Vec<_>, Vec<_>) = made.into_iter().unzip();
            let at = |worker: usize| workers[worker].backend.bytes_of(&tensors[worker]);
            assert_eq!([at(1), at(2)], [at(0); 2], "{from}: one tensor");
            let wanted: Vec<f32> = counted(&meta, &to, 0).iter().map(|x| x * parts).collect();
            // The operands were dropped: of all workers together, the memory is that of one replica.
            let used = |workers: &[Together]| workers.iter().map(Together::used_bytes).collect::<Vec<_>>();
            let held = used(&workers);
            assert_eq!(held.iter().filter(|bytes| **bytes > 0).count(), 1, "{from}: {held:?}");
            for (worker, tensor) in tensors.into_iter().enumerate() {
                assert_eq!(workers[worker].numbers(&tensor), wanted, "{from}, worker {worker}");
                assert_eq!(used(&workers), held, "{from}: it counts until the last worker has freed it");
            }
            assert_eq!(used(&workers), [0; 3]);
        }
    }

    #[test]
    fn a_shared_replica_is_written_in_place_only_by_the_last_worker_that_holds_it() {
        let meta = Meta::new(Shape::new(&[4]).unwrap(), DType::F32);
        let workers = Workers::first_of(2);
        let made = together(2, 1 << 20, |worker| {
            let own = worker.counting(&meta, 1.0);
            let from = Placement::Partial { workers, reduce_op: ReduceOp::Sum };
            worker.reshard(meta, from, Placement::Replicated { workers }, Some(Ok(&own))).unwrap().unwrap()
        });
        let [(mut one, first), (mut two, second)] = made.try_into().ok().unwrap();
        let negative = |worker: &mut Together, tensor: &CpuTensor| {
            worker.backend.execute(Op::Neg, &[Input::Tensor(tensor)], &Attrs::None, &meta, 1).unwrap()
        };
        let at = one.backend.bytes_of(&first);
        assert!(!one.backend.is_writable(&first) && !two.backend.is_writable(&second));
        let updated = negative(&mut one, &first);
        assert_ne!(one.backend.bytes_of(&updated), at);
        drop(first);
        assert_eq!(two.numbers(&second), [2.0, 4.0, 6.0, 8.0], "the other worker's update did not change it");
        let last = negative(&mut two, &second);
        assert_eq!(two.backend.bytes_of(&last), at);
        // Workers end in any order.
        drop((one, two, updated, second));
        drop(last);
    }

    #[test]
    fn a_replica_that_one_worker_cannot_make_fails_on_all_and_holds_no_memory() {
        let meta = Meta::new(Shape::new(&[1 << 16]).unwrap(), DType::F32);
        let workers = Workers::first_of(2);
        let (from, to) = (Placement::sharded(workers, 0, 1, &meta.shape), Placement::Replicated { workers });
        let poison = Failure { fault: Fault::Internal, instruction: 1, op: None };
        let found = together(2, 400 << 10, |worker| {
            let own = worker.counting(&from.local(&meta, worker.me), 0.0);
            let input = if worker.me == 1 { Err(poison) } else { Ok(&own) };
            let poisoned = worker.reshard(meta, from, to, Some(input)).map(|made| made.is_some());
            worker.rank.barrier().unwrap();
            // With this, the limit leaves no room for a replica on either worker.
            let filled = worker.counting(&from.local(&meta, worker.me), 0.0);
            let refused = worker.reshard(meta, from, to, Some(Ok(&own))).map(|made| made.is_some());
            drop((own, filled));
            (poisoned, refused)
        });
        let refused = found[0].1.1;
        assert!(matches!(refused, Err(Failure { fault: Fault::OutOfMemory { .. }, .. })), "{refused:?}");
        for (worker, failures) in found {
            assert_eq!((failures, worker.used_bytes()), ((Err(poison), refused), 0));
        }
    }

    #[test]
    fn a_group_that_breaks_fails_the_replica_of_its_workers() {
        let meta = Meta::new(Shape::new(&[64]).unwrap(), DType::F32);
        let workers = Workers::first_of(3);
        let from = Placement::Partial { workers, reduce_op: ReduceOp::Sum };
        let found = together(3, 1 << 20, |worker| {
            let own = worker.counting(&meta, 0.0);
            if worker.me == 2 {
                worker.rank.abort();
                return None;
            }
            Some(
                worker
                    .reshard(meta, from, Placement::Replicated { workers }, Some(Ok(&own)))
                    .map(|made| made.is_some()),
            )
        });
        for (worker, result) in found {
            let lost = Failure { fault: worker_lost(2), instruction: 2, op: None };
            assert_eq!((result, worker.used_bytes()), ((worker.me < 2).then_some(Err(lost)), 0));
        }
    }

    #[test]
    fn partial_tensors_are_reduced_into_replicas_or_shards() {
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
