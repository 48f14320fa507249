//! [`gt_call`], the function that calls any public function by its name.

use crate::dtype::{self, gt_dtype};
use crate::op::gt_ints;
use crate::session::{gt_session, optional_inner, session_for};
use crate::status::{CallError, Result, gt_status, guard, list_at, result_at, results_at, slice_at, text_at};
use crate::tensor::{gt_tensor, snapshot};
use gt_client::{ClientSession, Scope, Tensor};
use gt_functions::declaration::{Function, Outcome, Value};
use gt_ops::expr::Builder;
use gt_ops::{Scalar, Val};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// The kind of an argument.
pub type gt_argument_kind = i32;
/// An omitted argument: the function's default.
pub const GT_ARGUMENT_DEFAULT: gt_argument_kind = 0;
/// No value, for a parameter that may be absent.
pub const GT_ARGUMENT_NONE: gt_argument_kind = 1;
/// A tensor, `data`; no value if that is NULL.
pub const GT_ARGUMENT_TENSOR: gt_argument_kind = 2;
/// Tensors: `data` points to `len` handles.
pub const GT_ARGUMENT_TENSORS: gt_argument_kind = 3;
/// A floating-point number, `number`.
pub const GT_ARGUMENT_NUMBER: gt_argument_kind = 4;
/// An integer, `integer`.
pub const GT_ARGUMENT_INTEGER: gt_argument_kind = 5;
/// A boolean: `integer` is 0 for false, anything else for true.
pub const GT_ARGUMENT_BOOLEAN: gt_argument_kind = 6;
/// Integers: `data` points to `len` numbers of type int64_t.
pub const GT_ARGUMENT_INTEGERS: gt_argument_kind = 7;
/// Floating-point numbers: `data` points to `len` numbers of type double.
pub const GT_ARGUMENT_NUMBERS: gt_argument_kind = 8;
/// Lists of integers: `data` points to `len` lists of type gt_ints.
pub const GT_ARGUMENT_LISTS: gt_argument_kind = 9;
/// A text, `data`, that ends with NUL; the default if it is NULL.
pub const GT_ARGUMENT_TEXT: gt_argument_kind = 10;
/// A dtype, `integer`; the default if it is 0.
pub const GT_ARGUMENT_DTYPE: gt_argument_kind = 11;

/// An argument of gt_call(). The caller keeps ownership of what `data` points to; it is read only during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gt_argument {
    /// The kind: it selects the fields that are read.
    pub kind: gt_argument_kind,
    /// The number, for GT_ARGUMENT_NUMBER.
    pub number: f64,
    /// The number, for GT_ARGUMENT_INTEGER, GT_ARGUMENT_BOOLEAN and GT_ARGUMENT_DTYPE.
    pub integer: i64,
    /// The tensor, the text or the first entry of a list.
    pub data: *const c_void,
    /// The number of entries of a list.
    pub len: usize,
}

/// A call in preparation: the scope, once a tensor or the session has given one.
struct CallArguments<'a> {
    session: Option<&'a Arc<ClientSession>>,
    scope: Option<Scope>,
}

