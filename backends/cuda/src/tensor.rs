//! A tensor: a view of device memory.

use crate::checks::Checks;
use crate::driver::DevicePtr;
use crate::memory::Buffer;
use gt_backend::Layout;
use gt_ops::Meta;
use std::ops::Deref;

/// A handle of a tensor in device memory: a buffer, a layout in it, and the pending checks of its computation.
#[derive(Clone)]
pub struct CudaTensor {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
    pub(crate) checks: Checks,
    /// The transfer that writes it, by number; 0 for none. See [`crate::peer`].
    pub(crate) arrival: u64,
}

/// The alignment of an address, at most 16 bytes: more helps no kernel.
pub(crate) fn alignment_bytes(at: DevicePtr) -> u32 {
    1 << (at | 16).trailing_zeros()
}

impl Deref for CudaTensor {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        &self.layout
    }
}

impl CudaTensor {
    /// A contiguous tensor that fills `buffer`.
    #[inline]
    pub(crate) fn contiguous(buffer: Buffer, meta: Meta) -> CudaTensor {
        CudaTensor { buffer, layout: Layout::contiguous(meta), checks: Checks::default(), arrival: 0 }
    }

    /// The address of the first element of a non-empty tensor.
    #[inline]
    pub(crate) fn ptr(&self) -> DevicePtr {
        // `offset_bytes` lies inside the buffer, by the invariant of `strides`; `wrapping_add` serves empty tensors,
        // which have no first element.
        self.buffer.ptr().wrapping_add(self.offset_bytes as u64)
    }

    /// The alignment of the first element's address, at most 16 bytes.
    pub(crate) fn alignment_bytes(&self) -> u32 {
        alignment_bytes(self.ptr())
    }

    /// The same buffer in another layout.
    pub(crate) fn seen(&self, layout: Layout) -> CudaTensor {
        CudaTensor { buffer: self.buffer.clone(), layout, checks: self.checks.clone(), arrival: self.arrival }
    }

    /// The strides in elements: byte strides are multiples of the element's size.
    pub(crate) fn element_strides(&self) -> [i64; gt_ops::RANK_MAX] {
        self.strides.map(|stride| stride as i64 / self.size() as i64)
    }

    /// Whether no other handle shares the memory.
    #[inline]
    pub(crate) fn is_sole_owner(&self) -> bool {
        std::sync::Arc::strong_count(&self.buffer) == 1
    }
}
