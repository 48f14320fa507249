//! Meshes: workers in rows and columns, over which a tensor is laid out twice, as in PyTorch's `DeviceMesh`.
//!
//! With data parallel rows and tensor parallel columns, for example, a batch of activations is sharded along its first
//! axis over dimension 0 of the mesh, and along its last one over dimension 1. The layouts nest: dimension 1 divides
//! what dimension 0 left to a row. Shards on a mesh are even, so all workers have parts of one shape.

use crate::reduce_op::ReduceOp;
use crate::shape::{Meta, Shape};
use crate::workers::Workers;
use std::fmt;

/// Workers in rows of equal length, by ascending number. Dimension 0 goes from row to row, dimension 1 along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mesh {
    workers: Workers,
    rows: u8,
}

/// How a tensor lies along one dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeshLayout {
    /// All have the same.
    Replicated,
    /// Each has an even shard of an axis.
    Sharded {
        /// The axis.
        axis: u8,
    },
    /// The elements are the reduction of what all have.
    Partial(ReduceOp),
}

impl MeshLayout {
    /// Whether this is a shard of `axis`.
    pub fn is_shard_of(self, axis: usize) -> bool {
        matches!(self, MeshLayout::Sharded { axis: own } if usize::from(own) == axis)
    }
    /// Whether the elements are a reduction.
    pub const fn is_partial(self) -> bool {
        matches!(self, MeshLayout::Partial(_))
    }
}

impl fmt::Display for MeshLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeshLayout::Replicated => f.write_str("replicated"),
            MeshLayout::Sharded { axis } => write!(f, "sharded along axis {axis}"),
            MeshLayout::Partial(reduce_op) => write!(f, "partial ({})", reduce_op.name()),
        }
    }
}

/// A tensor's layouts over both dimensions of a mesh.
pub type MeshLayouts = [MeshLayout; 2];

impl Mesh {
    /// `workers` in so many rows; none if they cannot be divided evenly.
    pub const fn new(workers: Workers, rows: usize) -> Option<Mesh> {
        if rows == 0 || workers.is_empty() || !workers.len().is_multiple_of(rows) {
            return None;
        }
        Some(Mesh { workers, rows: rows as u8 })
    }

    /// All workers.
    pub const fn workers(self) -> Workers {
        self.workers
    }

    /// The number of rows.
    pub const fn rows(self) -> usize {
        self.rows as usize
    }

    /// The size of a dimension: the number of rows, or of workers in a row.
    pub const fn size(self, dimension: usize) -> usize {
        if dimension == 0 { self.rows as usize } else { self.workers.len() / self.rows as usize }
    }

    /// A worker's row and its position in that row.
    pub fn coordinates(self, worker: usize) -> Option<[usize; 2]> {
        let rank = self.workers.rank_of(worker)?;
        Some([rank / self.size(1), rank % self.size(1)])
    }

    /// The groups of workers that differ in a dimension only: for dimension 1 the rows, for dimension 0 the columns.
    pub fn groups(self, dimension: usize) -> impl Iterator<Item = Workers> {
        (0..self.size(1 - dimension)).map(move |at| self.group(dimension, at))
    }

    /// The group of a dimension whose other coordinate is `at`.
    pub fn group(self, dimension: usize, at: usize) -> Workers {
        let columns = self.size(1);
        let member = |rank: usize| at == if dimension == 0 { rank % columns } else { rank / columns };
        let found = self.workers.iter().enumerate().filter(|(rank, _)| member(*rank));
        found.fold(Workers::NONE, |all, (_, worker)| all.with(Workers::one(worker)))
    }

    /// The tensor that is left to each group of the other dimension once this one has divided it.
    pub fn divided(self, dimension: usize, layout: MeshLayout, meta: &Meta) -> Meta {
        match layout {
            MeshLayout::Sharded { axis } => {
                let axis = usize::from(axis);
                let size = meta.shape.dims().get(axis).copied().unwrap_or(0);
                Meta::new(meta.shape.with_dim(axis, size / self.size(dimension)), meta.dtype)
            }
            _ => *meta,
        }
    }

    /// The tensor that every worker has.
    pub fn local(self, layouts: MeshLayouts, meta: &Meta) -> Meta {
        self.divided(1, layouts[1], &self.divided(0, layouts[0], meta))
    }

    /// Whether both layouts shard a shape evenly.
    pub fn is_even(self, layouts: MeshLayouts, shape: &Shape) -> bool {
        let mut dims = [0; crate::shape::RANK_MAX];
        dims[..shape.rank()].copy_from_slice(shape.dims());
        layouts.iter().enumerate().all(|(dimension, layout)| {
            let MeshLayout::Sharded { axis } = layout else { return true };
            let (axis, parts) = (usize::from(*axis), self.size(dimension));
            let even = axis < shape.rank() && dims[axis].is_multiple_of(parts);
            if even {
                dims[axis] /= parts;
            }
            even
        })
    }

