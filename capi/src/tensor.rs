//! Tensors: creation from bytes, metadata, reading and assignment.

use crate::call::created_shape;
use crate::dtype::{self, gt_dtype};
use crate::handles::{self, Handle, LiveHandles, held};
use crate::session::{gt_session, inner};
use crate::status::{CallError, Result, gt_status, guard, result_at, slice_at, value_or};
use gt_client::tape::next_number;
use gt_client::transfer::UploadSource;
use gt_client::{Repeats, Scope, Tensor};
use gt_ops::{DType, Meta, OpError, RANK_MAX, Scalar, build};
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{PoisonError, RwLock};

/// A tensor in the daemon.
///
/// No two tensors share elements: there are no views, and only gt_tensor_assign() changes an existing tensor. Threads
/// may use a tensor at the same time; it is freed once, after the last use.
pub struct gt_tensor {
    handle: RwLock<Tensor>,
}

impl Handle for gt_tensor {
    const NAME: &'static str = "tensor";
    fn live() -> &'static LiveHandles {
        static LIVE: LiveHandles = LiveHandles::new();
        &LIVE
    }
}

impl gt_tensor {
    pub(crate) fn wrap(tensor: Tensor) -> *mut gt_tensor {
        handles::give(gt_tensor { handle: RwLock::new(tensor) })
    }

    /// Reads the handle under its lock. `look` must not wait.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Tensor) -> R) -> R {
        look(&self.handle.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the handle under its lock. `change` must not wait; its result is dropped outside the lock.
    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut Tensor) -> R) -> R {
        change(&mut self.handle.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// An independent handle on the current value and node.
    pub(crate) fn snapshot(&self) -> Result<Tensor> {
        Ok(self.read(Tensor::snapshot)?)
    }
}

/// An independent handle on a tensor's current value and node.
///
/// # Safety
/// `tensor` is NULL or a handle that is not freed meanwhile.
pub(crate) unsafe fn snapshot(tensor: *const gt_tensor, name: impl Display) -> Result<Tensor> {
    // SAFETY: `tensor` is NULL or a handle that is not freed meanwhile, which this function requires.
    unsafe { held(tensor, name) }?.snapshot()
}

/// The shape and dtype in a C caller's arguments.
///
/// # Safety
/// `shape` is NULL or points to `ndim` numbers.
pub(crate) unsafe fn meta_of(dtype: DType, shape: *const i64, ndim: usize) -> Result<Meta> {
    if ndim > RANK_MAX {
        return Err(CallError::value(format!("a tensor has at most {RANK_MAX} dimensions, but {ndim} were asked for")));
    }
    // SAFETY: `shape` is NULL or points to `ndim` numbers, which this function requires.
    let sizes = unsafe { slice_at(shape, ndim, "shape") }?;
    Ok(Meta::new(created_shape(sizes)?, dtype))
}

fn wrong_size(name: &str, got: usize, meta: &Meta) -> CallError {
    CallError::argument(format!(
        "{name} has {got} bytes, but {} elements of {} in shape {} have {}",
        meta.shape.numel(),
        meta.dtype,
        meta.shape,
        meta.bytes()
    ))
}

/// Makes a tensor of the elements at `data`, which are contiguous in row-major order.
///
/// `bytes` is the size of `data`, which must match the shape and dtype. GT_BOOL elements are bytes 0 and 1, GT_FLOAT16
/// and GT_BFLOAT16 elements are their bits. `shape` may be NULL if `ndim` is 0, for a tensor of one element without
/// axes. The elements are copied before the call returns. The caller frees the tensor with gt_tensor_free().
///
/// Errors: GT_ERROR_ARGUMENT, GT_ERROR_VALUE for an invalid shape, GT_ERROR_OUT_OF_MEMORY, GT_ERROR_DISCONNECTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_from_data(
    session: *const gt_session,
    dtype: gt_dtype,
    shape: *const i64,
    ndim: usize,
    data: *const c_void,
    bytes: usize,
    tensor: *mut *mut gt_tensor,
) -> gt_status {
    guard(|| {
        // SAFETY: each pointer is NULL or valid, `shape` has `ndim` sizes and `data` has `bytes` bytes, by the contract
        // of the header.
        let (out, session, meta, data) = unsafe {
            (
                result_at(tensor, std::ptr::null_mut(), "tensor")?,
                inner(session)?,
                meta_of(dtype::required(dtype)?, shape, ndim)?,
                slice_at(data.cast::<u8>(), bytes, "data")?,
            )
        };
        if bytes != meta.bytes() {
            return Err(wrong_size("data", bytes, &meta));
        }
        if meta.dtype == DType::Bool && data.iter().any(|byte| *byte > 1) {
            return Err(CallError::argument("an element of GT_BOOL is neither 0 nor 1"));
        }
        let value = session.upload(meta, UploadSource::from(data))?;
        *out = gt_tensor::wrap(Tensor::new(value, None));
        Ok(())
    })
}

