//! Placements: which workers of a session hold which elements of a tensor.
//!
//! A placement never changes the values of the elements. [`crate::propagate`] has the rules by which ops compute on
//! placed operands. The three kinds are those of PyTorch's DTensor: replicated, sharded, partial.

use crate::mesh::{Mesh, MeshLayout, MeshLayouts};
pub use crate::reduce_op::ReduceOp;
use crate::shape::{Meta, Shape};
pub use crate::workers::{WORKERS_MAX, Workers};
use std::fmt;
use std::ops::Range;

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
    /// Laid out twice: over the rows of a mesh of workers, and within each row.
    Mesh {
        /// The mesh.
        mesh: Mesh,
        /// The layouts over its dimensions. No other placement says the same; see [`Mesh::placement`].
        layouts: MeshLayouts,
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
            Placement::Mesh { mesh, .. } => mesh.workers(),
        }
    }

    /// Whether the elements are a reduction of what several workers have.
    pub fn is_partial(&self) -> bool {
        match self {
            Placement::Partial { .. } => true,
            Placement::Mesh { layouts, .. } => layouts.iter().any(|layout| layout.is_partial()),
            Placement::Replicated { .. } | Placement::Sharded { .. } => false,
        }
    }

    /// Whether workers have different parts of an axis.
    pub fn shards(&self, axis: usize) -> bool {
        match self {
            Placement::Sharded { axis: own, .. } => usize::from(*own) == axis,
            Placement::Mesh { layouts, .. } => layouts.iter().any(|layout| layout.is_shard_of(axis)),
            Placement::Replicated { .. } | Placement::Partial { .. } => false,
        }
    }

    /// The worker that alone has all elements, if there is one.
    pub fn sole(&self) -> Option<usize> {
        match self {
            Placement::Replicated { workers } if workers.len() == 1 => workers.first(),
            _ => None,
        }
    }

    /// The range of the sharded axis that `worker` has; none for other placements, and on a mesh.
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
            (Placement::Mesh { mesh, layouts }, _) => mesh.local(*layouts, meta),
            _ => *meta,
        }
    }
}

impl MeshLayout {
    /// The placement of a tensor that lies so on `workers`; shards are to be even.
    pub const fn on(self, workers: Workers) -> Placement {
        match self {
            _ if workers.len() < 2 => Placement::Replicated { workers },
            MeshLayout::Replicated => Placement::Replicated { workers },
            MeshLayout::Sharded { axis } => Placement::Sharded { workers, axis, granule: 1 },
            MeshLayout::Partial(reduce_op) => Placement::Partial { workers, reduce_op },
        }
    }
}

impl Mesh {
    /// The placement of a tensor with these layouts: one of the placements without a mesh where one says the same.
    pub fn placement(self, layouts: MeshLayouts) -> Placement {
        let workers = self.workers();
        match layouts {
            [_, along] if self.size(0) == 1 => along.on(workers),
            [along, _] if self.size(1) == 1 => along.on(workers),
            [MeshLayout::Replicated, MeshLayout::Replicated] => Placement::Replicated { workers },
            [MeshLayout::Partial(one), MeshLayout::Partial(other)] if one == other => {
                Placement::Partial { workers, reduce_op: one }
            }
            _ => Placement::Mesh { mesh: self, layouts },
        }
    }

