//! Placements: which workers of a session hold which elements of a tensor.
//!
//! A placement never changes the values of the elements. [`crate::propagate`] has the rules by which ops compute on
//! placed operands. The three kinds are those of PyTorch's DTensor: replicated, sharded, partial.

use crate::shape::{Meta, Shape};
use std::fmt;
use std::ops::Range;

/// Maximum number of workers of a daemon, those of all its machines together.
pub const WORKERS_MAX: usize = u128::BITS as usize;

/// A set of workers, ordered by their numbers. A worker's *rank* is its position in that order.
///
/// Its bits are two words, since a `u128` would have every tensor's entry in a table begin at a multiple of 16 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Workers([u64; 2]);

impl Workers {
    /// The empty set.
    pub const NONE: Workers = Workers([0; 2]);

    /// The workers whose bits are set.
    pub const fn from_bits(bits: u128) -> Workers {
        Workers([bits as u64, (bits >> 64) as u64])
    }
    /// Bit `w` is set for worker `w`.
    pub const fn bits(self) -> u128 {
        self.0[0] as u128 | (self.0[1] as u128) << 64
    }
    /// The set whose [words](Workers::words) these are.
    pub const fn from_words(words: [u64; 2]) -> Workers {
        Workers(words)
    }
    /// Bit `w % 64` of word `w / 64` is set for worker `w`.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
    /// The set of one worker.
    pub const fn one(worker: usize) -> Workers {
        Workers::from_bits(1 << worker)
    }
    /// The workers numbered from 0 to `count` − 1.
    pub const fn first_of(count: usize) -> Workers {
        Workers::from_bits(if count >= WORKERS_MAX { u128::MAX } else { (1 << count) - 1 })
    }
    /// The number of workers.
    pub const fn len(self) -> usize {
        self.bits().count_ones() as usize
    }
    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.bits() == 0
    }
    /// Whether `worker` is in the set.
    pub const fn contains(self, worker: usize) -> bool {
        worker < WORKERS_MAX && self.bits() >> worker & 1 == 1
    }
    /// Whether all of `others` are in the set.
    pub const fn contains_all(self, others: Workers) -> bool {
        others.without(self).is_empty()
    }
    /// The union of both sets.
    pub const fn with(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() | others.bits())
    }
    /// The intersection of both sets.
    pub const fn and(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() & others.bits())
    }
    /// The workers that are not in `others`.
    pub const fn without(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() & !others.bits())
    }
    /// The worker with the smallest number.
    pub const fn first(self) -> Option<usize> {
        if self.is_empty() { None } else { Some(self.bits().trailing_zeros() as usize) }
    }
    /// The rank of `worker`, if it is in the set.
    pub fn rank_of(self, worker: usize) -> Option<usize> {
        self.contains(worker).then(|| (self.bits() & ((1 << worker) - 1)).count_ones() as usize)
    }
    /// The workers of `all` whose ranks in `all` are in this set.
    #[must_use]
    pub fn among(self, all: Workers) -> Workers {
        let named = all.iter().enumerate().filter(|(rank, _)| self.contains(*rank));
        named.fold(Workers::NONE, |found, (_, worker)| found.with(Workers::one(worker)))
    }
    /// The workers by ascending number.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.bits();
        std::iter::from_fn(move || {
            let next = Workers::from_bits(left).first()?;
            left &= left - 1;
            Some(next)
        })
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers{self}")
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The reduction by which the parts of a partial tensor combine to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum.
    Sum = 0,
    /// Product.
    Prod = 1,
    /// Maximum; NaN if any part is NaN.
    Max = 2,
    /// Minimum; NaN if any part is NaN.
    Min = 3,
}

impl ReduceOp {
    /// The name in messages to users, as in `partial (sum)`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
    /// The reduction of a wire code.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min].get(code as usize).copied()
    }
}

/// The placement of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each worker has all elements.
    Replicated {
        /// The workers, one or more.
        workers: Workers,
    },
    /// Each worker has a contiguous shard of an axis; see [`shard_range`].
    Sharded {
        /// The workers, at least two.
        workers: Workers,
        /// The sharded axis.
        axis: u8,
        /// Shards begin at multiples of this, which divides the axis's size.
        granule: usize,
    },
    /// Each worker has a tensor of the whole shape; the elements are the reduction of all of them.
    Partial {
        /// The workers, at least two.
        workers: Workers,
        /// The reduction.
        reduce_op: ReduceOp,
    },
}

