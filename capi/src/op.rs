//! The one function through which every row of the op table is called.

use crate::call::{Given, call, reads};
use crate::dtype::{self, gt_dtype};
use crate::session::{gt_session, inner, one_of};
use crate::status::{Failure, Result, gt_status, guard, reading, result_at, slice_at, text_at, value_or};
use crate::tensor::{gt_tensor, one_element};
use gt_client::{Scope, Tensor};
use gt_ops::instruction::{INPUTS_MAX, LossReduction};
use gt_ops::row::{Class, ROWS};
use gt_ops::{Arg, Op, OpError, RANK_MAX, Scalar, build};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// The most axes a tensor has.
pub const GT_NDIM_MAX: usize = 8;
const _: () = assert!(GT_NDIM_MAX == RANK_MAX);

/// Left out, in the lists `start`, `stop` and `step`: Python's nothing in `a[::2]`.
pub const GT_OMIT: i64 = i64::MIN;
const _: () = assert!(GT_OMIT == crate::call::OMIT);

/// An operation: one of the constants GT_OP_ADD and so on. Their numbers never change.
pub type gt_opcode = i32;

/// What an operand is.
pub type gt_operand_kind = i32;
/// Nothing: an operand that may be left out.
pub const GT_OPERAND_NONE: gt_operand_kind = 0;
/// A tensor.
pub const GT_OPERAND_TENSOR: gt_operand_kind = 1;
/// A number with a fraction.
pub const GT_OPERAND_NUMBER: gt_operand_kind = 2;
/// An integer.
pub const GT_OPERAND_INTEGER: gt_operand_kind = 3;
/// True or false: `integer` is not 0, or is.
pub const GT_OPERAND_BOOLEAN: gt_operand_kind = 4;

/// An operand: a tensor or a number. gt_of(), gt_number(), gt_integer() and gt_boolean() make one.
///
/// Numbers take part in promotion as Python's do in PyTorch: the 2 of `x * 2` takes the dtype of `x`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_operand {
    /// Which of the others counts.
    pub kind: gt_operand_kind,
    /// Of GT_OPERAND_TENSOR. It stays the caller's.
    pub tensor: *const gt_tensor,
    /// Of GT_OPERAND_NUMBER.
    pub number: f64,
    /// Of GT_OPERAND_INTEGER and GT_OPERAND_BOOLEAN.
    pub integer: i64,
}

/// A list of numbers, which stays the caller's and is read during the call alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_ints {
    /// The first; may be NULL if there are none.
    pub data: *const i64,
    /// How many.
    pub len: usize,
}

/// What becomes of the losses of samples.
pub type gt_reduction = i32;
/// Their mean, by what the samples count.
pub const GT_REDUCTION_MEAN: gt_reduction = 0;
/// Their sum.
pub const GT_REDUCTION_SUM: gt_reduction = 1;
/// They stay as they are.
pub const GT_REDUCTION_NONE: gt_reduction = 2;

/// What an operation is told besides its operands. All zero is the default of everything: `gt_attrs attrs = {0};`.
///
/// An operation refuses an attribute that it does not read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_attrs {
    /// The dtype of the result, of `cast` and what makes tensors; 0 leaves it to the numbers it is made of.
    pub dtype: gt_dtype,
    /// Of losses over classes.
    pub reduction: gt_reduction,
    /// The axis of an operation along one; negative from the last.
    pub axis: i64,
    /// The sizes of the result: of `reshape`, where one may be -1; of `expand`, where -1 keeps a size; of what makes
    /// tensors. Of `convolution_input` and `sum_pool_input`, the sizes of the axes that are slid over.
    pub shape: gt_ints,
    /// The axes of a reduction, none being all; the order of axes of `permute`.
    pub axes: gt_ints,
    /// Where `slice` and `slice_scatter` begin, an entry an axis from the first on. Axes without an entry are whole.
    pub start: gt_ints,
    /// Where they stop, exclusively.
    pub stop: gt_ints,
    /// From an element taken to the next; negative walks backwards.
    pub step: gt_ints,
    /// The sizes of a pool's window. In this list and the next four, one entry stands for all axes.
    pub kernel: gt_ints,
    /// From a window to the next: 1 for convolutions, the window's size for pools, unless given.
    pub stride: gt_ints,
    /// Elements of padding before the input, and after it too unless `padding_end` says otherwise.
    pub padding: gt_ints,
    /// Elements of padding after the input.
    pub padding_end: gt_ints,
    /// From an element of a window to the next.
    pub dilation: gt_ints,
    /// Groups of channels that do not see each other; 0 counts as 1.
    pub groups: i64,
    /// The class of samples that do not count, if `ignores` is set.
    pub ignore_index: i64,
    /// How much of the target is spread evenly over all classes.
    pub label_smoothing: f64,
    /// What the scores of `attention` are multiplied by; 0 is one over the root of the number of features.
    pub scale: f64,
    /// 1: reduced axes stay, with size 1.
    pub keepdim: u8,
    /// 1: query `i` of `attention` sees keys 0 to `i` alone.
    pub causal: u8,
    /// 1: `ignore_index` counts.
    pub ignores: u8,
    /// Zero.
    pub reserved: [u8; 61],
}

