//! Where a tensor's elements are, when a session has several workers.
//!
//! A placement says which workers hold what of a tensor; it never changes what the elements are. [`crate::propagate`]
//! says how an op can be done on placed operands.

use crate::shape::{Meta, Shape};
use std::fmt;
use std::ops::Range;

/// The most workers of a daemon: a set of them is one word.
pub const WORKERS_MAX: usize = 64;

/// A set of workers. Their order is that of their numbers, and a worker's *rank* is its place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Workers(u64);

impl Workers {
    /// None.
    pub const NONE: Workers = Workers(0);

    /// Those whose bits are set.
    pub const fn from_bits(bits: u64) -> Workers {
        Workers(bits)
    }
    /// Bit `w` is set for worker `w`.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// One.
    pub const fn one(worker: usize) -> Workers {
        Workers(1 << worker)
    }
    /// Those numbered from 0 to `count` − 1.
    pub const fn first_of(count: usize) -> Workers {
        Workers(if count >= WORKERS_MAX { u64::MAX } else { (1 << count) - 1 })
    }
    /// How many.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether `worker` is one of them.
    pub const fn contains(self, worker: usize) -> bool {
        worker < WORKERS_MAX && self.0 >> worker & 1 == 1
    }
    /// Whether all of `others` are.
    pub const fn contains_all(self, others: Workers) -> bool {
        others.0 & !self.0 == 0
    }
    /// These and those.
    pub const fn with(self, others: Workers) -> Workers {
        Workers(self.0 | others.0)
    }
    /// Those that are in both.
    pub const fn and(self, others: Workers) -> Workers {
        Workers(self.0 & others.0)
    }
    /// These but not those.
    pub const fn without(self, others: Workers) -> Workers {
        Workers(self.0 & !others.0)
    }
    /// The one with the smallest number.
    pub const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }
    /// The place of `worker` among them.
    pub fn rank_of(self, worker: usize) -> Option<usize> {
        self.contains(worker).then(|| (self.0 & ((1 << worker) - 1)).count_ones() as usize)
    }
    /// Those of `all` whose ranks there these numbers are.
    #[must_use]
    pub fn among(self, all: Workers) -> Workers {
        let named = all.iter().enumerate().filter(|(rank, _)| self.contains(*rank));
        named.fold(Workers::NONE, |found, (_, worker)| found.with(Workers::one(worker)))
    }
    /// All, by rising number.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = Workers(left).first()?;
            left &= left - 1;
            Some(next)
        })
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The reduction that makes the whole of a partial tensor's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Their sum.
    Sum = 0,
    /// Their product.
    Prod = 1,
    /// The largest; NaN if any is.
    Max = 2,
    /// The smallest; NaN if any is.
    Min = 3,
}

impl ReduceOp {
    /// As users read it.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
    /// By its number on the wire.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min].get(code as usize).copied()
    }
}

/// Where a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each worker has all of them. With one worker: they are there.
    Replicated {
        /// Who.
        workers: Workers,
    },
    /// Each worker has those of a stretch of an axis; see [`stretch`].
    Sharded {
        /// Who, at least two.
        workers: Workers,
        /// The axis that is cut.
        axis: u8,
        /// Cuts are at multiples of this; it divides the axis's size.
        granule: usize,
    },
    /// Each worker has a tensor of the whole shape; the elements are the reduction of all of them.
    Partial {
        /// Who, at least two.
        workers: Workers,
        /// The reduction.
        reduce_op: ReduceOp,
    },
}

/// The stretch of an axis of `size` that belongs to `rank` of `ranks`: as even as whole granules allow.
pub fn stretch(size: usize, granule: usize, rank: usize, ranks: usize) -> Range<usize> {
    let granules = size / granule.max(1);
    let cut = |rank: usize| (granules as u128 * rank as u128 / ranks.max(1) as u128) as usize * granule;
    cut(rank)..cut(rank + 1)
}

impl Placement {
    /// All on `worker`.
    pub const fn on(worker: usize) -> Placement {
        Placement::Replicated { workers: Workers::one(worker) }
    }

    /// Cut along `axis` of a tensor of `shape`, at multiples of `granule`; whole where there is one worker only.
    pub fn sharded(workers: Workers, axis: usize, granule: usize, shape: &Shape) -> Placement {
        if workers.len() < 2 {
            return Placement::Replicated { workers };
        }
        let size = shape.dims().get(axis).copied().unwrap_or(0);
        // Equal placements compare equal: where cuts are even, the granule does not matter.
        let even = granule == 0 || size % granule != 0 || (size / granule).is_multiple_of(workers.len());
        Placement::Sharded { workers, axis: axis as u8, granule: if even { 1 } else { granule } }
    }

