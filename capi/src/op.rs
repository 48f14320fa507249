//! [`gt_op`], the function that calls any op of the op table, and the descriptions of the ops.

use crate::call::{CallAttributes, call, check_count, reads};
use crate::dtype::{self, gt_dtype};
use crate::session::{gt_session, optional_inner, session_for};
use crate::status::{CallError, Result, gt_status, guard, reading, result_at, slice_at, text_at, value_or};
use crate::tensor::{gt_tensor, one_element, snapshot};
use gt_client::{Scope, Tensor};
use gt_ops::instruction::{INPUTS_MAX, LossReduction};
use gt_ops::row::{Class, ROWS};
use gt_ops::{Arg, Op, OpError, RANK_MAX, Scalar, build};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// The most axes a tensor has.
pub const GT_NDIM_MAX: usize = 8;
const _: () = assert!(GT_NDIM_MAX == RANK_MAX);

/// An omitted entry of the lists `start`, `stop` and `step`, as in Python's `a[::2]`.
pub const GT_OMIT: i64 = i64::MIN;
const _: () = assert!(GT_OMIT == crate::call::OMIT);

/// An operation: one of the constants GT_OP_ADD etc. Their numbers never change.
pub type gt_opcode = i32;

/// The kind of an operand.
pub type gt_operand_kind = i32;
/// An omitted optional operand.
pub const GT_OPERAND_NONE: gt_operand_kind = 0;
/// A tensor.
pub const GT_OPERAND_TENSOR: gt_operand_kind = 1;
/// A floating-point number.
pub const GT_OPERAND_NUMBER: gt_operand_kind = 2;
/// An integer.
pub const GT_OPERAND_INTEGER: gt_operand_kind = 3;
/// A boolean: `integer` is 0 for false, anything else for true.
pub const GT_OPERAND_BOOLEAN: gt_operand_kind = 4;

/// An operand: a tensor or a number. gt_of(), gt_number(), gt_integer() and gt_boolean() make one.
///
/// Numbers take part in type promotion as Python numbers do in PyTorch: the 2 of `x * 2` takes the dtype of `x`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_operand {
    /// The kind: it selects the field that is read.
    pub kind: gt_operand_kind,
    /// The tensor, for GT_OPERAND_TENSOR. The caller keeps ownership.
    pub tensor: *const gt_tensor,
    /// The number, for GT_OPERAND_NUMBER.
    pub number: f64,
    /// The number, for GT_OPERAND_INTEGER and GT_OPERAND_BOOLEAN.
    pub integer: i64,
}

/// A list of numbers. The caller keeps ownership; it is read only during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_ints {
    /// The first number; may be NULL if `len` is 0.
    pub data: *const i64,
    /// The number of numbers.
    pub len: usize,
}

/// The reduction of a loss over the samples.
pub type gt_reduction = i32;
/// The mean, weighted by the class weights if there are any.
pub const GT_REDUCTION_MEAN: gt_reduction = 0;
/// The sum.
pub const GT_REDUCTION_SUM: gt_reduction = 1;
/// No reduction: one loss per sample.
pub const GT_REDUCTION_NONE: gt_reduction = 2;

