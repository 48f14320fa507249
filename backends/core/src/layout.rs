//! Views: the position of each element of a tensor in its buffer.

use crate::error::ExecError;
use crate::loops::Loops;
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, Meta, Op, RANK_MAX, Shape};

/// Shape, dtype, offset and strides of a tensor in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The shape and dtype.
    pub meta: Meta,
    /// Offset of the element at index 0 from the start of the buffer.
    pub offset_bytes: usize,
    /// Strides in bytes, one for each axis; 0 repeats an element. Every element that they reach lies in the buffer.
    pub strides: [isize; RANK_MAX],
    /// Whether the elements follow each other in row-major order, without gaps.
    pub contiguous: bool,
}

impl Layout {
    /// The row-major layout from the start of a buffer.
    #[inline]
    pub fn contiguous(meta: Meta) -> Layout {
        let mut strides = [0; RANK_MAX];
        let mut step = meta.dtype.size() as isize;
        for (stride, size) in strides.iter_mut().zip(meta.shape.dims()).rev() {
            *stride = step;
            step *= (*size).max(1) as isize;
        }
        Layout { meta, offset_bytes: 0, strides, contiguous: true }
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.meta.shape.numel()
    }

    /// Bytes of one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.meta.dtype.size()
    }

    /// The same buffer seen as `shape` with other strides.
    pub fn view(&self, shape: Shape, offset_bytes: usize, strides: [isize; RANK_MAX]) -> Layout {
        let meta = Meta::new(shape, self.meta.dtype);
        let contiguous = is_contiguous(&shape, &strides, meta.dtype.size());
        Layout { meta, offset_bytes, strides, contiguous }
    }

    /// Strides under which the tensor broadcasts to `shape`.
    #[inline]
    pub fn broadcast_strides(&self, shape: &Shape) -> [isize; RANK_MAX] {
        let mut strides = [0; RANK_MAX];
        let lead = shape.rank() - self.meta.shape.rank();
        for (axis, &size) in self.meta.shape.dims().iter().enumerate() {
            if size != 1 {
                strides[lead + axis] = self.strides[axis];
            }
        }
        strides
    }

    /// The result of a movement op as a view of the same buffer; `None` if no strides express it, so that the tensor
    /// must be copied to row-major order first.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for an op that is not a movement op.
    pub fn moved(&self, op: Op, attrs: &Attrs, out: &Shape) -> Result<Option<Layout>, ExecError> {
        match (op, attrs) {
            (Op::Reshape, _) => Ok(self.reshaped(out)),
            (Op::Expand, _) => Ok(Some(self.view(*out, self.offset_bytes, self.broadcast_strides(out)))),
            (Op::Permute, Attrs::Permutation(p)) => {
                let mut strides = [0; RANK_MAX];
                for (to, axis) in p[..out.rank()].iter().enumerate() {
                    strides[to] = self.strides[*axis as usize];
                }
                Ok(Some(self.view(*out, self.offset_bytes, strides)))
            }
            (Op::Bitcast, Attrs::DType(dtype)) => Ok(self.bits_as(Meta::new(*out, *dtype))),
            (Op::Slice, Attrs::Slice(spec)) => Ok(Some(self.boxed(spec))),
            _ => Err(ExecError::internal(format!("{} is no movement", op.name()))),
        }
    }

    /// The view that a strided slice selects.
    pub fn boxed(&self, spec: &SliceSpec) -> Layout {
        let mut offset = self.offset_bytes as isize;
        let mut strides = [0; RANK_MAX];
        let empty = spec.sizes.numel() == 0;
        for (axis, stride) in strides.iter_mut().enumerate().take(spec.sizes.rank()) {
            if !empty {
                offset += spec.start[axis] as isize * self.strides[axis];
            }
            // A step past an axis of one element is never taken, and may be too large to multiply.
            if spec.sizes.dims()[axis] > 1 {
                *stride = spec.step[axis] as isize * self.strides[axis];
            }
        }
        self.view(spec.sizes, offset as usize, strides)
    }

    /// The bytes of the elements viewed as those of `to`, whose last axis has as many, if strides can express that.
    fn bits_as(&self, to: Meta) -> Option<Layout> {
        let (old, new) = (self.size(), to.dtype.size());
        let mut strides = self.strides;
        if old != new && to.shape.numel() > 0 {
            let last = to.shape.rank().checked_sub(1)?;
            let dims = self.meta.shape.dims();
            let neighbours = dims[last] == 1 || strides[last] == old as isize;
            // Kernels read an element at a multiple of its size.
            let apart = (0..last).filter(|axis| dims[*axis] > 1).map(|axis| strides[axis]);
            let aligned = apart.chain([self.offset_bytes as isize]).all(|bytes| bytes % new as isize == 0);
            if !neighbours || !aligned {
                return None;
            }
            strides[last] = new as isize;
        }
        let contiguous = is_contiguous(&to.shape, &strides, new);
        Some(Layout { meta: to, offset_bytes: self.offset_bytes, strides, contiguous })
    }

    /// The tensor's elements viewed as `shape`, if strides can express that.
    fn reshaped(&self, shape: &Shape) -> Option<Layout> {
        let size = self.size() as isize;
        let mut strides = shape.contiguous_strides().map(|s| s * size);
        if self.contiguous || self.numel() == 0 {
            return Some(self.view(*shape, self.offset_bytes, strides));
        }
        // Merge the axes that follow each other in memory, then cut the new axes out of the merged ones.
        let loops = Loops::new(&self.meta.shape, [&self.strides]);
        let mut old = loops.sizes().len();
        let (mut left, mut step) = (1usize, 0isize);
        for (axis, &dim) in shape.dims().iter().enumerate().rev() {
            if dim == 1 {
                continue;
            }
            if left == 1 {
                old = old.checked_sub(1)?;
                left = loops.sizes()[old];
                step = loops.strides()[old][0];
            }
            if left % dim != 0 {
                return None;
            }
            strides[axis] = step;
            step *= dim as isize;
            left /= dim;
        }
        Some(self.view(*shape, self.offset_bytes, strides))
    }

    /// Checks that `len_bytes` bytes from `offset_bytes` on, in row-major order, are whole elements of the tensor.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if they are not.
    pub fn check_range(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), ExecError> {
        let (all, size) = (self.meta.bytes(), self.size());
        let fits = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= all);
        if !fits || !offset_bytes.is_multiple_of(size) || !len_bytes.is_multiple_of(size) {
            return Err(ExecError::internal(format!(
                "bytes {offset_bytes} to {offset_bytes} + {len_bytes} of a {} tensor of {all} bytes",
                self.meta.dtype
            )));
        }
        Ok(())
    }
}

/// Whether elements of `size` bytes follow each other in row-major order.
fn is_contiguous(shape: &Shape, strides: &[isize; RANK_MAX], size: usize) -> bool {
    let mut step = size as isize;
    for (&stride, &dim) in strides.iter().zip(shape.dims()).rev() {
        if dim > 1 && stride != step {
            return false;
        }
        step *= dim.max(1) as isize;
    }
    true
}
