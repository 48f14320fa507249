//! A tensor: a view of a buffer.

use crate::memory::Buffer;
use gt_ops::{Meta, RANK_MAX, Shape};

/// A handle of a tensor in host memory: a buffer, and where in it each element is.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) buffer: Buffer,
    pub(crate) meta: Meta,
    /// From the start of the buffer to the element at index 0.
    pub(crate) offset_bytes: usize,
    /// In bytes, one an axis; 0 repeats an element. Every element they reach lies in the buffer.
    pub(crate) strides: [isize; RANK_MAX],
    /// The elements follow each other in row-major order, without gaps.
    pub(crate) contiguous: bool,
}

impl Tensor {
    /// A tensor that fills `buffer` in row-major order.
    #[inline]
    pub(crate) fn contiguous(buffer: Buffer, meta: Meta) -> Tensor {
        let mut strides = [0; RANK_MAX];
        let mut step = meta.dtype.size() as isize;
        for (stride, size) in strides.iter_mut().zip(meta.shape.dims()).rev() {
            *stride = step;
            step *= (*size).max(1) as isize;
        }
        Tensor { buffer, meta, offset_bytes: 0, strides, contiguous: true }
    }

    /// The first element of a non-empty tensor.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        // Inside the buffer, by the invariant of `strides`; wrapping, as an empty tensor has no first element.
        self.buffer.as_ptr().wrapping_add(self.offset_bytes)
    }

    #[inline]
    pub(crate) fn numel(&self) -> usize {
        self.meta.shape.numel()
    }

    /// The same buffer seen as `shape` with other strides.
    pub(crate) fn view(&self, shape: Shape, offset_bytes: usize, strides: [isize; RANK_MAX]) -> Tensor {
        let meta = Meta::new(shape, self.meta.dtype);
        let contiguous = is_contiguous(&shape, &strides, meta.dtype.size());
        Tensor { buffer: self.buffer.clone(), meta, offset_bytes, strides, contiguous }
    }

    /// Strides under which the tensor broadcasts to `shape`.
    #[inline]
    pub(crate) fn broadcast_strides(&self, shape: &Shape) -> [isize; RANK_MAX] {
        let mut strides = [0; RANK_MAX];
        let lead = shape.rank() - self.meta.shape.rank();
        for (axis, &size) in self.meta.shape.dims().iter().enumerate() {
            if size != 1 {
                strides[lead + axis] = self.strides[axis];
            }
        }
        strides
    }

    /// The bytes of one element.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.meta.dtype.size()
    }
}

/// Whether elements of `size` bytes follow each other in row-major order.
pub(crate) fn is_contiguous(shape: &Shape, strides: &[isize; RANK_MAX], size: usize) -> bool {
    let mut step = size as isize;
    for (&stride, &dim) in strides.iter().zip(shape.dims()).rev() {
        if dim > 1 && stride != step {
            return false;
        }
        step *= dim.max(1) as isize;
    }
    true
}
