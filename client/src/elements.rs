//! The elements of tensors on the host: fetched from the daemon, or those that are known here.
//!
//! Values are immutable. So the client keeps the bytes of a small value that it has uploaded or fetched, and does not
//! ask the daemon for them again. `x[i].item()` takes its element from those of `x` if that is small: a loop over the
//! elements waits for the daemon once. A data set whose samples are read one by one is larger: it is fetched whole, and
//! kept, once fetching its parts has taken as long as that.

use crate::error::Result;
use crate::handle::{Binding, CachedView, Tensor, View};
use crate::storage::StorageVersion;
use crate::strides::{MemoryLayout, ViewOp, ViewOps, layout_after};
use crate::transfer::{HOST_COPY_BYTES_MAX, HostBytes};
use crate::value::TensorValue;
use gt_ops::build::{Index, resolve_index};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, Meta, Op, Shape};
use std::sync::Arc;

/// Fetching this many bytes takes as long as fetching a few: some 3 µs.
const BYTES_PER_FETCH: usize = 8 << 10;
/// Fewer parts than this say nothing of what follows.
const PARTS_MIN: usize = 8;
/// A value of more bytes than this is not kept, however often its parts are read.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The elements of a tensor, not yet waited for. An in-place operation that follows does not change them.
pub struct TensorElements {
    /// The tensor's value, or that of the tensor of which it is a view, whose bytes are known or to be kept.
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
            if !base.is_batched() && view.ops.iter().all(runs_on_host) && is_known(&base, view.meta.bytes()) {
                return Ok(TensorElements { value: base, ops: view.ops.clone(), meta: view.meta });
            }
        }
        let value = self.value()?;
        Ok(TensorElements { meta: *value.meta(), value, ops: ViewOps::new() })
    }
}

/// A prepared view of elements that are known here: see [`Tensor::plan_known_part`].
pub struct KnownPart {
    ops: ViewOps,
    meta: Meta,
    layout: MemoryLayout,
    version: StorageVersion,
    failures: u64,
}

/// Parts of a tensor whose elements are known here, as `x[i]`. A program may read the part's elements alone, so its
/// instructions are issued when something is computed of it.
impl Tensor {
    /// Prepares the part that an index selects, as [`Tensor::plan_view`] does; `None` where [`Tensor::plan_view`] has
    /// to: elements that are not known here, a view of a view, a tensor through which gradients flow, all elements.
    ///
    /// # Errors
    /// As [`Tensor::resolve`] and [`resolve_index`].
    pub fn plan_known_part(&self, parts: &[Index]) -> Result<Option<KnownPart>> {
        let (value, version) = match &self.binding {
            Binding::Own(value, _) => (value.clone(), StorageVersion::default()),
            Binding::Shared(storage, _) => storage.read()?,
            Binding::View(_) => return Ok(None),
        };
        if value.host_copy().is_none() || value.is_batched() || self.requires_grad() {
            return Ok(None);
        }
        let mut meta = *value.meta();
        let mut layout = MemoryLayout { strides: meta.shape.contiguous_strides(), offset: 0, in_order: true };
        let (spec, seen) = resolve_index(&meta.shape, parts)?;
        let sizes = spec.sizes;
        if sizes == meta.shape {
            return Ok(None);
        }
        let mut ops = ViewOps::new();
        for (op, attrs, shape) in [
            (Op::Slice, Attrs::Slice(Box::new(spec)), sizes),
            (Op::Reshape, Attrs::Shape(seen), seen),
        ] {
            if shape == meta.shape {
                continue;
            }
            let op = ViewOp { op, attrs, index: None };
            let Some(after) = layout_after(&meta, &layout, &op) else { return Ok(None) };
            (layout, meta.shape) = (after, shape);
            ops.push(op);
        }
        Ok(Some(KnownPart { ops, meta, layout, version, failures: value.session().failures() }))
    }

    /// The prepared part, which shares this handle's storage.
    pub fn known_part(&mut self, part: KnownPart) -> Tensor {
        let KnownPart { ops, meta, layout, version, failures } = part;
        let (base, autograd) = self.share();
        let cached = CachedView { value: None, node: None, version, failures };
        Tensor { binding: Binding::View(Box::new(View::new(base, autograd, (ops, 0), (meta, layout), cached))) }
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
        let mut bytes = self.value.session().host_bytes(&self.value, !self.ops.is_empty())?;
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

/// Whether a part of `len` bytes is taken from all bytes of a value, which are known or worth fetching.
fn is_known(value: &TensorValue, len: usize) -> bool {
    let whole = value.meta().bytes();
    if whole <= HOST_COPY_BYTES_MAX || value.host_copy().is_some() {
        return true;
    }
    // A large part takes longer to cut out of the bytes than to fetch.
    whole <= KEPT_BYTES_MAX
        && len <= BYTES_PER_FETCH
        && value.count_part_read() as usize > (whole / BYTES_PER_FETCH).max(PARTS_MIN)
}

/// Whether [`TensorElements::fetch`] can compute a view's op.
fn runs_on_host(op: &ViewOp) -> bool {
    matches!((op.op, &op.attrs), (Op::Slice, Attrs::Slice(_)) | (Op::Reshape, Attrs::Shape(_)))
}

/// The bytes of a slice of a tensor of `shape`, whose elements have `size` bytes each.
fn sliced(bytes: &[u8], shape: &Shape, spec: &SliceSpec, size: usize) -> Vec<u8> {
    let (rank, strides) = (shape.rank(), shape.contiguous_strides());
    // The last axes whose elements lie behind each other are copied at once.
    let (mut outer, mut run) = (rank, 1);
    while outer > 0 && spec.step[outer - 1] == 1 {
        outer -= 1;
        run *= spec.sizes.dims()[outer];
        if spec.sizes.dims()[outer] != shape.dims()[outer] {
            break;
        }
    }
    let first: i64 = (0..rank).map(|axis| spec.start[axis] * strides[axis] as i64).sum();
    let mut out = Vec::with_capacity(spec.sizes.numel() * size);
    for i in 0..spec.sizes.numel().checked_div(run).unwrap_or(0) {
        let (mut rest, mut at) = (i, first);
        for axis in (0..outer).rev() {
            let count = spec.sizes.dims()[axis];
            at += (rest % count) as i64 * spec.step[axis] * strides[axis] as i64;
            rest /= count;
        }
        out.extend_from_slice(&bytes[at as usize * size..][..run * size]);
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
        assert_eq!(of([1, 0], [1, 1], [2, 4]), (4..12).collect::<Vec<_>>());
        assert_eq!(of([1, 1], [1, 1], [2, 2]), [5, 6, 9, 10]);
        assert_eq!(of([2, 0], [-2, 1], [2, 4]), [8, 9, 10, 11, 0, 1, 2, 3]);
        assert!(of([1, 1], [1, 1], [0, 3]).is_empty());
        let scalar = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes: Shape::SCALAR };
        assert_eq!(sliced(&[7, 8], &Shape::SCALAR, &scalar, 2), [7, 8]);
    }
}