/// The attributes of an operation. Zero is the default of every field: `gt_attrs attrs = {0};`.
///
/// An operation refuses attributes that it does not read: gt_op_attrs() lists those it does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_attrs {
    /// The dtype of the result, for `cast` and for operations that create tensors. 0: the dtype of their numbers.
    pub dtype: gt_dtype,
    /// The reduction of a class loss.
    pub reduction: gt_reduction,
    /// The axis of an operation along one axis; negative counts from the last.
    pub axis: i64,
    /// The shape of the result, for `reshape`, where one size may be -1, for `expand`, where -1 keeps a size, and for
    /// operations that create tensors. For `convolution_input` and `sum_pool_input`, the spatial sizes of the result.
    pub shape: gt_ints,
    /// The axes of a reduction, all if empty; the order of the axes for `permute`.
    pub axes: gt_ints,
    /// The first index along each axis, for `slice` and `slice_scatter`. Axes without an entry are whole.
    pub start: gt_ints,
    /// The end along each axis, exclusive.
    pub stop: gt_ints,
    /// The step along each axis; negative steps go backwards.
    pub step: gt_ints,
    /// The sizes of the window. In this list and the next four, one entry stands for all axes.
    pub kernel: gt_ints,
    /// The stride of the window. The default is 1 for convolutions and the window's size for pools.
    pub stride: gt_ints,
    /// The padding before the input, and after it unless `padding_end` is given.
    pub padding: gt_ints,
    /// The padding after the input.
    pub padding_end: gt_ints,
    /// The distance between neighbouring elements of a window.
    pub dilation: gt_ints,
    /// The number of groups of channels that are convolved separately; 0 means 1.
    pub groups: i64,
    /// The class whose samples are ignored, if `ignores` is 1.
    pub ignore_index: i64,
    /// The part of the target distribution that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// The factor of the scores of `attention`; 0 means 1 / sqrt(features).
    pub scale: f64,
    /// 1: reduced axes remain, with size 1.
    pub keepdim: u8,
    /// 1: query `i` of `attention` attends to keys 0 to `i` only.
    pub causal: u8,
    /// 1: `ignore_index` is used.
    pub ignores: u8,
    /// Must be zero.
    pub reserved: [u8; 61],
}

/// The attributes of a C caller; the defaults for NULL.
///
/// # Safety
/// `attrs` is NULL or points to attributes whose lists have `len` numbers each and stay valid while the result lives.
unsafe fn attributes<'a>(attrs: *const gt_attrs) -> Result<CallAttributes<'a>> {
    if attrs.is_null() {
        return Ok(CallAttributes::default());
    }
    // SAFETY: `attrs` is not NULL, so it points to attributes, which this function requires.
    let attrs = unsafe { reading(attrs, "attrs") }?;
    if attrs.reserved.iter().any(|byte| *byte != 0) {
        return Err(CallError::argument("attrs.reserved is not zero: begin with gt_attrs attrs = {0}"));
    }
    let list = |ints: gt_ints, name: &str| {
        if ints.len > GT_NDIM_MAX {
            let text = format!("{name} has {} entries, but a tensor has at most {GT_NDIM_MAX} dimensions", ints.len);
            return Err(CallError::value(text));
        }
        // SAFETY: the lists of `attrs` have `len` numbers, which this function requires.
        unsafe { slice_at(ints.data, ints.len, name) }
    };
    Ok(CallAttributes {
        dtype: dtype::optional(attrs.dtype)?,
        reduction: match attrs.reduction {
            GT_REDUCTION_MEAN => None,
            GT_REDUCTION_SUM => Some(LossReduction::Sum),
            GT_REDUCTION_NONE => Some(LossReduction::None),
            other => return Err(CallError::argument(format!("{other} is no reduction"))),
        },
        axis: attrs.axis,
        keepdim: attrs.keepdim != 0,
        causal: attrs.causal != 0,
        shape: list(attrs.shape, "attrs.shape")?,
        axes: list(attrs.axes, "attrs.axes")?,
        start: list(attrs.start, "attrs.start")?,
        stop: list(attrs.stop, "attrs.stop")?,
        step: list(attrs.step, "attrs.step")?,
        kernel: list(attrs.kernel, "attrs.kernel")?,
        stride: list(attrs.stride, "attrs.stride")?,
        padding: list(attrs.padding, "attrs.padding")?,
        padding_end: list(attrs.padding_end, "attrs.padding_end")?,
        dilation: list(attrs.dilation, "attrs.dilation")?,
        groups: attrs.groups,
        ignore_index: (attrs.ignores != 0).then_some(attrs.ignore_index),
        label_smoothing: attrs.label_smoothing,
        scale: attrs.scale,
    })
}

/// An operand of a call, converted from its C form.
enum CallInput {
    Tensor(Tensor),
    Number(Scalar),
}