    /// The layouts over this mesh by which a tensor can be read that is placed so; none if that takes a move. Shards
    /// may be uneven in a mesh of one row or one column only.
    pub fn layouts_of(self, placement: &Placement) -> Option<MeshLayouts> {
        match *placement {
            Placement::Mesh { mesh, layouts } => (mesh == self).then_some(layouts),
            Placement::Replicated { workers } => {
                workers.contains_all(self.workers()).then_some([MeshLayout::Replicated; 2])
            }
            Placement::Partial { workers, reduce_op } => {
                (workers == self.workers()).then_some([MeshLayout::Partial(reduce_op); 2])
            }
            Placement::Sharded { workers, axis, granule } => {
                let long = (0..2).find(|dimension| self.size(1 - dimension) == 1)?;
                let mut layouts = [MeshLayout::Replicated; 2];
                layouts[long] = MeshLayout::Sharded { axis };
                (workers == self.workers() && granule == 1).then_some(layouts)
            }
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
            Placement::Mesh { mesh, layouts: [across, within] } => {
                write!(f, "{across} across {} rows of {}, {within} within a row", mesh.rows(), mesh.workers())
            }
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
    /// Laid out over a mesh. A request for uneven shards, or for an axis that a tensor does not have, is ignored.
    Mesh {
        /// The number of rows into which the workers are divided. A number that does not divide theirs is ignored.
        rows: u8,
        /// The requests for the dimensions of the mesh.
        layouts: [RequestedDimension; 2],
    },
}

/// The layout that is requested over one dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedDimension {
    /// No request.
    Any,
    /// Sharded along an axis, counted from the end if negative.
    Sharded {
        /// The axis.
        axis: i8,
    },
    /// A copy for each.
    Replicated,
}

impl RequestedLayout {
    /// The request for these layouts over a mesh of `rows` rows; with 0 rows there is no mesh, and the first is meant.
    pub fn over(rows: u8, layouts: [RequestedDimension; 2]) -> RequestedLayout {
        match (rows, layouts[0]) {
            (0, RequestedDimension::Any) => RequestedLayout::Any,
            (0, RequestedDimension::Sharded { axis }) => RequestedLayout::Sharded { axis },
            (0, RequestedDimension::Replicated) => RequestedLayout::Replicated,
            (rows, _) => RequestedLayout::Mesh { rows, layouts },
        }
    }

    /// The rows and layouts of which [`RequestedLayout::over`] makes this request.
    pub fn dimensions(self) -> (u8, [RequestedDimension; 2]) {
        let alone = |layout| (0, [layout, RequestedDimension::Any]);
        match self {
            RequestedLayout::Any => alone(RequestedDimension::Any),
            RequestedLayout::Sharded { axis } => alone(RequestedDimension::Sharded { axis }),
            RequestedLayout::Replicated => alone(RequestedDimension::Replicated),
            RequestedLayout::Mesh { rows, layouts } => (rows, layouts),
        }
    }
}

/// The layouts that a request leaves to a tensor on a mesh; none for a dimension without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshTarget {
    /// The mesh.
    pub mesh: Mesh,
    /// The layouts over its dimensions.
    pub layouts: [Option<MeshLayout>; 2],
}

