//! Gradients: recording, backward passes and accumulated gradients.

use crate::handles::held;
use crate::status::{CallError, Result, gt_status, guard, list_at, result_at, results_at, value_or};
use crate::tensor::{gt_tensor, snapshot};
use gt_client::backward::{self, BackwardOptions};
use gt_client::{Node, Tensor, grad_enabled, set_grad_enabled};
use gt_ops::OpError;
use std::sync::Arc;

/// Keep the saved values for another backward pass through the same operations.
pub const GT_RETAIN_GRAPH: u32 = 1;
/// Record the backward pass itself, for higher-order gradients. Implies GT_RETAIN_GRAPH.
pub const GT_CREATE_GRAPH: u32 = 2;

fn options(flags: u32) -> Result<BackwardOptions> {
    if flags & !(GT_RETAIN_GRAPH | GT_CREATE_GRAPH) != 0 {
        return Err(CallError::argument(format!("flags {flags:#x} has bits that mean nothing")));
    }
    let create_graph = flags & GT_CREATE_GRAPH != 0;
    Ok(BackwardOptions { retain_graph: create_graph || flags & GT_RETAIN_GRAPH != 0, create_graph })
}

/// Whether this thread records operations for gradients. True in a new thread.
#[unsafe(no_mangle)]
pub extern "C" fn gt_grad_enabled() -> bool {
    grad_enabled()
}

/// Turns recording on or off for this thread and returns the previous state:
///
///     bool before = gt_set_grad_enabled(false);
///     ...
///     gt_set_grad_enabled(before);
#[unsafe(no_mangle)]
pub extern "C" fn gt_set_grad_enabled(on: bool) -> bool {
    set_grad_enabled(on)
}

/// Sets whether a leaf, a tensor that no recorded operation made, requires a gradient.
///
/// Errors: GT_ERROR_RUNTIME for a dtype that is not floating, and for a tensor that is not a leaf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_set_requires_grad(tensor: *mut gt_tensor, on: bool) -> gt_status {
    guard(|| {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let tensor = unsafe { held(tensor, "tensor") }?;
        // The old node is dropped here, outside the lock.
        let _old = tensor.write(|tensor| tensor.set_requires_grad(on))?;
        Ok(())
    })
}

/// Whether a tensor requires a gradient; false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_requires_grad(tensor: *const gt_tensor) -> bool {
    // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
    value_or(false, || Ok(unsafe { held(tensor, "tensor") }?.read(Tensor::requires_grad)))
}

/// Computes the gradients of a tensor and accumulates them in the leaves.
///
/// `gradient` is the gradient of `tensor`; NULL means 1, for a tensor of one element. `flags` is 0, GT_RETAIN_GRAPH or
/// GT_CREATE_GRAPH.
///
/// Errors: GT_ERROR_RUNTIME for a tensor that does not require a gradient, for one of several elements without
/// `gradient`, for saved values that an earlier pass without GT_RETAIN_GRAPH has released, and for saved operands that
/// were assigned to since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_backward(
    tensor: *const gt_tensor,
    gradient: *const gt_tensor,
    flags: u32,
) -> gt_status {
    guard(|| {
        // SAFETY: both are NULL or valid handles, by the contract of the header.
        let (tensor, gradient) = unsafe { (snapshot(tensor, "tensor")?, optional(gradient)?) };
        Ok(backward::backward(&[(&tensor, gradient.as_ref())], None, options(flags)?)?)
    })
}

/// A tensor's snapshot; none for NULL.
///
/// # Safety
/// `tensor` is NULL or a handle that is not freed meanwhile.
unsafe fn optional(tensor: *const gt_tensor) -> Result<Option<Tensor>> {
    if tensor.is_null() {
        return Ok(None);
    }
    // SAFETY: `tensor` is a handle that is not freed meanwhile, which this function requires.
    unsafe { snapshot(tensor, "tensor") }.map(Some)
}

/// Computes the gradients of `tensor` with respect to `count` inputs, without accumulating them.
///
/// `gradient` and `flags` are those of gt_tensor_backward(). `count` is at most GT_COUNT_MAX, and `gradients` has room
/// for `count` handles, which the caller frees; a handle is NULL if no gradient reaches the input, and all are NULL on
/// failure.
///
/// Errors: as gt_tensor_backward(); GT_ERROR_RUNTIME for an input that does not require a gradient.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_gradients(
    tensor: *const gt_tensor,
    gradient: *const gt_tensor,
    inputs: *const *const gt_tensor,
    count: usize,
    flags: u32,
    gradients: *mut *mut gt_tensor,
) -> gt_status {
    guard(|| {
        // SAFETY: `gradients` is NULL or has room for `count` handles, by the contract of the header.
        let outs = unsafe { results_at(gradients, count, "gradients") }?;
        // SAFETY: the handles are NULL or valid and `inputs` has `count` of them, by the contract of the header.
        let (tensor, gradient, inputs) =
            unsafe { (snapshot(tensor, "tensor")?, optional(gradient)?, list_at(inputs, count, "inputs")?) };
        let node = |input: &*const gt_tensor| -> Result<Arc<Node>> {
            // SAFETY: the inputs are NULL or valid handles, by the contract of the header.
            let input = unsafe { held(*input, "an input") }?;
            let missing = || OpError::runtime("One of the differentiated Tensors does not require grad").into();
            input.read(Tensor::node).ok_or_else(missing)
        };
        let nodes = inputs.iter().map(node).collect::<Result<Vec<_>>>()?;
        let found = backward::grad(&[(&tensor, gradient.as_ref())], &nodes, options(flags)?)?;
        for (out, gradient) in outs.iter_mut().zip(found) {
            *out = gradient.map_or(std::ptr::null_mut(), gt_tensor::wrap);
        }
        Ok(())
    })
}

/// Returns the accumulated gradient of a tensor: a handle that the caller frees, or NULL if there is none.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_grad(tensor: *const gt_tensor, gradient: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for one, by the contract of the header.
        let (out, tensor) =
            unsafe { (result_at(gradient, std::ptr::null_mut(), "gradient")?, held(tensor, "tensor")?) };
        if let Some(gradient) = tensor.read(Tensor::grad) {
            // An independent handle, which does not show what later passes accumulate.
            *out = gt_tensor::wrap(gradient.at(gradient.node())?);
        }
        Ok(())
    })
}

/// Removes the accumulated gradient of a tensor.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_zero_grad(tensor: *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let tensor = unsafe { held(tensor, "tensor") }?;
        Ok(tensor.snapshot()?.set_grad(None)?)
    })
}

/// Makes backward passes keep the gradient of a tensor that is not a leaf, for gt_tensor_grad().
///
/// Errors: GT_ERROR_RUNTIME for a tensor that does not require a gradient.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_retain_grad(tensor: *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: `tensor` is NULL or a valid handle, by the contract of the header.
        let node = unsafe { held(tensor, "tensor") }?.read(Tensor::node);
        let missing = || OpError::runtime("can't retain_grad on Tensor that has requires_grad=False");
        node.ok_or_else(missing)?.retain_grad();
        Ok(())
    })
}

/// Returns a tensor with the same elements that is not on the tape: no gradient flows through it. No elements are
/// copied.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_detach(tensor: *const gt_tensor, detached: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: each is NULL, or a valid handle or room for one, by the contract of the header.
        let (out, tensor) =
            unsafe { (result_at(detached, std::ptr::null_mut(), "detached")?, snapshot(tensor, "tensor")?) };
        *out = gt_tensor::wrap(tensor.at(None)?);
        Ok(())
    })
}