impl CallArguments<'_> {
    /// # Safety
    /// `tensor` is not freed meanwhile.
    unsafe fn add(&mut self, i: usize, tensor: *const gt_tensor) -> Result<Val> {
        // SAFETY: `tensor` is not freed meanwhile, which this function requires.
        let tensor = unsafe { snapshot(tensor, format_args!("argument {i}")) }?;
        Ok(self.scope(Some(&tensor))?.add(&tensor)?)
    }

    /// The scope, which the first tensor opens.
    fn scope(&mut self, tensor: Option<&Tensor>) -> Result<&mut Scope> {
        match &mut self.scope {
            Some(scope) => Ok(scope),
            scope => Ok(scope.insert(Scope::new(&session_for(self.session, tensor.map(Tensor::session))?))),
        }
    }

    /// # Safety
    /// The pointers of `argument` are valid, as its kind says.
    unsafe fn value(&mut self, i: usize, argument: &gt_argument) -> Result<Value> {
        let (data, len) = (argument.data, argument.len);
        Ok(match argument.kind {
            GT_ARGUMENT_DEFAULT => Value::Omitted,
            GT_ARGUMENT_NONE => Value::None,
            GT_ARGUMENT_TENSOR if data.is_null() => Value::None,
            // SAFETY: `data` is a tensor, which this function requires.
            GT_ARGUMENT_TENSOR => Value::Tensor(unsafe { self.add(i, data.cast()) }?),
            GT_ARGUMENT_TENSORS => {
                // SAFETY: `data` points to `len` handles, which this function requires.
                let tensors = unsafe { list_at(data.cast::<*const gt_tensor>(), len, "tensors") }?;
                let mut vals = Vec::with_capacity(len);
                for tensor in tensors {
                    // SAFETY: each handle is NULL or valid, which this function requires.
                    vals.push(unsafe { self.add(i, *tensor) }?);
                }
                Value::Tensors(vals)
            }
            GT_ARGUMENT_NUMBER => Value::Number(Scalar::Float(argument.number)),
            GT_ARGUMENT_INTEGER => Value::Number(Scalar::Int(argument.integer)),
            GT_ARGUMENT_BOOLEAN => Value::Number(Scalar::Bool(argument.integer != 0)),
            // SAFETY: `data` points to `len` numbers of this type, which this function requires.
            GT_ARGUMENT_INTEGERS => Value::Ints(unsafe { list_at(data.cast::<i64>(), len, "integers") }?.to_vec()),
            // SAFETY: `data` points to `len` numbers of this type, which this function requires.
            GT_ARGUMENT_NUMBERS => Value::Floats(unsafe { list_at(data.cast::<f64>(), len, "numbers") }?.to_vec()),
            GT_ARGUMENT_LISTS => {
                // SAFETY: `data` points to `len` lists, which this function requires.
                let lists = unsafe { list_at(data.cast::<gt_ints>(), len, "lists") }?;
                let mut all = Vec::with_capacity(len);
                for list in lists {
                    // SAFETY: each list has `len` numbers, which this function requires.
                    all.push(unsafe { list_at(list.data, list.len, "a list") }?.to_vec());
                }
                Value::IntLists(all)
            }
            // SAFETY: `data` is NULL or a text that ends with NUL, which this function requires.
            GT_ARGUMENT_TEXT => match unsafe { text_at(data.cast::<c_char>(), "text") }? {
                Some(text) => Value::Text(text.into()),
                None => Value::Omitted,
            },
            GT_ARGUMENT_DTYPE => {
                let wrong = |_| CallError::argument(format!("{} is no dtype", argument.integer));
                let number = gt_dtype::try_from(argument.integer).map_err(wrong)?;
                dtype::optional(number)?.map_or(Value::Omitted, Value::DType)
            }
            other => return Err(CallError::argument(format!("argument {i} has kind {other}, which is none"))),
        })
    }
}

/// Checks the arguments' types, and fills in what is not given.
fn checked(function: &Function, mut values: Vec<Value>) -> Result<Vec<Value>> {
    let (name, parameters) = (function.name(), function.parameters());
    values.resize(parameters.len(), Value::Omitted);
    for (value, parameter) in values.iter_mut().zip(&parameters) {
        if *value == Value::None && !parameter.optional && parameter.default.is_some() {
            *value = Value::Omitted;
        }
        if *value == Value::Omitted && parameter.default.is_none() {
            return Err(CallError::argument(format!("{name}: the argument {} is missing", parameter.name)));
        }
        if !parameter.takes(value) {
            return Err(CallError::argument(format!(
                "{name}: the argument {} must be {}",
                parameter.name,
                parameter.kind.name()
            )));
        }
    }
    Ok(values)
}

