//! The elements of tensors on the host: fetched from the daemon, or those of small tensors that are known here.
//!
//! Values are immutable. So the client keeps the bytes of a small value that it has uploaded or fetched, and does not
//! ask the daemon for them again. `x[i].item()` takes its element from those of `x` if that is small: a loop over the
//! elements waits for the daemon once.

use crate::error::Result;
use crate::handle::{Binding, Tensor};
use crate::strides::{ViewOp, ViewOps};
use crate::transfer::{HOST_COPY_BYTES_MAX, HostBytes};
use crate::value::TensorValue;
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, Meta, Op, Shape};
use std::sync::Arc;

/// The elements of a tensor, not yet waited for. An in-place operation that follows does not change them.
pub struct TensorElements {
    /// The tensor's value, or that of the small tensor of which it is a view.
    value: Arc<TensorValue>,
    /// The ops that lead from `value` to the tensor.
    ops: ViewOps,
    meta: Meta,
}

impl Tensor {
    /// The elements, to be fetched.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn elements(&self) -> Result<TensorElements> {
        if let Binding::View(view) = &self.binding {
            let (base, _) = view.base.read()?;
            let is_small = base.meta().bytes() <= HOST_COPY_BYTES_MAX && !base.is_batched();
            if is_small && view.ops.iter().all(runs_on_host) {
                return Ok(TensorElements { value: base, ops: view.ops.clone(), meta: view.meta });
            }
        }
        let value = self.value()?;
        Ok(TensorElements { meta: *value.meta(), value, ops: ViewOps::new() })
    }
}

impl TensorElements {
    /// The shape and dtype.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The bytes in row-major order. Waits for them, unless they are known here.
    ///
    /// # Errors
    /// As [`ClientSession::download`](crate::ClientSession::download).
    pub fn fetch(&self) -> Result<HostBytes> {
        let mut bytes = self.value.session().host_bytes(&self.value)?;
        let mut shape = self.value.meta().shape;
        for op in &self.ops {
            match &op.attrs {
                Attrs::Slice(spec) => {
                    bytes = sliced(&bytes, &shape, spec, self.meta.dtype.size()).into();
                    shape = spec.sizes;
                }
                Attrs::Shape(to) => shape = *to,
                _ => {}
            }
        }
        Ok(bytes)
    }
}

/// Whether [`TensorElements::fetch`] can compute a view's op.
fn runs_on_host(op: &ViewOp) -> bool {
    matches!((op.op, &op.attrs), (Op::Slice, Attrs::Slice(_)) | (Op::Reshape, Attrs::Shape(_)))
}

/// The bytes of a slice of a tensor of `shape`, whose elements have `size` bytes each.
fn sliced(bytes: &[u8], shape: &Shape, spec: &SliceSpec, size: usize) -> Vec<u8> {
    let (rank, strides) = (shape.rank(), shape.contiguous_strides());
    let first: i64 = (0..rank).map(|axis| spec.start[axis] * strides[axis] as i64).sum();
    let mut out = Vec::with_capacity(spec.sizes.numel() * size);
    for i in 0..spec.sizes.numel() {
        let (mut rest, mut at) = (i, first);
        for axis in (0..rank).rev() {
            let count = spec.sizes.dims()[axis];
            at += (rest % count) as i64 * spec.step[axis] * strides[axis] as i64;
            rest /= count;
        }
        out.extend_from_slice(&bytes[at as usize * size..][..size]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::RANK_MAX;

    #[test]
    fn slices_step_forwards_and_backwards_along_every_axis() {
        let shape = Shape::new(&[3, 4]).unwrap();
        let bytes: Vec<u8> = (0..12u16).flat_map(u16::to_le_bytes).collect();
        let of = |start: [i64; 2], step: [i64; 2], sizes: [usize; 2]| -> Vec<u16> {
            let mut spec = SliceSpec::corner(Shape::new(&sizes).unwrap());
            spec.start[..2].copy_from_slice(&start);
            spec.step[..2].copy_from_slice(&step);
            let found = sliced(&bytes, &shape, &spec, 2);
            found.as_chunks().0.iter().map(|raw| u16::from_le_bytes(*raw)).collect()
        };
        assert_eq!(of([0, 0], [1, 1], [3, 4]), (0..12).collect::<Vec<_>>());
        assert_eq!(of([1, 2], [1, 1], [1, 1]), [6]);
        assert_eq!(of([2, 3], [-2, -1], [2, 3]), [11, 10, 9, 3, 2, 1]);
        assert_eq!(of([0, 1], [2, 2], [2, 2]), [1, 3, 9, 11]);
        assert!(of([1, 1], [1, 1], [0, 3]).is_empty());
        let scalar = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes: Shape::SCALAR };
        assert_eq!(sliced(&[7, 8], &Shape::SCALAR, &scalar, 2), [7, 8]);
    }
}
