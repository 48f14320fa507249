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
    /// The places of a view's elements among those of `value`.
    part: Option<MemoryLayout>,
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
            let cut = view.ops.iter().all(is_cut) && lies_within(&view.layout, &view.meta.shape, base.meta());
            if cut && !base.is_batched() && is_known(&base, view.meta.bytes()) {
                return Ok(TensorElements { value: base, part: Some(view.layout), meta: view.meta });
            }
        }
        let value = self.value()?;
        Ok(TensorElements { meta: *value.meta(), value, part: None })
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
        for (op, attrs, shape) in
            [(Op::Slice, Attrs::Slice(Box::new(spec)), sizes), (Op::Reshape, Attrs::Shape(seen), seen)]
        {
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
        let bytes = self.value.session().host_bytes(&self.value, self.part.is_some())?;
        let Some(part) = &self.part else { return Ok(bytes) };
        Ok(gathered(&bytes, part, &self.meta.shape, self.meta.dtype.size()).into())
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

/// Whether an op of a view only leaves elements out or divides axes, so that the others keep their dtype and order.
fn is_cut(op: &ViewOp) -> bool {
    matches!((op.op, &op.attrs), (Op::Slice, Attrs::Slice(_)) | (Op::Reshape, Attrs::Shape(_)))
}

/// Whether a part of `shape` lies within the elements of its base, which another shape may have replaced.
fn lies_within(part: &MemoryLayout, shape: &Shape, base: &Meta) -> bool {
    let reach = |(size, stride): (&usize, &isize)| size.saturating_sub(1) as isize * stride;
    let reaches = || shape.dims().iter().zip(&part.strides).map(reach);
    let first = part.offset + reaches().filter(|reach| *reach < 0).sum::<isize>();
    let last = part.offset + reaches().filter(|reach| *reach > 0).sum::<isize>();
    part.in_order && first >= 0 && (last as usize) < base.shape.numel().max(1)
}

/// The elements of a part of `shape`, of `size` bytes each, row-major.
fn gathered(bytes: &[u8], part: &MemoryLayout, shape: &Shape, size: usize) -> Vec<u8> {
    let (dims, strides) = (shape.dims(), &part.strides);
    // The last axes whose elements lie behind each other are copied at once.
    let (mut outer, mut run) = (dims.len(), 1);
    while outer > 0 && (strides[outer - 1] == run as isize || dims[outer - 1] == 1) {
        outer -= 1;
        run *= dims[outer];
    }
    let mut out = Vec::with_capacity(shape.numel() * size);
    for i in 0..shape.numel().checked_div(run).unwrap_or(0) {
        let (mut rest, mut at) = (i, part.offset);
        for axis in (0..outer).rev() {
            at += (rest % dims[axis]) as isize * strides[axis];
            rest /= dims[axis];
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
    fn parts_are_read_in_steps_along_every_axis() {
        let bytes: Vec<u8> = (0..12u16).flat_map(u16::to_le_bytes).collect();
        let of = |offset: isize, strides: &[isize], sizes: &[usize]| -> Vec<u16> {
            let mut part = MemoryLayout { strides: [0; RANK_MAX], offset, in_order: true };
            part.strides[..strides.len()].copy_from_slice(strides);
            let found = gathered(&bytes, &part, &Shape::new(sizes).unwrap(), 2);
            found.as_chunks().0.iter().map(|raw| u16::from_le_bytes(*raw)).collect()
        };
        assert_eq!(of(0, &[4, 1], &[3, 4]), (0..12).collect::<Vec<_>>());
        assert_eq!(of(6, &[4, 1], &[1, 1]), [6]);
        assert_eq!(of(11, &[-8, -1], &[2, 3]), [11, 10, 9, 3, 2, 1]);
        assert_eq!(of(1, &[8, 2], &[2, 2]), [1, 3, 9, 11]);
        assert_eq!(of(4, &[4, 1], &[2, 4]), (4..12).collect::<Vec<_>>());
        assert_eq!(of(8, &[-8, 1], &[2, 4]), [8, 9, 10, 11, 0, 1, 2, 3]);
        assert_eq!(of(2, &[4], &[3]), [2, 6, 10]);
        assert!(of(5, &[4, 1], &[0, 3]).is_empty());
        assert_eq!(of(7, &[], &[]), [7]);

        let within = |offset: isize, strides: &[isize], sizes: &[usize]| {
            let mut part = MemoryLayout { strides: [0; RANK_MAX], offset, in_order: true };
            part.strides[..strides.len()].copy_from_slice(strides);
            let base = Meta::new(Shape::new(&[3, 4]).unwrap(), gt_ops::DType::F32);
            lies_within(&part, &Shape::new(sizes).unwrap(), &base)
        };
        assert!(within(0, &[4, 1], &[3, 4]) && within(11, &[-8, -1], &[2, 3]) && within(11, &[], &[]));
        assert!(!within(1, &[4, 1], &[3, 4]) && !within(7, &[-8, -1], &[2, 3]) && !within(12, &[], &[]));
    }
}
