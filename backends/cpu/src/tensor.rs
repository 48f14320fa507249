//! Tensors: strided views of buffers.

use crate::memory::Buffer;
use gt_backend::{ExecError, Layout};
use gt_ops::{Meta, RANK_MAX, Shape};
use std::ops::Deref;

/// A tensor in host memory: a shared buffer, and the layout of the elements in it.
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
    /// A tensor in row-major order from the start of `buffer`.
    #[inline]
    pub(crate) fn contiguous(buffer: Buffer, meta: Meta) -> CpuTensor {
        CpuTensor { buffer, layout: Layout::contiguous(meta) }
    }

    /// The address of the first element, if there is one.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        // The layout keeps every element inside the buffer. An empty tensor has none, so the addition may wrap.
        self.buffer.as_ptr().wrapping_add(self.offset_bytes)
    }

    /// Whether its memory can be written once its handle is given up: it is in row-major order, without other handles.
    pub(crate) fn is_writable(&self) -> bool {
        self.contiguous && self.buffer.is_unique()
    }

    /// A view of the same buffer with another shape, offset and strides.
    pub(crate) fn view(&self, shape: Shape, offset_bytes: usize, strides: [isize; RANK_MAX]) -> CpuTensor {
        self.with_layout(self.layout.view(shape, offset_bytes, strides))
    }

    /// A matrix with rows and columns exchanged.
    pub(crate) fn transposed(&self) -> Result<CpuTensor, ExecError> {
        let &[rows, columns] = self.meta.shape.dims() else {
            return Err(ExecError::internal("a matrix has two axes"));
        };
        let shape = Shape::new(&[columns, rows]).map_err(|e| ExecError::internal(e.to_string()))?;
        let mut strides = self.strides;
        strides.swap(0, 1);
        Ok(self.view(shape, self.offset_bytes, strides))
    }

    /// A view of the same buffer in another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> CpuTensor {
        CpuTensor { buffer: self.buffer.clone(), layout }
    }

    /// A tensor in the same memory with another dtype of the same size, for a result that takes over an operand's
    /// memory.
    pub(crate) fn reused(&self, meta: Meta) -> CpuTensor {
        self.with_layout(Layout { meta, ..self.layout })
    }
}