/// The range of an axis of `size` that is the shard of `rank` of `ranks`: as even as whole granules allow.
pub fn shard_range(size: usize, granule: usize, rank: usize, ranks: usize) -> Range<usize> {
    let granules = size / granule.max(1);
    let bound = |rank: usize| (granules as u128 * rank as u128 / ranks.max(1) as u128) as usize * granule;
    bound(rank)..bound(rank + 1)
}

impl Placement {
    /// All elements on `worker`.
    pub const fn on(worker: usize) -> Placement {
        Placement::Replicated { workers: Workers::one(worker) }
    }

    /// Sharded along `axis` of a tensor of `shape` at multiples of `granule`; replicated where there is only one
    /// worker.
    pub fn sharded(workers: Workers, axis: usize, granule: usize, shape: &Shape) -> Placement {
        if workers.len() < 2 {
            return Placement::Replicated { workers };
        }
        let size = shape.dims().get(axis).copied().unwrap_or(0);
        // Where shards are even, the granule does not matter: it becomes 1, so that equal placements compare equal.
        let even = granule == 0 || size % granule != 0 || (size / granule).is_multiple_of(workers.len());
        Placement::Sharded { workers, axis: axis as u8, granule: if even { 1 } else { granule } }
    }

    /// The workers that have elements of the tensor.
    pub const fn workers(&self) -> Workers {
        match self {
            Placement::Replicated { workers }
            | Placement::Sharded { workers, .. }
            | Placement::Partial { workers, .. } => *workers,
        }
    }

    /// The worker that alone has all elements, if there is one.
    pub fn sole(&self) -> Option<usize> {
        match self {
            Placement::Replicated { workers } if workers.len() == 1 => workers.first(),
            _ => None,
        }
    }

    /// The range of the sharded axis that `worker` has; none for other placements.
    pub fn shard_of(&self, shape: &Shape, worker: usize) -> Option<Range<usize>> {
        match self {
            Placement::Sharded { workers, axis, granule } => {
                let size = *shape.dims().get(*axis as usize)?;
                Some(shard_range(size, *granule, workers.rank_of(worker)?, workers.len()))
            }
            _ => None,
        }
    }

    /// The shape and dtype of the elements that `worker` has of a tensor of `meta`.
    pub fn local(&self, meta: &Meta, worker: usize) -> Meta {
        match (self, self.shard_of(&meta.shape, worker)) {
            (Placement::Sharded { axis, .. }, Some(range)) => {
                Meta::new(meta.shape.with_dim(*axis as usize, range.len()), meta.dtype)
            }
            _ => *meta,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicated { workers } if workers.len() == 1 => write!(f, "on {workers}"),
            Placement::Replicated { workers } => write!(f, "replicated on {workers}"),
            Placement::Sharded { workers, axis, .. } => write!(f, "sharded along axis {axis} over {workers}"),
            Placement::Partial { workers, reduce_op } => write!(f, "partial ({}) on {workers}", reduce_op.name()),
        }
    }
}

/// The placement that a signal requests for the results of instructions under it. It never changes their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedPlacement {
    /// The workers; the empty set means all.
    pub workers: Workers,
    /// The layout on these workers.
    pub layout: RequestedLayout,
}

/// The layout of a tensor on the workers of a [`RequestedPlacement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedLayout {
    /// No request.
    Any,
    /// Sharded along an axis, counted from the end if negative. Tensors without that axis ignore the request.
    Sharded {
        /// The axis.
        axis: i8,
    },
    /// A copy on each worker.
    Replicated,
}

impl RequestedPlacement {
    /// Translates ranks to workers: a program counts the workers of its session, `all`, from 0.
    #[must_use]
    pub fn among(self, all: Workers) -> RequestedPlacement {
        let workers = self.workers.among(all);
        // A request for workers outside the session is ignored.
        let layout = if workers.is_empty() && !self.workers.is_empty() { RequestedLayout::Any } else { self.layout };
        RequestedPlacement { workers, layout }
    }