/// # Safety
/// If the operand is a tensor, the handle is not freed during the call.
unsafe fn input(i: usize, operand: &gt_operand) -> Result<Option<CallInput>> {
    Ok(Some(match operand.kind {
        GT_OPERAND_NONE => return Ok(None),
        GT_OPERAND_TENSOR => {
            // SAFETY: the handle is not freed during this call, which this function requires.
            CallInput::Tensor(unsafe { snapshot(operand.tensor, format_args!("operand {i}")) }?)
        }
        GT_OPERAND_NUMBER => CallInput::Number(Scalar::Float(operand.number)),
        GT_OPERAND_INTEGER => CallInput::Number(Scalar::Int(operand.integer)),
        GT_OPERAND_BOOLEAN => CallInput::Number(Scalar::Bool(operand.integer != 0)),
        other => return Err(CallError::argument(format!("operand {i} has kind {other}, which is none"))),
    }))
}

/// The most operands of a call. Only `cat` takes many.
const OPERANDS_MAX: usize = INPUTS_MAX * INPUTS_MAX;

fn op_of(op: gt_opcode) -> Result<Op> {
    let found = u16::try_from(op).ok().and_then(Op::from_wire);
    found.ok_or_else(|| CallError::argument(format!("there is no operation {op}")))
}

/// Performs an operation of the op table. The functions gt_add() etc. call it.
///
/// Dtypes are promoted and shapes broadcast as PyTorch does. The call is asynchronous: the daemon computes the results
/// in the order of the calls. `session` is required if no operand is a tensor, and may be NULL otherwise. Optional
/// operands at the end may be omitted, or be GT_OPERAND_NONE. `attrs` may be NULL. The caller frees `result` with
/// gt_tensor_free(); it is NULL on failure.
///
/// Only `nonzero` waits, because its shape depends on the elements of its operand.
///
/// Errors: wrong operands and attributes, at once and with PyTorch's messages; GT_ERROR_ARGUMENT,
/// GT_ERROR_DISCONNECTED. Failures that only execution can detect, for example an index out of range, are reported
/// where the result is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_op(
    session: *const gt_session,
    op: gt_opcode,
    operands: *const gt_operand,
    count: usize,
    attrs: *const gt_attrs,
    result: *mut *mut gt_tensor,
) -> gt_status {
    guard(|| {
        // SAFETY: `result` is NULL or points to a handle of the caller, by the contract of the header.
        let out = unsafe { result_at(result, std::ptr::null_mut(), "result") }?;
        let op = op_of(op)?;
        if count > OPERANDS_MAX {
            return Err(CallError::argument(format!("{count} operands are more than {OPERANDS_MAX}")));
        }
        check_count(op, count)?;
        // SAFETY: `operands` points to `count` operands and `attrs` is NULL or valid, by the contract of the header.
        let (operands, attributes) = unsafe { (slice_at(operands, count, "operands")?, attributes(attrs)?) };
        let mut inputs = Vec::with_capacity(operands.len());
        let mut left_out = None;
        for (i, operand) in operands.iter().enumerate() {
            // SAFETY: the handles of the operands are valid during the call, by the contract of the header.
            match (unsafe { input(i, operand) }?, left_out) {
                (None, _) => left_out = left_out.or(Some(i)),
                (Some(_), Some(i)) => {
                    return Err(OpError::type_(format!("{}: operand {i} is left out", op.name())).into());
                }
                (Some(input), None) => inputs.push(input),
            }
        }
        // SAFETY: no thread closes the session meanwhile, by the contract of the header.
        let session = unsafe { optional_inner(session) }?;
        *out = gt_tensor::wrap(run(session, op, &inputs, &attributes)?);
        Ok(())
    })
}

