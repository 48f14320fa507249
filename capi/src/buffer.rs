//! Buffers: memory that is shared with the daemon, for transfers without a copy on this side.

use crate::dtype::{self, gt_dtype};
use crate::handles::{self, Handle, LiveHandles, held};
use crate::session::{gt_session, inner};
use crate::status::{CallError, Result, gt_status, guard, reading, result_at, value_or};
use crate::tensor::{gt_tensor, meta_of, snapshot};
use gt_client::{ClientSession, Tensor};
use gt_ops::{DType, Meta};
use gt_shm::ArenaBlock;
use std::ffi::c_void;
use std::sync::Arc;

/// The elements of a tensor in memory that is shared with the daemon, contiguous in row-major order.
///
/// Only the owner uses it: the daemon accesses it only while a tensor is fetched into it or made of it. Its bytes count
/// against the limit of the session's arena until it is released. It may outlive its tensor and its session.
pub struct gt_buffer {
    session: Arc<ClientSession>,
    block: ArenaBlock,
    meta: Meta,
}

impl Handle for gt_buffer {
    const NAME: &'static str = "buffer";
    fn live() -> &'static LiveHandles {
        static LIVE: LiveHandles = LiveHandles::new();
        &LIVE
    }
}

impl gt_buffer {
    fn wrap(session: &Arc<ClientSession>, block: ArenaBlock, meta: Meta) -> *mut gt_buffer {
        handles::give(gt_buffer { session: session.clone(), block, meta })
    }
}

/// Allocates a buffer for the elements of a tensor: write them through gt_buffer_data(), then pass the buffer to
/// gt_tensor_from_buffer().
///
/// The elements are uninitialized. The caller releases the buffer with gt_buffer_release() unless a tensor is made of
/// it.
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
        // SAFETY: each pointer is NULL or valid, and `shape` has `ndim` sizes, by the contract of the header.
        let (out, session, meta) = unsafe {
            (
                result_at(buffer, std::ptr::null_mut(), "buffer")?,
                inner(session)?,
                meta_of(dtype::required(dtype)?, shape, ndim)?,
            )
        };
        *out = gt_buffer::wrap(session, session.block(meta)?, meta);
        Ok(())
    })
}

/// Waits for the elements of a tensor and returns the buffer that the daemon has written them to, without a copy.
///
/// The caller releases the buffer with gt_buffer_release(), and may write to it. It does not show later changes of the
/// tensor.
///
/// Errors: as gt_tensor_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_fetch(tensor: *const gt_tensor, buffer: *mut *mut gt_buffer) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for one, by the contract of the header.
        let (out, tensor) =
            unsafe { (result_at(buffer, std::ptr::null_mut(), "buffer")?, snapshot(tensor, "tensor")?) };
        let value = tensor.value()?;
        *out = gt_buffer::wrap(value.session(), value.session().download(&value)?, *value.meta());
        Ok(())
    })
}

/// Makes a tensor of a buffer without copying it, and releases the buffer: on success `*buffer` becomes NULL, and the
/// memory must not be accessed any more.
///
/// Errors: GT_ERROR_DISCONNECTED; GT_ERROR_ARGUMENT, also for a GT_BOOL element that is neither 0 nor 1. If `*buffer`
/// is not NULL after an error, the caller still owns the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_from_buffer(buffer: *mut *mut gt_buffer, tensor: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for one, by the contract of the header.
        let (out, handle) = unsafe { (result_at(tensor, std::ptr::null_mut(), "tensor")?, reading(buffer, "buffer")?) };
        // SAFETY: `*buffer` is NULL or a valid buffer, by the contract of the header.
        check(unsafe { held(*handle, "*buffer") }?)?;
        // SAFETY: `buffer` is not NULL, so it points to a handle of the caller's, which no other thread uses, by the
        // contract of the header.
        let gt_buffer { session, block, meta } =
            unsafe { handles::take(buffer.replace(std::ptr::null_mut()), "*buffer") }?;
        *out = gt_tensor::wrap(Tensor::new(session.upload_block(meta, block)?, None));
        Ok(())
    })
}

/// Checks that a tensor can be made of a buffer, before the caller gives the buffer up.
fn check(buffer: &gt_buffer) -> Result<()> {
    buffer.session.check_open()?;
    // SAFETY: no instruction in flight names the block: `download` has waited for its fetch, and `upload_block` takes
    // the block out of its buffer.
    let bytes = unsafe { buffer.block.as_slice() };
    if buffer.meta.dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
        return Err(CallError::argument("an element of GT_BOOL is neither 0 nor 1"));
    }
    Ok(())
}

/// Releases a buffer; NULL is allowed. The memory of gt_buffer_data() must not be accessed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_release(buffer: *mut gt_buffer) {
    guard(|| {
        if !buffer.is_null() {
            // SAFETY: the last use of the buffer is over, by the contract of the header.
            drop(unsafe { handles::take(buffer, "buffer") }?);
        }
        Ok(())
    });
}

/// The address of a buffer's first byte, aligned for every dtype; NULL for NULL. The pointer is valid until the buffer
/// is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_data(buffer: *const gt_buffer) -> *mut c_void {
    // SAFETY: `buffer` is NULL or a valid buffer, by the contract of the header.
    value_or(std::ptr::null_mut(), || unsafe { held(buffer, "buffer") }.map(|buffer| buffer.block.as_ptr().cast()))
}

/// The size of a buffer in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_bytes(buffer: *const gt_buffer) -> usize {
    // SAFETY: `buffer` is NULL or a valid buffer, by the contract of the header.
    value_or(0, || unsafe { held(buffer, "buffer") }.map(|buffer| buffer.meta.bytes()))
}

/// The dtype of a buffer's elements; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_buffer_dtype(buffer: *const gt_buffer) -> gt_dtype {
    // SAFETY: `buffer` is NULL or a valid buffer, by the contract of the header.
    value_or(0, || unsafe { held(buffer, "buffer") }.map(|buffer| dtype::constant(buffer.meta.dtype)))
}