    /// The requested placement of a tensor of `shape` in a session on `all`, if there is a request for it.
    pub fn placement(&self, shape: &Shape, all: Workers) -> Option<Placement> {
        let workers = if self.workers.is_empty() { all } else { self.workers.and(all) };
        if workers.is_empty() {
            return None;
        }
        match self.layout {
            RequestedLayout::Any => None,
            RequestedLayout::Replicated => Some(Placement::Replicated { workers }),
            RequestedLayout::Sharded { axis } => {
                let rank = shape.rank() as i64;
                let axis = if axis < 0 { axis as i64 + rank } else { axis as i64 };
                (0..rank).contains(&axis).then(|| Placement::sharded(workers, axis as usize, 1, shape))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn meta(dims: &[usize]) -> Meta {
        Meta::new(Shape::new(dims).unwrap(), DType::F32)
    }

    #[test]
    fn a_requested_placement_numbers_the_workers_of_its_session() {
        let all = Workers::from_bits(0b1101);
        let requested =
            |bits| RequestedPlacement { workers: Workers::from_bits(bits), layout: RequestedLayout::Replicated };
        assert_eq!(requested(0b011).among(all), requested(0b0101));
        assert_eq!(requested(0b110).among(all), requested(0b1100));
        assert_eq!(requested(0).among(all), requested(0));
        assert_eq!(requested(0b1000).among(all), RequestedPlacement { layout: RequestedLayout::Any, ..requested(0) });
        assert_eq!(requested(0b11).among(Workers::first_of(2)), requested(0b11));
    }

    #[test]
    fn shards_cover_an_axis_evenly_and_may_be_empty() {
        let sizes = |size, granule, ranks| -> Vec<usize> {
            (0..ranks).map(|rank| shard_range(size, granule, rank, ranks).len()).collect()
        };
        assert_eq!(sizes(128, 1, 4), [32; 4]);
        assert_eq!(sizes(10, 1, 4), [2, 3, 2, 3]);
        assert_eq!(sizes(2, 1, 4), [0, 1, 0, 1]);
        assert_eq!(sizes(0, 1, 3), [0, 0, 0]);
        assert_eq!(sizes(12, 4, 2), [4, 8]);
        assert_eq!(shard_range(10, 1, 1, 4), 2..5);
    }

    #[test]
    fn a_worker_has_its_shard_of_a_sharded_tensor_and_all_of_a_replicated_one() {
        let shape = meta(&[10, 8]);
        let cut = Placement::sharded(Workers::from_bits(0b1101), 0, 1, &shape.shape);
        assert_eq!([0, 2, 3].map(|w| cut.local(&shape, w).shape.dims()[0]), [3, 3, 4]);
        assert_eq!(cut.shard_of(&shape.shape, 1), None);
        assert_eq!(Placement::on(2).local(&shape, 2), shape);
        assert_eq!(Placement::on(2).sole(), Some(2));
        assert_eq!(Placement::sharded(Workers::one(1), 0, 1, &shape.shape), Placement::on(1));
    }

    #[test]
    fn a_granule_that_does_not_change_shards_is_normalized() {
        let shape = meta(&[8]).shape;
        let two = Workers::first_of(2);
        assert_eq!(Placement::sharded(two, 0, 2, &shape), Placement::sharded(two, 0, 1, &shape));
        let three = Workers::first_of(3);
        assert_ne!(Placement::sharded(three, 0, 2, &shape), Placement::sharded(three, 0, 1, &shape));
    }

    #[test]
    fn a_requested_axis_counts_from_the_end_and_is_ignored_by_tensors_without_it() {
        let all = Workers::first_of(4);
        let requested = |axis, workers| RequestedPlacement { workers, layout: RequestedLayout::Sharded { axis } };
        let shape = meta(&[8, 6]).shape;
        assert_eq!(requested(-1, Workers::NONE).placement(&shape, all), Some(Placement::sharded(all, 1, 1, &shape)));
        assert_eq!(requested(2, Workers::NONE).placement(&shape, all), None);
        assert_eq!(requested(0, Workers::one(1)).placement(&shape, all), Some(Placement::on(1)));
        assert_eq!(requested(0, Workers::one(9)).placement(&shape, all), None);
        assert_eq!(RequestedPlacement { workers: all, layout: RequestedLayout::Any }.placement(&shape, all), None);
    }

    #[test]
    fn workers_are_ranked_by_number() {
        let workers = Workers::from_bits(0b10110);
        assert_eq!(workers.iter().collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(|w| workers.rank_of(w)), [None, Some(0), Some(1), None, Some(2)]);
        assert_eq!(Workers::first_of(64).len(), 64);
        assert_eq!(Workers::from_bits(1 << 127).rank_of(127), Some(0));
        assert_eq!(workers.to_string(), "[1, 2, 4]");
    }
}