/// The attributes behind a pointer; the defaults behind NULL.
///
/// # Safety
/// `attrs` is NULL or points to attributes whose lists hold what they say, while the result lives.
unsafe fn attributes<'a>(attrs: *const gt_attrs) -> Result<Given<'a>> {
    if attrs.is_null() {
        return Ok(Given::default());
    }
    // SAFETY: as the caller promises.
    let attrs = unsafe { reading(attrs, "attrs") }?;
    if attrs.reserved.iter().any(|byte| *byte != 0) {
        return Err(Failure::argument("attrs.reserved is not zero: begin with gt_attrs attrs = {0}"));
    }
    // SAFETY: as the caller promises.
    let list = |ints: gt_ints, name: &str| unsafe { slice_at(ints.data, ints.len, name) };
    Ok(Given {
        dtype: dtype::optional(attrs.dtype)?,
        reduction: match attrs.reduction {
            GT_REDUCTION_MEAN => None,
            GT_REDUCTION_SUM => Some(LossReduction::Sum),
            GT_REDUCTION_NONE => Some(LossReduction::None),
            other => return Err(Failure::argument(format!("{other} is no reduction"))),
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

/// An operand as a builder's scope takes it.
enum Input {
    Tensor(Tensor),
    Number(Scalar),
}

/// # Safety
/// The tensor of an operand that is one is not freed meanwhile.
unsafe fn input(i: usize, operand: &gt_operand) -> Result<Option<Input>> {
    Ok(Some(match operand.kind {
        GT_OPERAND_NONE => return Ok(None),
        GT_OPERAND_TENSOR => {
            // SAFETY: as the caller promises.
            let tensor = unsafe { operand.tensor.as_ref() };
            Input::Tensor(tensor.ok_or_else(|| Failure::argument(format!("operand {i} is NULL")))?.snapshot()?)
        }
        GT_OPERAND_NUMBER => Input::Number(Scalar::Float(operand.number)),
        GT_OPERAND_INTEGER => Input::Number(Scalar::Int(operand.integer)),
        GT_OPERAND_BOOLEAN => Input::Number(Scalar::Bool(operand.integer != 0)),
        other => return Err(Failure::argument(format!("operand {i} has kind {other}, which is none"))),
    }))
}

/// The most operands of a call: more than `cat` is ever given.
const OPERANDS_MAX: usize = INPUTS_MAX * INPUTS_MAX;

fn op_of(op: gt_opcode) -> Result<Op> {
    let found = u16::try_from(op).ok().and_then(Op::from_wire);
    found.ok_or_else(|| Failure::argument(format!("there is no operation {op}")))
}

/// Performs an operation of the op table on operands: what the functions gt_add() and so on call.
///
/// Dtypes are promoted and shapes broadcast as PyTorch does. The call returns at once: the daemon computes the result
/// when its operands are there, in the order of the calls. `session` is needed where no operand is a tensor, and may be
/// NULL otherwise. Operands that may be left out are left out at the end, or are GT_OPERAND_NONE there. `attrs` may be
/// NULL. `result` is the caller's, to be freed with gt_tensor_free(); it is NULL on failure.
///
/// `nonzero` alone waits: its shape depends on its operand's elements.
///
/// Errors: what the operation's rule refuses, in PyTorch's words, at once; GT_ERROR_ARGUMENT, GT_ERROR_DISCONNECTED.
/// What only execution can find is an error where the result is read.
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
        // SAFETY: the caller's pointers, as the header asks for them.
        let out = unsafe { result_at(result, std::ptr::null_mut(), "result") }?;
        let op = op_of(op)?;
        if count > OPERANDS_MAX {
            return Err(Failure::argument(format!("{count} operands are more than {OPERANDS_MAX}")));
        }
        // SAFETY: as above.
        let (operands, given) = unsafe { (slice_at(operands, count, "operands")?, attributes(attrs)?) };
        let mut inputs = Vec::with_capacity(operands.len());
        let mut left_out = None;
        for (i, operand) in operands.iter().enumerate() {
            // SAFETY: the caller's tensors.
            match (unsafe { input(i, operand) }?, left_out) {
                (None, _) => left_out = left_out.or(Some(i)),
                (Some(_), Some(i)) => {
                    return Err(OpError::type_(format!("{}: operand {i} is left out", op.name())).into());
                }
                (Some(input), None) => inputs.push(input),
            }
        }
        // SAFETY: the caller's session, or NULL.
        let session = if session.is_null() { None } else { Some(unsafe { inner(session) }?) };
        *out = gt_tensor::wrap(run(session, op, &inputs, &given)?);
        Ok(())
    })
}

fn run(
    session: Option<&std::sync::Arc<gt_client::ClientSession>>,
    op: Op,
    inputs: &[Input],
    given: &Given<'_>,
) -> Result<Tensor> {
    let first = inputs.iter().find_map(|input| match input {
        Input::Tensor(tensor) => Some(tensor),
        Input::Number(_) => None,
    });
    if let (Op::CrossEntropy | Op::NllLoss, Some(Input::Tensor(weight))) = (op, inputs.get(2))
        && weight.requires_grad()
    {
        return Err(OpError::runtime("the derivative for 'weight' is not implemented").into());
    }
    if op == Op::Nonzero {
        return nonzero(inputs, given);
    }
    if let ([Input::Tensor(a), Input::Tensor(b)], Class::Elementwise, 2) = (inputs, op.row().class, op.row().operands)
        && given.said().next().is_none()
    {
        // The shortest way to the ring.
        return Ok(a.binary(op, b)?);
    }
    let mut scope = Scope::new(&one_of(session, first.map(Tensor::session))?);
    let mut args = Vec::with_capacity(inputs.len());
    for input in inputs {
        args.push(match input {
            Input::Tensor(tensor) => scope.add(tensor)?.into(),
            Input::Number(number) => Arg::Scalar(*number),
        });
    }
    let outcome = call(&mut scope, op, &args, given);
    Ok(scope.finish(outcome, |scope, v| scope.tensor(v))?)
}

/// The positions of the elements that are not 0, of which the daemon says how many there are.
fn nonzero(inputs: &[Input], given: &Given<'_>) -> Result<Tensor> {
    let [Input::Tensor(tensor)] = inputs else {
        return Err(OpError::type_("nonzero: takes one tensor").into());
    };
    if given.said().next().is_some() {
        return Err(OpError::type_("nonzero: takes no attributes").into());
    }
    let mask = tensor.at(None)?.apply(|g, v| build::cast(g, v, gt_ops::DType::Bool))?;
    let count = mask.apply(|g, v| build::reduce(g, Op::Sum, v, None, false))?;
    let count = i64::from_le_bytes(one_element(&count, gt_ops::DType::I64)?);
    Ok(mask.apply(|g, v| build::nonzero(g, v, count as usize))?)
}

/// What is to be said of a row in C's strings.
struct Text {
    name: CString,
    doc: CString,
    attrs: CString,
}

/// By place in the table.
static TEXTS: LazyLock<Vec<Text>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    ROWS.iter()
        .map(|row| Text { name: text(row.name), doc: text(row.doc), attrs: text(&reads(row.op).join(" ")) })
        .collect()
});

