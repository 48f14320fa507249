//! Strides of views as PyTorch would have them in memory, and the ops that views are made of.
//!
//! The daemon decides how a tensor lies in memory. Strides only answer what programs ask PyTorch: `stride()`,
//! `is_contiguous()`, and whether `view()` is possible without a copy.

use crate::value::TensorValue;
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, DType, Meta, Op, RANK_MAX, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// The distance between neighbouring elements along each axis, in elements.
pub type Strides = [isize; RANK_MAX];

/// The place of a view's elements in the memory that PyTorch would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLayout {
    pub(crate) strides: Strides,
    /// The index in memory of the first element.
    pub(crate) offset: isize,
    /// Whether PyTorch would have all elements of the storage in row-major order.
    pub(crate) in_order: bool,
}

/// One op of a view: a movement op, or a gather with its index.
#[derive(Clone)]
pub(crate) struct ViewOp {
    pub(crate) op: Op,
    pub(crate) attrs: Attrs,
    pub(crate) index: Option<Arc<TensorValue>>,
}

impl PartialEq for ViewOp {
    fn eq(&self, other: &ViewOp) -> bool {
        let same_index = match (&self.index, &other.index) {
            (Some(index), Some(other)) => Arc::ptr_eq(index, other),
            (index, other) => index.is_none() && other.is_none(),
        };
        same_index && self.op == other.op && self.attrs == other.attrs
    }
}

/// The ops of a view, in order. An index such as `x[1]` makes two, a slice and a reshape.
pub(crate) type ViewOps = SmallVec<[ViewOp; 2]>;

/// The layout after one op; none if PyTorch would have to copy.
pub(crate) fn layout_after(from: &Meta, layout: &MemoryLayout, op: &ViewOp) -> Option<MemoryLayout> {
    let mut offset = layout.offset;
    if let Attrs::Slice(spec) = &op.attrs {
        let rank = from.shape.rank();
        offset += (0..rank).map(|axis| spec.start[axis] as isize * layout.strides[axis]).sum::<isize>();
    }
    if let (Op::Reinterpret | Op::Bitcast, Attrs::DType(to)) = (op.op, &op.attrs) {
        offset = rescaled(offset, from.dtype, *to)?;
    }
    let strides = match (op.op, &op.attrs) {
        (Op::Bitcast, Attrs::DType(to)) => bit_strides(from, &layout.strides, *to),
        _ => strides_after(&from.shape, &layout.strides, op),
    };
    strides.map(|strides| MemoryLayout { strides, offset, in_order: layout.in_order })
}

/// A distance in elements of `from`, in elements of `to`; none if it is no whole number of these.
fn rescaled(distance: isize, from: DType, to: DType) -> Option<isize> {
    let bytes = distance * from.size() as isize;
    (bytes % to.size() as isize == 0).then_some(bytes / to.size() as isize)
}

/// The strides under which the same bytes are elements of `to`, if there are any.
fn bit_strides(from: &Meta, strides: &Strides, to: DType) -> Option<Strides> {
    if from.dtype.size() == to.size() {
        return Some(*strides);
    }
    let last = from.shape.rank().checked_sub(1)?;
    let mut out = [0; RANK_MAX];
    for (to_stride, stride) in out.iter_mut().zip(&strides[..last]) {
        *to_stride = rescaled(*stride, from.dtype, to)?;
    }
    out[last] = 1;
    (strides[last] == 1).then_some(out)
}

fn strides_after(from: &Shape, strides: &Strides, ViewOp { op, attrs, .. }: &ViewOp) -> Option<Strides> {
    let mut out = [0; RANK_MAX];
    match (op, attrs) {
        (Op::Permute, Attrs::Permutation(permutation)) => {
            for (to, axis) in out.iter_mut().zip(permutation).take(from.rank()) {
                *to = strides[*axis as usize];
            }
            Some(out)
        }
        (Op::Slice, Attrs::Slice(spec)) => {
            let SliceSpec { step, .. } = **spec;
            for axis in 0..from.rank() {
                out[axis] = strides[axis] * step[axis] as isize;
            }
            Some(out)
        }
        (Op::Expand, Attrs::Shape(to)) => {
            let lead = to.rank() - from.rank();
            for (axis, size) in from.dims().iter().enumerate() {
                out[lead + axis] = if to.dims()[lead + axis] == *size { strides[axis] } else { 0 };
            }
            Some(out)
        }
        (Op::Reshape, Attrs::Shape(to)) => reshape_strides(from, strides, to),
        (Op::Reinterpret, Attrs::DType(to)) if to.is_complex() => {
            // Two neighbours in memory are one complex number, so the other axes must be whole ones apart.
            let last = from.rank().checked_sub(1)?;
            let fits = strides[last] == 1 && strides[..last].iter().all(|stride| stride % 2 == 0);
            out[..last].iter_mut().zip(strides).for_each(|(to, stride)| *to = stride / 2);
            fits.then_some(out)
        }
        (Op::Reinterpret, Attrs::DType(to)) if to.is_float() => {
            // The operand is complex: only complex numbers are stored as floats.
            out[..from.rank()].iter_mut().zip(strides).for_each(|(to, stride)| *to = stride * 2);
            *out.get_mut(from.rank())? = 1;
            Some(out)
        }
        (Op::Reinterpret, _) => Some(*strides),
        _ => None,
    }
}

