//! Gradients.

use crate::status::{Failure, Result, gt_status, guard, reading, result_at, slice_at, value_or};
use crate::tensor::{gt_tensor, snapshot};
use gt_client::backward::{self, BackwardOptions};
use gt_client::{Node, Tensor, grad_enabled, set_grad_enabled};
use gt_ops::OpError;
use std::sync::Arc;

/// Another backward pass through the same operations will follow: what they kept for it stays.
pub const GT_RETAIN_GRAPH: u32 = 1;
/// Record the backward pass itself, for gradients of gradients. Implies GT_RETAIN_GRAPH.
pub const GT_CREATE_GRAPH: u32 = 2;

fn options(flags: u32) -> Result<BackwardOptions> {
    if flags & !(GT_RETAIN_GRAPH | GT_CREATE_GRAPH) != 0 {
        return Err(Failure::argument(format!("flags {flags:#x} has bits that mean nothing")));
    }
    let create_graph = flags & GT_CREATE_GRAPH != 0;
    Ok(BackwardOptions { retain_graph: create_graph || flags & GT_RETAIN_GRAPH != 0, create_graph })
}

/// Whether this thread records what it computes, for gradients. True in a new thread.
#[unsafe(no_mangle)]
pub extern "C" fn gt_grad_enabled() -> bool {
    grad_enabled()
}

/// Turns recording on or off for this thread and returns what it was:
///
///     bool before = gt_set_grad_enabled(false);
///     ...
///     gt_set_grad_enabled(before);
#[unsafe(no_mangle)]
pub extern "C" fn gt_set_grad_enabled(on: bool) -> bool {
    set_grad_enabled(on)
}

/// Starts or stops gradients flowing to a tensor that a user made (a leaf), rather than a recorded operation.
///
/// Errors: GT_ERROR_RUNTIME for integers and for a tensor that is no leaf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_set_requires_grad(tensor: *mut gt_tensor, on: bool) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor.
        let tensor = unsafe { reading(tensor, "tensor") }?;
        // What was replaced is dropped here, outside the lock.
        let _old = tensor.write(|tensor| tensor.set_requires_grad(on))?;
        Ok(())
    })
}

/// Whether gradients flow to a tensor; false of NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_requires_grad(tensor: *const gt_tensor) -> bool {
    // SAFETY: the caller's tensor, or NULL.
    value_or(false, || Ok(unsafe { reading(tensor, "tensor") }?.read(Tensor::requires_grad)))
}

/// Walks back from a tensor through everything recorded, adding up gradients in the leaves.
///
/// `gradient` is that of `tensor`; NULL means 1, for a tensor of one element. `flags` are 0, GT_RETAIN_GRAPH or
/// GT_CREATE_GRAPH.
///
/// Errors: GT_ERROR_RUNTIME for a tensor to which no gradient flows, for one of many elements without a gradient, for
/// operations that were walked through before without GT_RETAIN_GRAPH, and for an operand that was assigned to since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_backward(
    tensor: *const gt_tensor,
    gradient: *const gt_tensor,
    flags: u32,
) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensors.
        let (tensor, gradient) = unsafe { (snapshot(tensor, "tensor")?, optional(gradient)?) };
        Ok(backward::backward(&[(&tensor, gradient.as_ref())], None, options(flags)?)?)
    })
}

/// A tensor's snapshot; none of NULL.
///
/// # Safety
/// `tensor` is NULL or a tensor that is not freed meanwhile.
unsafe fn optional(tensor: *const gt_tensor) -> Result<Option<Tensor>> {
    if tensor.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { snapshot(tensor, "tensor") }.map(Some)
}

/// The gradients of `tensor` with respect to `count` inputs, added up nowhere.
///
/// `gradient` and `flags` are those of gt_tensor_backward(). `gradients` has room for `count` handles, which are the
/// caller's; NULL where no gradient flows, and everywhere on failure.
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
        // SAFETY: the caller's tensors, so many of them, and as much room.
        let (tensor, gradient, inputs) =
            unsafe { (snapshot(tensor, "tensor")?, optional(gradient)?, slice_at(inputs, count, "inputs")?) };
        let mut outs = Vec::with_capacity(inputs.len());
        for i in 0..inputs.len() {
            // SAFETY: the caller's room for `count` handles.
            outs.push(unsafe { result_at(gradients.wrapping_add(i), std::ptr::null_mut(), "gradients") }?);
        }
        let place = |input: &*const gt_tensor| -> Result<Arc<Node>> {
            // SAFETY: the caller's tensor.
            let input = unsafe { reading(*input, "an input") }?;
            let missing = || OpError::runtime("One of the differentiated Tensors does not require grad").into();
            input.read(Tensor::node).ok_or_else(missing)
        };
        let places = inputs.iter().map(place).collect::<Result<Vec<_>>>()?;
        let found = backward::grad(&[(&tensor, gradient.as_ref())], &places, options(flags)?)?;
        for (out, gradient) in outs.into_iter().zip(found) {
            *out = gradient.map_or(std::ptr::null_mut(), gt_tensor::wrap);
        }
        Ok(())
    })
}

/// The gradient that has been added up in a tensor: a handle that is the caller's, or NULL if there is none.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_grad(tensor: *const gt_tensor, gradient: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor and room for a handle.
        let (out, tensor) =
            unsafe { (result_at(gradient, std::ptr::null_mut(), "gradient")?, reading(tensor, "tensor")?) };
        if let Some(gradient) = tensor.read(Tensor::grad) {
            // Its own handle: what a later pass adds is not seen through it.
            *out = gt_tensor::wrap(gradient.at(gradient.node())?);
        }
        Ok(())
    })
}

/// Forgets the gradient that has been added up in a tensor.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_zero_grad(tensor: *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor.
        let tensor = unsafe { reading(tensor, "tensor") }?;
        Ok(tensor.snapshot()?.set_grad(None)?)
    })
}

/// Keeps the gradient of a tensor that a recorded operation made, for gt_tensor_grad().
///
/// Errors: GT_ERROR_RUNTIME for a tensor to which no gradient flows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_retain_grad(tensor: *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor.
        let node = unsafe { reading(tensor, "tensor") }?.read(Tensor::node);
        let missing = || OpError::runtime("can't retain_grad on Tensor that has requires_grad=False");
        node.ok_or_else(missing)?.retain_grad();
        Ok(())
    })
}

/// A tensor with the same elements, to which no gradient flows. Nothing is copied: only handles differ.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_tensor_detach(tensor: *const gt_tensor, detached: *mut *mut gt_tensor) -> gt_status {
    guard(|| {
        // SAFETY: the caller's tensor and room for a handle.
        let (out, tensor) =
            unsafe { (result_at(detached, std::ptr::null_mut(), "detached")?, snapshot(tensor, "tensor")?) };
        *out = gt_tensor::wrap(tensor.at(None)?);
        Ok(())
    })
}
