//! Movement ops: views of the same buffer, slice scatter and concatenation.

use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::pairs::interleave;
use crate::strided::{SharedPtr, StridedCopy, copy_all, copy_to_dense, in_chunks};
use crate::tensor::CpuTensor;
use crate::tile::{TILE, Tile};
use gt_backend::{Input, Loops, scalar_bits};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, Meta, Op, RANK_MAX, Shape};

/// A slice is copied apart from the elements beside it where it has at least this share of all.
const LARGE_SLICE_SHARE: usize = 4;

/// The disjoint boxes of a tensor of `shape` that together are all elements beside a slice; none where the slice skips
/// elements, or has so few that all are copied at once.
fn boxes_beside(spec: &SliceSpec, shape: &Shape) -> Option<Vec<SliceSpec>> {
    if spec.sizes == *shape {
        return Some(Vec::new());
    }
    let rank = shape.rank();
    let skips = (0..rank).any(|axis| spec.sizes.dims()[axis] > 1 && spec.step[axis] != 1);
    if skips || spec.sizes.numel() == 0 || spec.sizes.numel() < shape.numel() / LARGE_SLICE_SHARE {
        return None;
    }
    let mut boxes = Vec::new();
    // Along each axis the boxes before and after the slice, which reach as far as the slice along the axes before it.
    let mut rest = SliceSpec::corner(*shape);
    for axis in 0..rank {
        let (size, start, len) = (shape.dims()[axis], spec.start[axis] as usize, spec.sizes.dims()[axis]);
        for (from, to) in [(0, start), (start + len, size)] {
            if from < to {
                let mut part = rest;
                part.start[axis] = from as i64;
                part.sizes = part.sizes.with_dim(axis, to - from);
                boxes.push(part);
            }
        }
        rest.start[axis] = start as i64;
        rest.sizes = rest.sizes.with_dim(axis, len);
    }
    Some(boxes)
}

impl CpuBackend {
    pub(crate) fn movement(&mut self, op: Op, t: &CpuTensor, attrs: &Attrs, out: &Meta) -> Result<CpuTensor> {
        match t.moved(op, attrs, &out.shape)? {
            Some(layout) => Ok(t.with_layout(layout)),
            None => Ok(CpuTensor::contiguous(self.private_copy(t, false)?.buffer, *out)),
        }
    }

    pub(crate) fn slice_scatter(
        &mut self,
        base: &CpuTensor,
        source: &Input<'_, CpuTensor>,
        spec: &SliceSpec,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let given_up = last_use & 1 == 1;
        let in_place = given_up && base.is_writable();
        let beside = if in_place { None } else { boxes_beside(spec, &base.meta.shape) };
        let out = match beside {
            // The slice is written below, and only the elements beside it are the base's.
            Some(_) => self.new_tensor(&base.meta)?,
            None => self.private_copy(base, given_up)?,
        };
        let window = out.with_layout(out.boxed(spec));
        // Little-endian, the first bytes are those of an element of any size.
        let number = match source {
            Input::Tensor(_) => 0,
            Input::Scalar(number) => scalar_bits(*number, base.meta.dtype),
        };
        let from = match source {
            Input::Tensor(source) => (source.ptr().cast_const(), &source.strides),
            Input::Scalar(_) => ((&raw const number).cast(), &[0; RANK_MAX]),
        };
        if spec.sizes.numel() == 0 {
            return Ok(out);
        }
        let mut copies = vec![StridedCopy::new(&spec.sizes, out.size(), (window.ptr(), &window.strides), from)];
        for part in beside.iter().flatten() {
            let (to, from) = (out.with_layout(out.boxed(part)), base.with_layout(base.boxed(part)));
            let to = (to.ptr(), &to.strides);
            copies.push(StridedCopy::new(&part.sizes, out.size(), to, (from.ptr().cast_const(), &from.strides)));
        }
        // SAFETY: both layouts of the first copy have the slice's shape, that of `number` by strides of 0; those of the
        // others are the same box of two tensors of one shape. `out` has the only handle of its buffer, so no copy
        // reads it, and the boxes are disjoint.
        unsafe { copy_all(&mut self.pool, &copies)? };
        Ok(out)
    }

    pub(crate) fn cat(&mut self, inputs: Inputs<'_, '_>, axis: usize, out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        if let [Input::Tensor(a), Input::Tensor(b)] = inputs
            && axis + 1 == out.shape.rank()
            && [a, b].iter().all(|t| t.meta.shape.dims()[axis] == 1)
            && out.shape.numel() > 0
            && matches!(out.dtype.size(), 4 | 8)
        {
            // The parts of complex numbers. Those that are not contiguous are gathered a tile at a time.
            let size = out.dtype.size();
            let to = SharedPtr::new(result.ptr());
            let parts =
                [a, b].map(|t| (SharedPtr::new(t.ptr()), t.contiguous, Loops::new(&t.meta.shape, [&t.strides])));
            in_chunks(&mut self.pool, out.shape.numel() / 2, 2 * size, |first, last| {
                let tiles = [Tile::new(), Tile::new()];
                for at in (first..last).step_by(TILE) {
                    let n = TILE.min(last - at);
                    let mut from = [std::ptr::null(); 2];
                    for (i, (part, contiguous, loops)) in parts.iter().enumerate() {
                        // SAFETY: the operand has elements `at..at + n`, for which a tile has room.
                        from[i] = unsafe {
                            if *contiguous {
                                part.get().add(at * size).cast_const()
                            } else {
                                copy_to_dense(tiles[i].start(), loops, 0, part.get(), (at, at + n), size);
                                tiles[i].start().cast_const()
                            }
                        };
                    }
                    // SAFETY: both operands have half as many elements as the result, which was just allocated; each
                    // chunk writes its own pairs.
                    unsafe { interleave(to.get().add(2 * at * size), from, n, size) };
                }
            })?;
            return Ok(result);
        }
        let (mut at, mut copies) = (result.ptr(), Vec::with_capacity(inputs.len()));
        for input in inputs {
            let t = tensor(input)?;
            if t.numel() > 0 {
                let (to, from) = ((at, &result.strides), (t.ptr().cast_const(), &t.strides));
                copies.push(StridedCopy::new(&t.meta.shape, t.size(), to, from));
            }
            at = at.wrapping_offset(t.meta.shape.dims()[axis] as isize * result.strides[axis]);
        }
        // SAFETY: shape inference made the result's axis the sum of the operands', so each operand has its own part of
        // the result, which was just allocated.
        unsafe { copy_all(&mut self.pool, &copies)? };
        Ok(result)
    }
}