/// The axis that `axis` names, counted from the end if negative, of a tensor of `rank` axes.
fn axis_of(axis: i8, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { rank.checked_sub(usize::from(axis.unsigned_abs()))? } else { axis as usize };
    (axis < rank).then_some(axis)
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

    /// The workers that the request names among those of a session, `all`.
    fn named(&self, all: Workers) -> Workers {
        if self.workers.is_empty() { all } else { self.workers.and(all) }
    }

    /// The requested placement of a tensor of `shape` in a session on `all`, if there is a request for it. A mesh that
    /// leaves a dimension to the daemon requests no placement, but a [target](Self::mesh_target).
    pub fn placement(&self, shape: &Shape, all: Workers) -> Option<Placement> {
        let workers = self.named(all);
        if workers.is_empty() {
            return None;
        }
        match self.layout {
            RequestedLayout::Any => None,
            RequestedLayout::Replicated => Some(Placement::Replicated { workers }),
            RequestedLayout::Sharded { axis } => {
                axis_of(axis, shape.rank()).map(|axis| Placement::sharded(workers, axis, 1, shape))
            }
            RequestedLayout::Mesh { .. } => {
                let MeshTarget { mesh, layouts: [Some(across), Some(within)] } = self.mesh_target(shape, all)? else {
                    return None;
                };
                Some(mesh.placement([across, within]))
            }
        }
    }

    /// The layouts that are requested for a tensor of `shape` over a mesh, in a session on `all`.
    pub fn mesh_target(&self, shape: &Shape, all: Workers) -> Option<MeshTarget> {
        let RequestedLayout::Mesh { rows, layouts } = self.layout else { return None };
        let mesh = Mesh::new(self.named(all), rows.into())?;
        let mut dims = [0; crate::shape::RANK_MAX];
        dims[..shape.rank()].copy_from_slice(shape.dims());
        let mut target = MeshTarget { mesh, layouts: [None; 2] };
        for (dimension, requested) in layouts.into_iter().enumerate() {
            target.layouts[dimension] = match requested {
                RequestedDimension::Any => None,
                RequestedDimension::Replicated => Some(MeshLayout::Replicated),
                RequestedDimension::Sharded { axis } => axis_of(axis, shape.rank()).and_then(|axis| {
                    let parts = mesh.size(dimension);
                    let even = dims[axis].is_multiple_of(parts);
                    dims[axis] /= parts;
                    even.then_some(MeshLayout::Sharded { axis: axis as u8 })
                }),
            };
        }
        Some(target)
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
    fn a_placement_that_needs_no_mesh_has_none() {
        let workers = Workers::first_of(6);
        let mesh = Mesh::new(workers, 2).unwrap();
        let sum = MeshLayout::Partial(ReduceOp::Sum);
        assert_eq!(mesh.placement([MeshLayout::Replicated; 2]), Placement::Replicated { workers });
        assert_eq!(mesh.placement([sum; 2]), Placement::Partial { workers, reduce_op: ReduceOp::Sum });
        assert!(matches!(mesh.placement([sum, MeshLayout::Replicated]), Placement::Mesh { .. }));
        let shape = Shape::new(&[6, 6]).unwrap();
        for rows in [1, 6] {
            let flat = Mesh::new(workers, rows).unwrap();
            let long = if rows == 1 { 1 } else { 0 };
            let mut layouts = [MeshLayout::Replicated; 2];
            layouts[long] = MeshLayout::Sharded { axis: 1 };
            let placement = flat.placement(layouts);
            assert_eq!(placement, Placement::sharded(workers, 1, 1, &shape));
            assert_eq!(flat.layouts_of(&placement), Some(layouts));
        }
    }

    #[test]
    fn a_request_on_a_mesh_is_ignored_where_it_does_not_fit() {
        let all = Workers::first_of(4);
        let asks = |rows, layouts| RequestedPlacement {
            workers: Workers::NONE,
            layout: RequestedLayout::Mesh { rows, layouts },
        };
        let (first, last) = (RequestedDimension::Sharded { axis: 0 }, RequestedDimension::Sharded { axis: -1 });
        let shape = meta(&[8, 6]).shape;
        let shard = |axis| MeshLayout::Sharded { axis };
        let mesh = Mesh::new(all, 2).unwrap();
        assert_eq!(asks(2, [first, last]).placement(&shape, all), Some(mesh.placement([shard(0), shard(1)])));
        assert_eq!(asks(3, [first, last]).mesh_target(&shape, all), None);
        let target = |asked: RequestedPlacement, dims: &[usize]| asked.mesh_target(&meta(dims).shape, all).unwrap();
        assert_eq!(target(asks(2, [first, RequestedDimension::Any]), &[8]).layouts, [Some(shard(0)), None]);
        assert_eq!(target(asks(2, [first, last]), &[7, 6]).layouts, [None, Some(shard(1))]);
        assert_eq!(target(asks(2, [first, first]), &[6]).layouts, [Some(shard(0)), None]);
        assert_eq!(
            target(asks(2, [last, RequestedDimension::Replicated]), &[]).layouts,
            [None, Some(MeshLayout::Replicated)]
        );
        assert_eq!(asks(2, [first, RequestedDimension::Any]).placement(&shape, all), None);
    }
}