    /// Who has some of the tensor.
    pub const fn workers(&self) -> Workers {
        match self {
            Placement::Replicated { workers }
            | Placement::Sharded { workers, .. }
            | Placement::Partial { workers, .. } => *workers,
        }
    }

    /// The one worker that has all, if there is just one.
    pub fn sole(&self) -> Option<usize> {
        match self {
            Placement::Replicated { workers } if workers.len() == 1 => workers.first(),
            _ => None,
        }
    }

    /// The stretch of the sharded axis that `worker` has; none for other placements.
    pub fn stretch_of(&self, shape: &Shape, worker: usize) -> Option<Range<usize>> {
        match self {
            Placement::Sharded { workers, axis, granule } => {
                let size = *shape.dims().get(*axis as usize)?;
                Some(stretch(size, *granule, workers.rank_of(worker)?, workers.len()))
            }
            _ => None,
        }
    }

    /// The shape and dtype of what `worker` has of a tensor of `meta`.
    pub fn local(&self, meta: &Meta, worker: usize) -> Meta {
        match (self, self.stretch_of(&meta.shape, worker)) {
            (Placement::Sharded { axis, .. }, Some(stretch)) => {
                Meta::new(meta.shape.with_dim(*axis as usize, stretch.len()), meta.dtype)
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

/// What a named signal asks for the results of the instructions under it. It never changes what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedPlacement {
    /// The workers; none means all.
    pub workers: Workers,
    /// How the tensor lies on them.
    pub layout: RequestedLayout,
}

/// How a tensor lies on workers that a [`RequestedPlacement`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedLayout {
    /// Nothing is asked.
    Any,
    /// Cut along an axis, which counts from the end if it is negative. Ignored by tensors without that axis.
    Sharded {
        /// The axis.
        axis: i8,
    },
    /// A copy on each.
    Replicated,
}

impl RequestedPlacement {
    /// The same of a session on `all`, which knows them by their ranks: a program counts its workers from 0.
    #[must_use]
    pub fn among(self, all: Workers) -> RequestedPlacement {
        let workers = self.workers.among(all);
        // Nothing is asked of workers that are not there.
        let layout = if workers.is_empty() && !self.workers.is_empty() { RequestedLayout::Any } else { self.layout };
        RequestedPlacement { workers, layout }
    }

    /// Where it asks a tensor of `shape` to be, if anywhere, of a session on `all`.
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
    fn a_wish_counts_the_workers_of_its_session() {
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
    fn stretches_cover_an_axis_evenly_and_may_be_empty() {
        let sizes = |size, granule, ranks| -> Vec<usize> {
            (0..ranks).map(|rank| stretch(size, granule, rank, ranks).len()).collect()
        };
        assert_eq!(sizes(128, 1, 4), [32; 4]);
        assert_eq!(sizes(10, 1, 4), [2, 3, 2, 3]);
        assert_eq!(sizes(2, 1, 4), [0, 1, 0, 1]);
        assert_eq!(sizes(0, 1, 3), [0, 0, 0]);
        assert_eq!(sizes(12, 4, 2), [4, 8]);
        assert_eq!(stretch(10, 1, 1, 4), 2..5);
    }

    #[test]
    fn a_worker_has_its_stretch_of_a_sharded_tensor_and_all_of_another() {
        let shape = meta(&[10, 8]);
        let cut = Placement::sharded(Workers::from_bits(0b1101), 0, 1, &shape.shape);
        assert_eq!([0, 2, 3].map(|w| cut.local(&shape, w).shape.dims()[0]), [3, 3, 4]);
        assert_eq!(cut.stretch_of(&shape.shape, 1), None);
        assert_eq!(Placement::on(2).local(&shape, 2), shape);
        assert_eq!(Placement::on(2).sole(), Some(2));
        assert_eq!(Placement::sharded(Workers::one(1), 0, 1, &shape.shape), Placement::on(1));
    }

    #[test]
    fn a_granule_that_changes_no_cut_is_forgotten() {
        let shape = meta(&[8]).shape;
        let two = Workers::first_of(2);
        assert_eq!(Placement::sharded(two, 0, 2, &shape), Placement::sharded(two, 0, 1, &shape));
        let three = Workers::first_of(3);
        assert_ne!(Placement::sharded(three, 0, 2, &shape), Placement::sharded(three, 0, 1, &shape));
    }

    #[test]
    fn a_wish_counts_axes_from_the_end_and_is_ignored_where_there_is_no_such_axis() {
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
        assert_eq!(Workers::from_bits(1 << 63).rank_of(63), Some(0));
        assert_eq!(workers.to_string(), "[1, 2, 4]");
    }
}