/// A tensor of a shape that is filled with one number; without a dtype, one of the default dtype.
///
/// # Safety
/// As [`gt_zeros`].
unsafe fn filled(
    session: *const gt_session,
    number: i64,
    shape: *const i64,
    ndim: usize,
    dtype: gt_dtype,
    tensor: *mut *mut gt_tensor,
) -> Result<()> {
    // SAFETY: each pointer is NULL or valid, and `shape` has `ndim` sizes, by the contract of the header.
    let (out, session, meta) = unsafe {
        (
            result_at(tensor, std::ptr::null_mut(), "tensor")?,
            inner(session)?,
            meta_of(dtype::optional(dtype)?.unwrap_or_else(DType::default_float), shape, ndim)?,
        )
    };
    let mut scope = Scope::new(session);
    let outcome = build::full(&mut scope, meta.shape, Scalar::Int(number), meta.dtype);
    *out = gt_tensor::wrap(scope.finish(outcome, |scope, val| scope.tensor(val))?);
    Ok(())
}

/// Makes a tensor filled with zeros. A `dtype` of 0 is GT_FLOAT32. `shape` may be NULL if `ndim` is 0, for a tensor of
/// one element without axes. The caller frees the tensor with gt_tensor_free(). gt_full() fills one with any number.
///
/// Errors: GT_ERROR_ARGUMENT, GT_ERROR_VALUE for an invalid shape, GT_ERROR_DISCONNECTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_zeros(
    session: *const gt_session,
    shape: *const i64,
    ndim: usize,
    dtype: gt_dtype,
    tensor: *mut *mut gt_tensor,
) -> gt_status {
    // SAFETY: the pointers are those of the caller, by the contract of the header.
    guard(|| unsafe { filled(session, 0, shape, ndim, dtype, tensor) })
}

/// Makes a tensor filled with ones. The arguments and errors are those of gt_zeros().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_ones(
    session: *const gt_session,
    shape: *const i64,
    ndim: usize,
    dtype: gt_dtype,
    tensor: *mut *mut gt_tensor,
) -> gt_status {
    // SAFETY: the pointers are those of the caller, by the contract of the header.
    guard(|| unsafe { filled(session, 1, shape, ndim, dtype, tensor) })
}

/// Frees a handle; NULL is allowed. The daemon frees the tensor when neither another handle nor a gradient that is
/// still to be computed needs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_free(tensor: *mut gt_tensor) {
    guard(|| {
        if !tensor.is_null() {
            // SAFETY: the last use of the tensor is over, by the contract of the header.
            drop(unsafe { handles::take(tensor, "tensor") }?);
        }
        Ok(())
    });
}

/// The number of axes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_ndim(tensor: *const gt_tensor) -> usize {
    // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
    value_or(0, || unsafe { meta(tensor) }.map(|meta| meta.shape.rank()))
}

/// The size of an axis, where negative axes count from the last; -1 for NULL or an axis out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_size(tensor: *const gt_tensor, axis: i64) -> i64 {
    value_or(-1, || {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let shape = unsafe { meta(tensor) }?.shape;
        let size = shape.dims().get(shape.axis(axis)?).copied();
        size.map(|size| size as i64).ok_or_else(|| OpError::index("the tensor has no axes").into())
    })
}

/// Writes the sizes of the axes to `shape`, which has room for GT_NDIM_MAX, and returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_shape(tensor: *const gt_tensor, shape: *mut i64) -> usize {
    value_or(0, || {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let sizes = unsafe { meta(tensor) }?.shape;
        for (i, size) in sizes.dims().iter().enumerate() {
            // SAFETY: `shape` is NULL or has room for GT_NDIM_MAX sizes, by the contract of the header.
            *unsafe { result_at(shape.wrapping_add(i), 0, "shape") }? = *size as i64;
        }
        Ok(sizes.rank())
    })
}

/// The number of elements; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_numel(tensor: *const gt_tensor) -> usize {
    // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
    value_or(0, || unsafe { meta(tensor) }.map(|meta| meta.shape.numel()))
}

/// The size of all elements in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_bytes(tensor: *const gt_tensor) -> usize {
    // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
    value_or(0, || unsafe { meta(tensor) }.map(|meta| meta.bytes()))
}

/// The dtype of the elements; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_dtype(tensor: *const gt_tensor) -> gt_dtype {
    // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
    value_or(0, || unsafe { meta(tensor) }.map(|meta| dtype::constant(meta.dtype)))
}

/// The shape and dtype of a tensor.
///
/// # Safety
/// `tensor` is NULL or a handle that is not freed meanwhile.
unsafe fn meta(tensor: *const gt_tensor) -> Result<Meta> {
    // SAFETY: `tensor` is NULL or a handle that is not freed meanwhile, which this function requires.
    Ok(unsafe { held(tensor, "tensor") }?.read(Tensor::meta))
}