fn text_of(op: gt_opcode) -> Result<&'static Text> {
    let op = op_of(op)?;
    let place = ROWS.iter().position(|row| row.op == op);
    place.and_then(|place| TEXTS.get(place)).ok_or_else(|| Failure::argument("a row without a text"))
}

/// How many operations there are.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_count() -> usize {
    ROWS.len()
}

/// The operation at a place from 0 to gt_op_count() - 1; 0, which is none, elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_at(place: usize) -> gt_opcode {
    ROWS.get(place).map_or(0, |row| row.op as gt_opcode)
}

/// The operation called `name`, as "add"; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_op_by_name(name: *const c_char) -> gt_opcode {
    value_or(0, || {
        // SAFETY: the caller's text, or NULL.
        let name = unsafe { text_at(name, "name") }?.unwrap_or_default();
        Op::from_name(name)
            .map(|op| op as gt_opcode)
            .ok_or_else(|| Failure::argument(format!("there is no operation called {name:?}")))
    })
}

/// The name of an operation; NULL for what is none. The text is GT's and stays.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_name(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.name.as_ptr()))
}

/// A sentence that says what an operation computes; NULL for what is none. The text is GT's and stays.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_doc(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.doc.as_ptr()))
}

/// The names of the attributes that an operation reads, with a space between them; NULL for what is none. The text is
/// GT's and stays.
#[unsafe(no_mangle)]
pub extern "C" fn gt_op_attrs(op: gt_opcode) -> *const c_char {
    value_or(std::ptr::null(), || text_of(op).map(|text| text.attrs.as_ptr()))
}