/// The strides under which the same memory has shape `to`, if there are any. As in PyTorch's `computeStride`, axes that
/// are contiguous with each other are merged, and the merged runs are split into the new sizes.
fn reshape_strides(from: &Shape, strides: &Strides, to: &Shape) -> Option<Strides> {
    if from.numel() == 0 || from.numel() == 1 {
        return Some(to.contiguous_strides());
    }
    // Runs of axes that are contiguous with each other: (elements, stride of the innermost axis).
    let mut runs = SmallVec::<[(usize, isize); RANK_MAX]>::new();
    for (axis, &size) in from.dims().iter().enumerate().filter(|(_, size)| **size != 1) {
        match runs.last_mut() {
            Some((elements, stride)) if *stride == strides[axis] * size as isize => {
                (*elements, *stride) = (*elements * size, strides[axis]);
            }
            _ => runs.push((size, strides[axis])),
        }
    }
    let mut out = [0; RANK_MAX];
    let mut axis = to.rank();
    while let Some((elements, mut stride)) = runs.pop() {
        let mut left = elements;
        while left > 1 {
            axis = axis.checked_sub(1)?;
            let size = to.dims()[axis];
            if left % size != 0 {
                return None;
            }
            out[axis] = stride;
            stride *= size as isize;
            left /= size;
        }
    }
    // The remaining axes have size 1.
    for axis in (0..axis).rev() {
        out[axis] = if axis + 1 < to.rank() { out[axis + 1] * to.dims()[axis + 1] as isize } else { 1 };
    }
    Some(out)
}

/// Whether the elements lie in row-major order without gaps.
pub(crate) fn is_contiguous(shape: &Shape, strides: &Strides) -> bool {
    let expected = shape.contiguous_strides();
    shape.numel() == 0
        || shape.dims().iter().enumerate().all(|(axis, size)| *size == 1 || strides[axis] == expected[axis])
}

/// Whether one element of memory appears at several indices, as after `expand()`.
pub(crate) fn repeats_elements(shape: &Shape, strides: &Strides) -> bool {
    shape.numel() > 0 && shape.dims().iter().zip(strides).any(|(size, stride)| *size > 1 && *stride == 0)
}