    /// The dimension and the layout of the next move from one pair of layouts to another; none if they are equal.
    ///
    /// Moves that leave less to move come first: reductions along a row, then slices, then moves between rows, and last
    /// the gathering of a row. The shards of a row are gathered first where a move between rows concerns their axis.
    pub fn next_move(from: MeshLayouts, to: MeshLayouts) -> Option<(usize, MeshLayout)> {
        let [differs, differs_in_row] = [from[0] != to[0], from[1] != to[1]];
        let clashes = |layout: MeshLayout| {
            let MeshLayout::Sharded { axis } = layout else { return false };
            differs && (from[0].is_shard_of(axis.into()) || to[0].is_shard_of(axis.into()))
        };
        // From partial to partial, from shards to partial: by way of replicas.
        let toward = |dimension: usize| match (from[dimension], to[dimension]) {
            (MeshLayout::Replicated, layout) => layout,
            (_, MeshLayout::Partial(_)) => MeshLayout::Replicated,
            (_, layout) => layout,
        };
        if differs && clashes(from[1]) || from[1].is_partial() && differs_in_row && clashes(to[1]) {
            return Some((1, MeshLayout::Replicated));
        }
        let first = from[1].is_partial() || from[1] == MeshLayout::Replicated && !to[1].is_partial() && !clashes(to[1]);
        match (differs, differs_in_row) {
            (false, false) => None,
            (true, true) if first => Some((1, toward(1))),
            (true, _) => Some((0, toward(0))),
            (false, true) => Some((1, toward(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    const ALL: [MeshLayout; 5] = [
        MeshLayout::Replicated,
        MeshLayout::Sharded { axis: 0 },
        MeshLayout::Sharded { axis: 1 },
        MeshLayout::Partial(ReduceOp::Sum),
        MeshLayout::Partial(ReduceOp::Max),
    ];

    fn pairs() -> Vec<MeshLayouts> {
        ALL.iter().flat_map(|one| ALL.iter().map(|other| [*one, *other])).collect()
    }

    fn two_by_three() -> Mesh {
        Mesh::new(Workers::from_bits(0b1111_0011), 2).unwrap()
    }

    #[test]
    fn a_mesh_has_rows_and_columns_by_ascending_number() {
        let mesh = two_by_three();
        assert_eq!(mesh.groups(1).map(|row| row.to_string()).collect::<Vec<_>>(), ["[0, 1, 4]", "[5, 6, 7]"]);
        assert_eq!(mesh.groups(0).map(|one| one.to_string()).collect::<Vec<_>>(), ["[0, 5]", "[1, 6]", "[4, 7]"]);
        assert_eq!([4, 6, 3].map(|worker| mesh.coordinates(worker)), [Some([0, 2]), Some([1, 1]), None]);
        assert_eq!([mesh.size(0), mesh.size(1)], [2, 3]);
        assert_eq!(Mesh::new(Workers::first_of(5), 2), None);
        assert_eq!(Mesh::new(Workers::first_of(4), 0), None);
        assert_eq!(Mesh::new(Workers::NONE, 1), None);
    }

    #[test]
    fn both_dimensions_divide_a_tensor() {
        let mesh = two_by_three();
        let meta = Meta::new(Shape::new(&[12, 9]).unwrap(), DType::F32);
        let shard = |axis| MeshLayout::Sharded { axis };
        let dims = |layouts| mesh.local(layouts, &meta).shape.dims().to_vec();
        assert_eq!(dims([shard(0), shard(1)]), [6, 3]);
        assert_eq!(dims([shard(0), shard(0)]), [2, 9]);
        assert_eq!(dims([MeshLayout::Partial(ReduceOp::Sum), shard(1)]), [12, 3]);
        assert!(mesh.is_even([shard(0), shard(0)], &meta.shape));
        assert!(!mesh.is_even([shard(1), MeshLayout::Replicated], &meta.shape));
        assert!(!mesh.is_even([MeshLayout::Replicated, shard(2)], &meta.shape));
    }

    #[test]
    fn moves_lead_from_any_layouts_to_any_others() {
        for from in pairs() {
            for to in pairs() {
                let (mut at, mut moves) = (from, 0);
                while let Some((dimension, layout)) = Mesh::next_move(at, to) {
                    assert_ne!(at[dimension], layout, "{from:?} to {to:?}");
                    let moved = at[dimension];
                    // Parts are made of replicas only, and the shards of a row are within those of the rows.
                    assert!(moved == MeshLayout::Replicated || !layout.is_partial(), "{from:?} to {to:?}");
                    if let (0, MeshLayout::Sharded { axis }) = (dimension, at[1]) {
                        let axis = usize::from(axis);
                        assert!(!moved.is_shard_of(axis) && !layout.is_shard_of(axis), "{from:?} to {to:?}");
                    }
                    at[dimension] = layout;
                    moves += 1;
                    assert!(moves <= 4, "{from:?} to {to:?}");
                }
                assert_eq!(at, to);
            }
        }
    }

    #[test]
    fn parts_of_a_row_are_reduced_before_rows_are_unless_both_are_sums() {
        let (sum, max) = (MeshLayout::Partial(ReduceOp::Sum), MeshLayout::Partial(ReduceOp::Max));
        assert_eq!(Mesh::next_move([max, sum], [MeshLayout::Replicated; 2]), Some((1, MeshLayout::Replicated)));
        assert_eq!(Mesh::next_move([sum, MeshLayout::Sharded { axis: 0 }], [MeshLayout::Replicated; 2]).unwrap().0, 0);
    }
}
