//! A tensor: a view of a buffer.

use crate::memory::Buffer;
use gt_backend::Layout;
use gt_ops::{Meta, RANK_MAX, Shape};
use std::ops::Deref;

/// A handle of a tensor in host memory: a buffer, and where in it each element is.
#[derive(Clone)]
pub struct CpuTensor {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
}

impl Deref for CpuTensor {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        &self.layout
    }
}

impl CpuTensor {
    /// A tensor that fills `buffer` in row-major order.
    #[inline]
    pub(crate) fn contiguous(buffer: Buffer, meta: Meta) -> CpuTensor {
        CpuTensor { buffer, layout: Layout::contiguous(meta) }
    }

    /// The first element of a non-empty tensor.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        // Inside the buffer, by the invariant of `strides`; wrapping, as an empty tensor has no first element.
        self.buffer.as_ptr().wrapping_add(self.offset_bytes)
    }

    /// The same buffer seen as `shape` with other strides.
    pub(crate) fn view(&self, shape: Shape, offset_bytes: usize, strides: [isize; RANK_MAX]) -> CpuTensor {
        self.seen(self.layout.view(shape, offset_bytes, strides))
    }

    /// The same buffer in another layout.
    pub(crate) fn seen(&self, layout: Layout) -> CpuTensor {
        CpuTensor { buffer: self.buffer.clone(), layout }
    }

    /// The memory of this tensor, of the same shape, for elements of a dtype of the same size.
    pub(crate) fn reused(&self, meta: Meta) -> CpuTensor {
        self.seen(Layout { meta, ..self.layout })
    }
}