/// Whether an element of memory may appear at several indices, as in windows of `unfold()` that overlap: not if each
/// stride steps over all that the axes of smaller strides reach.
pub(crate) fn may_overlap(shape: &Shape, strides: &Strides) -> bool {
    let axes = shape.dims().iter().zip(strides).filter(|(size, _)| **size > 1);
    let mut axes: SmallVec<[(usize, usize); RANK_MAX]> =
        axes.map(|(size, stride)| (stride.unsigned_abs(), *size)).collect();
    axes.sort_unstable();
    let mut reach = 0;
    axes.iter().any(|(stride, size)| {
        let overlaps = *stride <= reach;
        reach += (size - 1) * stride;
        overlaps
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }
    fn strides(values: &[isize]) -> Strides {
        let mut all = [0; RANK_MAX];
        all[..values.len()].copy_from_slice(values);
        all
    }

    #[test]
    fn windows_overlap_where_a_step_is_smaller_than_what_they_reach() {
        let overlap = |dims: &[usize], steps: &[isize]| may_overlap(&shape(dims), &strides(steps));
        assert!(overlap(&[2, 3], &[1, 1]));
        assert!(overlap(&[2, 3], &[0, 1]));
        assert!(overlap(&[4, 3], &[2, 1]));
        assert!(!overlap(&[4, 3], &[3, 1]));
        assert!(!overlap(&[3, 4], &[1, 3]));
        assert!(!overlap(&[3], &[4]));
        assert!(!overlap(&[1, 3], &[0, -2]));
    }

    #[test]
    fn a_reshape_needs_no_copy_where_axes_can_be_merged() {
        let whole = shape(&[2, 3, 4]);
        let row_major = whole.contiguous_strides();
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[6, 4])), Some(strides(&[4, 1])));
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[2, 1, 12])), Some(strides(&[12, 12, 1])));
        assert_eq!(reshape_strides(&whole, &row_major, &shape(&[24, 1])), Some(strides(&[1, 1])));
        // The first two axes are transposed: they cannot be merged; the last axis can be split.
        let transposed = strides(&[4, 12, 1]);
        assert_eq!(reshape_strides(&shape(&[3, 2, 4]), &transposed, &shape(&[6, 4])), None);
        assert_eq!(
            reshape_strides(&shape(&[3, 2, 4]), &transposed, &shape(&[3, 2, 2, 2])),
            Some(strides(&[4, 12, 2, 1]))
        );
    }

    fn seen_by(op: Op, from: Meta, values: &[isize], offset: isize, to: DType) -> Option<(Strides, isize)> {
        let op = ViewOp { op, attrs: Attrs::DType(to), index: None };
        let layout = layout_after(&from, &MemoryLayout { strides: strides(values), offset, in_order: true }, &op)?;
        Some((layout.strides, layout.offset))
    }

    #[test]
    fn distances_are_counted_in_elements_of_the_dtype_that_bits_are_read_as() {
        let seen_as = |values: &[isize], offset, to| {
            seen_by(Op::Bitcast, Meta::new(shape(&[3, 4]), DType::F32), values, offset, to)
        };
        assert_eq!(seen_as(&[4, 1], 4, DType::F64), Some((strides(&[2, 1]), 2)));
        assert_eq!(seen_as(&[4, 1], 1, DType::U8), Some((strides(&[16, 1]), 4)));
        assert_eq!(seen_as(&[-4, 1], 8, DType::I16), Some((strides(&[-8, 1]), 16)));
        assert_eq!(seen_as(&[1, 3], 5, DType::I32), Some((strides(&[1, 3]), 5)));
        // An odd start, an odd distance, and elements that do not lie side by side.
        assert_eq!(seen_as(&[4, 1], 1, DType::F64), None);
        assert_eq!(seen_as(&[5, 1], 0, DType::F64), None);
        assert_eq!(seen_as(&[4, 2], 0, DType::I16), None);
    }

    #[test]
    fn parts_of_complex_numbers_are_neighbours() {
        let seen_as = |dims: &[usize], values: &[isize], offset, to: DType| {
            let from = match to {
                DType::F32 => DType::C64,
                _ => to.storage(),
            };
            seen_by(Op::Reinterpret, Meta::new(shape(dims), from), values, offset, to)
        };
        // The real parts of a column of complex numbers, and the complex numbers of these parts.
        assert_eq!(seen_as(&[3], &[4], 1, DType::F32), Some((strides(&[8, 1]), 2)));
        assert_eq!(seen_as(&[3, 2], &[8, 1], 2, DType::C64), Some((strides(&[4]), 1)));
        // Odd distances, parts that are not neighbours, and an odd start have no complex numbers in PyTorch's memory.
        assert_eq!(seen_as(&[3, 2], &[3, 1], 0, DType::C64), None);
        assert_eq!(seen_as(&[2, 2], &[2, 2], 0, DType::C64), None);
        assert_eq!(seen_as(&[3, 2], &[2, 1], 1, DType::C64), None);
        // Unsigned integers have the size of their storage.
        assert_eq!(seen_as(&[3], &[2], 1, DType::I16), Some((strides(&[2]), 1)));
        assert_eq!(seen_as(&[3], &[2], 1, DType::U64), Some((strides(&[2]), 1)));
    }

    #[test]
    fn contiguity_ignores_axes_of_size_one_and_emptiness() {
        assert!(is_contiguous(&shape(&[2, 1, 3]), &strides(&[3, 77, 1])));
        assert!(is_contiguous(&shape(&[0, 3]), &strides(&[9, 9])));
        assert!(!is_contiguous(&shape(&[2, 3]), &strides(&[1, 2])));
    }
}