fn run(
    session: Option<&std::sync::Arc<gt_client::ClientSession>>,
    op: Op,
    inputs: &[CallInput],
    attributes: &CallAttributes<'_>,
) -> Result<Tensor> {
    let first = inputs.iter().find_map(|input| match input {
        CallInput::Tensor(tensor) => Some(tensor),
        CallInput::Number(_) => None,
    });
    if let (Op::CrossEntropy | Op::NllLoss, Some(CallInput::Tensor(weight))) = (op, inputs.get(2))
        && weight.requires_grad()
    {
        return Err(OpError::runtime("the derivative for 'weight' is not implemented").into());
    }
    if op == Op::Nonzero {
        return nonzero(inputs, attributes);
    }
    if let ([CallInput::Tensor(a), CallInput::Tensor(b)], Class::Elementwise, 2) =
        (inputs, op.row().class, op.row().operands)
        && attributes.names_set().next().is_none()
    {
        // The client's hot path: no scope and no builder.
        return Ok(a.binary(op, b)?);
    }
    let mut scope = Scope::new(&session_for(session, first.map(Tensor::session))?);
    let mut args = Vec::with_capacity(inputs.len());
    for input in inputs {
        args.push(match input {
            CallInput::Tensor(tensor) => scope.add(tensor)?.into(),
            CallInput::Number(number) => Arg::Scalar(*number),
        });
    }
    let outcome = call(&mut scope, op, &args, attributes);
    Ok(scope.finish(outcome, |scope, v| scope.tensor(v))?)
}

/// The indices of the elements that are not 0. Waits for their number, which the shape of the result needs.
fn nonzero(inputs: &[CallInput], attributes: &CallAttributes<'_>) -> Result<Tensor> {
    let [CallInput::Tensor(tensor)] = inputs else {
        return Err(OpError::type_("nonzero: takes one tensor").into());
    };
    if attributes.names_set().next().is_some() {
        return Err(OpError::type_("nonzero: takes no attributes").into());
    }
    let mask = tensor.at(None)?.apply(|g, v| build::cast(g, v, gt_ops::DType::Bool))?;
    let count = mask.apply(|g, v| build::reduce(g, Op::Sum, v, None, false))?;
    let count = i64::from_le_bytes(one_element(&count, gt_ops::DType::I64)?);
    Ok(mask.apply(|g, v| build::nonzero(g, v, count as usize))?)
}

/// The descriptions of an op as C strings.
struct OpText {
    name: CString,
    doc: CString,
    attrs: CString,
}

/// The descriptions, in the order of [`ROWS`].
static TEXTS: LazyLock<Vec<OpText>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    ROWS.iter()
        .map(|row| OpText { name: text(row.name), doc: text(row.doc), attrs: text(&reads(row.op).join(" ")) })
        .collect()
});

fn text_of(op: gt_opcode) -> Result<&'static OpText> {
    let op = op_of(op)?;
    let index = ROWS.iter().position(|row| row.op == op);
    index.and_then(|index| TEXTS.get(index)).ok_or_else(|| CallError::argument("a row without a text"))
}

/// The number of operations.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_count() -> usize {
    ROWS.len()
}

/// The operation at an index from 0 to gt_op_count() - 1; 0, which is not an operation, for any other index.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_at(index: usize) -> gt_opcode {
    ROWS.get(index).map_or(0, |row| row.op as gt_opcode)
}

/// The operation called `name`, for example "add"; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_op_by_name(name: *const c_char) -> gt_opcode {
    value_or(0, || {
        // SAFETY: `name` is NULL or a NUL-terminated string, by the contract of the header.
        let name = unsafe { text_at(name, "name") }?.unwrap_or_default();
        Op::from_name(name)
            .map(|op| op as gt_opcode)
            .ok_or_else(|| CallError::argument(format!("there is no operation called {name:?}")))
    })
}

/// The name of an operation; NULL if there is no such operation. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_name(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.name.as_ptr()))
}

/// A description of an operation; NULL if there is no such operation. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_doc(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.doc.as_ptr()))
}

/// The names of the attributes that an operation reads, separated by spaces; NULL if there is no such operation. The
/// text is static.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_attrs(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.attrs.as_ptr()))
}