/// Calls a function and passes its result to `take`.
///
/// # Safety
/// As [`gt_call`].
unsafe fn call<T>(
    session: *const gt_session,
    name: *const c_char,
    arguments: *const gt_argument,
    count: usize,
    take: impl FnOnce(&Scope, Outcome) -> Result<T>,
) -> Result<T> {
    // SAFETY: `name` is NULL or a NUL-terminated string, by the contract of the header.
    let name = unsafe { text_at(name, "name") }?.ok_or_else(|| CallError::argument("name is NULL"))?;
    let function = gt_functions::by_full_name(name)
        .ok_or_else(|| CallError::argument(format!("there is no function called {name:?}")))?;
    let most = function.parameters().len();
    if count > most {
        return Err(CallError::argument(format!("{} takes {most} arguments, but {count} were given", function.name())));
    }
    // SAFETY: `arguments` points to `count` arguments, by the contract of the header.
    let arguments = unsafe { slice_at(arguments, count, "arguments") }?;
    // SAFETY: no thread closes the session meanwhile, by the contract of the header.
    let mut call = CallArguments { session: unsafe { optional_inner(session) }?, scope: None };
    let mut values = Vec::with_capacity(count);
    for (i, argument) in arguments.iter().enumerate() {
        // SAFETY: the pointers of the arguments are valid during the call, by the contract of the header.
        values.push(unsafe { call.value(i, argument) }?);
    }
    let scope = call.scope(None)?;
    let values = checked(function, values)?;
    let outcome = function.body.call(&Builder::new(scope), &values);
    scope.finish(outcome, take)?
}

/// Calls a public function by its name, for example "logsumexp" or "linalg_cross". The functions below that are named
/// after it call this.
///
/// `arguments` has those of the function in the order of its parameters; arguments at the end may be omitted. `session`
/// is required if no argument is a tensor, and may be NULL otherwise. The function's tensors are written to `results`,
/// which has room for `capacity` of them, and their number to `written`, which may be NULL. The caller frees each with
/// gt_tensor_free().
///
/// Like gt_op(), the call is asynchronous, except for functions whose result depends on elements, such as
/// `multinomial`, which checks its weights.
///
/// Errors: wrong arguments, at once and with PyTorch's messages; GT_ERROR_ARGUMENT for unknown names, kinds and too
/// little room; GT_ERROR_DISCONNECTED. Failures that only execution can detect are reported where the result is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_call(
    session: *const gt_session,
    name: *const c_char,
    arguments: *const gt_argument,
    count: usize,
    results: *mut *mut gt_tensor,
    capacity: usize,
    written: *mut usize,
) -> gt_status {
    guard(|| {
        let mut unread = 0;
        let written = if written.is_null() { &raw mut unread } else { written };
        // SAFETY: `written` is a number of this function's or of the caller's, and `results` is NULL or has room for
        // `capacity` handles, by the contract of the header.
        let (written, outs) = unsafe { (result_at(written, 0, "written")?, results_at(results, capacity, "results")?) };
        // SAFETY: the pointers are valid by the contract of the header.
        let tensors = unsafe {
            call(session, name, arguments, count, |scope, outcome| match outcome {
                Outcome::Tensor(val) => Ok(vec![scope.tensor(val)]),
                Outcome::Tensors(vals) => Ok(vals.into_iter().map(|val| scope.tensor(val)).collect()),
                Outcome::TensorAndTuple(first, vals) => {
                    Ok(std::iter::once(first).chain(vals).map(|val| scope.tensor(val)).collect())
                }
                _ => Err(CallError::argument("the function returns a number: call it with gt_call_number()")),
            })
        }?;
        if tensors.len() > capacity {
            return Err(CallError::argument(format!("{} results do not fit in {capacity}", tensors.len())));
        }
        *written = tensors.len();
        for (out, tensor) in outs.iter_mut().zip(tensors) {
            *out = gt_tensor::wrap(tensor);
        }
        Ok(())
    })
}

/// Calls a function whose result is a number or a boolean (0 or 1), for example "allclose". Waits for the result.
///
/// Errors: as gt_call().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_call_number(
    session: *const gt_session,
    name: *const c_char,
    arguments: *const gt_argument,
    count: usize,
    result: *mut f64,
) -> gt_status {
    guard(|| {
        // SAFETY: `result` is NULL or points to a number of the caller, by the contract of the header.
        let out = unsafe { result_at(result, 0.0, "result") }?;
        // SAFETY: the pointers are valid by the contract of the header.
        *out = unsafe {
            call(session, name, arguments, count, |_, outcome| match outcome {
                Outcome::Number(number) => Ok(number.to_f64()),
                _ => Err(CallError::argument("the function returns tensors: call it with gt_call()")),
            })
        }?;
        Ok(())
    })
}