/// Waits for the elements and copies them to `data`, contiguous in row-major order. `bytes` is the size of `data` and
/// must equal gt_tensor_bytes(). gt_tensor_fetch() avoids the copy.
///
/// Errors: the failure of an operation that the tensor depends on, for example GT_ERROR_INDEX for an index out of
/// range; GT_ERROR_ARGUMENT, GT_ERROR_OUT_OF_MEMORY, GT_ERROR_DISCONNECTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_read(tensor: *const gt_tensor, data: *mut c_void, bytes: usize) -> gt_status {
    guard(|| {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let value = unsafe { snapshot(tensor, "tensor") }?.value()?;
        if bytes != value.meta().bytes() {
            return Err(wrong_size("data", bytes, value.meta()));
        }
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `data` is NULL or has room for `bytes` bytes, by the contract of the header, and `bytes` is not 0.
        let _first = unsafe { result_at(data.cast::<u8>(), 0, "data") }?;
        let block = value.session().download(&value)?;
        // SAFETY: both have `bytes` bytes, as checked above; `download` has waited until the daemon has written the
        // block, which does not overlap the caller's memory.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), data.cast::<u8>(), bytes) };
        Ok(())
    })
}

/// Waits for the only element of a tensor and converts it to a double.
///
/// Errors: as gt_tensor_read(); GT_ERROR_RUNTIME for a tensor that does not have exactly one element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_item(tensor: *const gt_tensor, number: *mut f64) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for a number, by the contract of the header.
        let (tensor, out) = unsafe { (snapshot(tensor, "tensor")?, result_at(number, 0.0, "number")?) };
        *out = f64::from_le_bytes(one_element(&tensor, DType::F64)?);
        Ok(())
    })
}

/// Waits for the only element of a tensor and converts it to an integer, rounding toward zero.
///
/// Errors: as gt_tensor_item().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_item_int(tensor: *const gt_tensor, number: *mut i64) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for a number, by the contract of the header.
        let (tensor, out) = unsafe { (snapshot(tensor, "tensor")?, result_at(number, 0, "number")?) };
        *out = i64::from_le_bytes(one_element(&tensor, DType::I64)?);
        Ok(())
    })
}

/// The bytes of the only element, converted to `dtype`, which must be eight bytes long.
pub(crate) fn one_element(tensor: &Tensor, dtype: DType) -> Result<[u8; 8]> {
    let count = tensor.meta().shape.numel();
    if count != 1 {
        return Err(OpError::runtime(format!("a Tensor with {count} elements cannot be converted to Scalar")).into());
    }
    let value = tensor.at(None)?.apply(|g, v| build::cast(g, v, dtype))?.value()?;
    let mut bytes = [0; 8];
    value.session().download(&value)?.read(&mut bytes);
    Ok(bytes)
}

/// Replaces the elements of `tensor` by those of `source`, converted to its dtype and broadcast to its shape.
///
/// This is PyTorch's `tensor.copy_(source)`. It updates parameters in training: with recording off (see
/// gt_set_grad_enabled()), compute the new value and assign it. `source` is not changed.
///
/// Errors: GT_ERROR_RUNTIME for shapes that do not broadcast, and for a leaf that requires a gradient while recording
/// is on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_assign(tensor: *mut gt_tensor, source: *const gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: both are NULL or valid handles, by the contract of the header.
        let (tensor, source) = unsafe { (held(tensor, "tensor")?, snapshot(source, "source")?) };
        tensor.read(Tensor::check_in_place)?;
        let _operation = tensor.read(Tensor::begin_in_place);
        let meta = tensor.read(Tensor::meta);
        let sizes: Vec<i64> = meta.shape.dims().iter().map(|size| *size as i64).collect();
        let since = next_number();
        let new = source.apply(|g, v| {
            let v = build::cast(g, v, meta.dtype)?;
            if g.meta(v).shape == meta.shape { Ok(v) } else { build::expand(g, v, &sizes) }
        })?;
        let new = tensor.read(|tensor| tensor.overwritten_with(new))?;
        let plan = tensor.read(|tensor| tensor.plan_rebind(new, Some(since), Repeats::Refused))?;
        tensor.write(|tensor| tensor.rebind(plan)).finish()?;
        Ok(())
    })
}

/// Returns a tensor with the same elements, through which gradients flow. No elements are copied.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_clone(tensor: *const gt_tensor, clone: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for one, by the contract of the header.
        let (out, tensor) = unsafe { (result_at(clone, std::ptr::null_mut(), "clone")?, snapshot(tensor, "tensor")?) };
        *out = gt_tensor::wrap(tensor.copied()?);
        Ok(())
    })
}
