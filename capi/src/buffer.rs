//! Buffers: bytes in memory that the daemon shares, so that nothing is copied on this side.

use crate::dtype::{self, gt_dtype};
use crate::session::{gt_session, inner};
use crate::status::{Failure, Result, gt_status, guard, reading, result_at, value_or};
use crate::tensor::{gt_tensor, meta_of, snapshot};
use gt_client::{ClientSession, Tensor};
use gt_ops::{DType, Meta};
use gt_shm::ArenaBlock;
use std::ffi::c_void;
use std::sync::Arc;

/// The elements of a tensor in memory that is shared with the daemon, in row-major order without gaps.
///
/// It is its owner's alone: the daemon looks at it only while a tensor is fetched to it or made of it. What it holds
/// counts against the session's arena until it is released. It outlives its tensor and its session.
pub struct gt_buffer {
    session: Arc<ClientSession>,
    block: ArenaBlock,
    meta: Meta,
}

impl gt_buffer {
    fn wrap(session: &Arc<ClientSession>, block: ArenaBlock, meta: Meta) -> *mut gt_buffer {
        Box::into_raw(Box::new(gt_buffer { session: session.clone(), block, meta }))
    }
}

/// Room for the elements of a tensor, to be written through gt_buffer_data() and given to gt_tensor_from_buffer().
///
/// What is there at first is unspecified. The buffer is the caller's, to be released with gt_buffer_release() unless a
/// tensor is made of it.
///
/// Errors: as gt_tensor_from_data().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_new(
    session: *const gt_session,
    dtype: gt_dtype,
    shape: *const i64,
    ndim: usize,
    buffer: *mut *mut gt_buffer,
) -> gt_status {
    guard(|| {
        // SAFETY: the caller's pointers, as the header asks for them.
        let (out, session, meta) = unsafe {
            (result_at(buffer, std::ptr::null_mut(), "buffer")?, inner(session)?, meta_of(dtype, shape, ndim)?)
        };
        *out = gt_buffer::wrap(session, session.block(meta)?, meta);
        Ok(())
    })
}

/// Waits for the elements of a tensor, where the daemon put them: nothing is copied here.
///
/// The buffer is the caller's, to be released with gt_buffer_release(). Later changes of the tensor are not seen in it,
/// and it may be written to.
///
/// Errors: as gt_tensor_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_fetch(tensor: *const gt_tensor, buffer: *mut *mut gt_buffer) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor and room for a handle.
        let (out, tensor) =
            unsafe { (result_at(buffer, std::ptr::null_mut(), "buffer")?, snapshot(tensor, "tensor")?) };
        let value = tensor.value()?;
        *out = gt_buffer::wrap(value.session(), value.session().download(&value)?, *value.meta());
        Ok(())
    })
}

/// Makes a tensor of a buffer without copying it, and releases it: on success, `*buffer` becomes NULL, and the memory
/// must not be touched any more.
///
/// Errors: GT_ERROR_DISCONNECTED; GT_ERROR_ARGUMENT, also for a GT_BOOL element that is neither 0 nor 1. If `*buffer`
/// is not NULL then, the buffer is still the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_from_buffer(buffer: *mut *mut gt_buffer, tensor: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: the caller's handle, and room for one.
        let (out, given) = unsafe { (result_at(tensor, std::ptr::null_mut(), "tensor")?, reading(buffer, "buffer")?) };
        // SAFETY: the handle is NULL or the caller's.
        check(unsafe { reading(*given, "*buffer") }?)?;
        // SAFETY: made by `gt_buffer::wrap`; the caller's handle becomes NULL, so it is not used again.
        let taken = unsafe { Box::from_raw(buffer.replace(std::ptr::null_mut())) };
        let gt_buffer { session, block, meta } = *taken;
        *out = gt_tensor::wrap(Tensor::new(session.upload_block(meta, block)?, None));
        Ok(())
    })
}

/// Whether a tensor can be made of a buffer.
fn check(buffer: &gt_buffer) -> Result<()> {
    // What fails here leaves the buffer to its owner.
    buffer.session.check_open()?;
    // SAFETY: no instruction names the block.
    let bytes = unsafe { buffer.block.as_slice() };
    if buffer.meta.dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
        return Err(Failure::argument("an element of GT_BOOL is neither 0 nor 1"));
    }
    Ok(())
}

/// Gives the memory of a buffer back; NULL is no error. What gt_buffer_data() returned must not be touched any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_release(buffer: *mut gt_buffer) {
    guard(|| {
        if !buffer.is_null() {
            // SAFETY: made by `gt_buffer::wrap`, and not used again, as the header asks.
            drop(unsafe { Box::from_raw(buffer) });
        }
        Ok(())
    });
}

/// The first of a buffer's bytes, aligned for every dtype; NULL of NULL. The pointer is good until the buffer is
/// released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_data(buffer: *const gt_buffer) -> *mut c_void {
    // SAFETY: the caller's buffer, or NULL.
    value_or(std::ptr::null_mut(), || unsafe { reading(buffer, "buffer") }.map(|buffer| buffer.block.as_ptr().cast()))
}

/// How many bytes there are; 0 of NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_bytes(buffer: *const gt_buffer) -> usize {
    // SAFETY: the caller's buffer, or NULL.
    value_or(0, || unsafe { reading(buffer, "buffer") }.map(|buffer| buffer.meta.bytes()))
}

/// The type of a buffer's elements; 0 of NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_dtype(buffer: *const gt_buffer) -> gt_dtype {
    // SAFETY: the caller's buffer, or NULL.
    value_or(0, || unsafe { reading(buffer, "buffer") }.map(|buffer| dtype::constant(buffer.meta.dtype)))
}
