//! The functions of `gt-functions` as Python's built-in functions and methods: parsing of arguments with PyTorch's
//! messages, the call, and the conversion of results.
//!
//! Python passes a built-in method its tensor, not the method's name. So each form of each function has an entry point
//! of its own, `entry_point_of::<INDEX>`, which knows its place in [`ENTRIES`].

use crate::autocast;
use crate::autograd::Recording;
use crate::convert::{self, PyOperand, number, operand};
use crate::data;
use crate::device::{DeviceArg, MetaDevice};
use crate::dtype::{DTypeArg, instance};
use crate::error::OrRaise;
use crate::operators::saves_written;
use crate::options::{self, MemoryFormat};
use crate::overrides;
use crate::random::PyGenerator;
use crate::session::current;
use crate::tensor::PyTensor;
use gt_client::tensor::{PlannedView, TensorOperand};
use gt_client::{Repeats, Scope, Tensor};
use gt_functions::declaration::{Function, Kind, OptionalInts, Outcome, Parameter, Returns, Value};
use gt_ops::expr::Builder;
use gt_ops::forms::Autocast;
use gt_ops::{DType, Graph, Op, OpError, Scalar, Val, build};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::ffi;
use pyo3::impl_::trampoline::{MethodDef, fastcall_cfunction_with_keywords};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::sync::LazyLock;

/// The functions whose former signatures, which PyTorch still accepts, have numbers before tensors.
const NUMBERS_FIRST: [&str; 9] = ["add", "sub", "addcmul", "addcdiv", "addbmm", "addmm", "addmv", "addr", "baddbmm"];

/// Functions whose gradients `gt.sparse` computes, if the program asks for sparse ones.
const SPARSE_GRADIENTS: [&str; 2] = ["embedding", "embedding_bag"];

/// A name in one form, with its overloads.
struct Entry {
    /// The module below `gt`.
    module: &'static str,
    name: &'static str,
    /// The name in messages.
    title: String,
    form: Form,
    overloads: Vec<Overload>,
    /// The elementwise op that a call with its operands alone is.
    elementwise: Option<Op>,
    /// The class of the results, if they are a named tuple.
    class: PyOnceLock<Py<PyType>>,
    /// The function or method of Python's.
    object: PyOnceLock<Py<PyAny>>,
}

/// A function with its list of parameters.
struct Overload {
    function: &'static Function,
    parameters: Vec<Parameter>,
    /// The number of parameters that may be passed by position.
    positional: usize,
    /// The parameter `inplace`, if the function has it.
    in_place: Option<usize>,
    /// The number of leading parameters up to the last that has no default.
    required: usize,
    /// The last positional parameter may be passed as arguments of its own.
    takes_rest: bool,
    /// The parameters' names as Python's strings.
    names: PyOnceLock<Vec<Py<PyString>>>,
}

/// A form in which a function is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    /// `gt.exp(x)`
    Function,
    /// `x.exp()`
    Method,
    /// `x.exp_()`
    InPlace,
    /// `gt.exp_(x)`
    InPlaceFunction,
    /// `gt.permute_copy(x, …)`
    Copy,
}

impl Form {
    /// Whether Python passes the tensor as `self`.
    fn is_method(self) -> bool {
        matches!(self, Form::Method | Form::InPlace)
    }
    /// Whether the result is written to the first argument.
    fn is_in_place(self) -> bool {
        matches!(self, Form::InPlace | Form::InPlaceFunction)
    }
    /// The suffix of the name.
    fn suffix(self) -> &'static str {
        match self {
            Form::Function | Form::Method => "",
            Form::InPlace | Form::InPlaceFunction => "_",
            Form::Copy => "_copy",
        }
    }
}

impl Form {
    const ALL: [Form; 5] = [Form::Function, Form::Method, Form::InPlace, Form::InPlaceFunction, Form::Copy];

    /// Whether a function is offered in this form.
    fn is_of(self, function: &Function) -> bool {
        match self {
            Form::Function => function.forms.function,
            Form::Method => function.forms.method,
            Form::InPlace => function.forms.in_place && function.forms.module.is_empty(),
            Form::InPlaceFunction => function.forms.in_place_function,
            Form::Copy => function.forms.view_copy,
        }
    }
}

/// Each form of each name, aliases included, in the order of the entry points.
static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut entries: Vec<Entry> = Vec::new();
    let mut places = HashMap::new();
    for function in gt_functions::all() {
        let forms = &function.forms;
        // An alias of another module is an entry of its own if it has the function's name: messages then begin with the
        // module, as in PyTorch. Otherwise it is the same object.
        let aliases = forms.aliases.iter().map(|alias| alias.rsplit_once('.').unwrap_or((forms.module, alias)));
        let aliases = aliases.filter(|(module, name)| *module == forms.module || *name == function.name());
        for (module, name) in std::iter::once((forms.module, function.name())).chain(aliases) {
            let has = |form: &Form| match form {
                Form::Copy => forms.view_copy && name == function.name(),
                _ => form.is_of(function) && (module == forms.module || *form == Form::Function),
            };
            for form in Form::ALL.into_iter().filter(has) {
                let parameters = function.parameters();
                let overload = Overload {
                    function,
                    positional: parameters.iter().filter(|parameter| !parameter.keyword_only).count(),
                    in_place: parameters.iter().position(|parameter| parameter.name == "inplace"),
                    required: parameters.iter().rposition(|p| p.default.is_none()).map_or(0, |last| last + 1),
                    takes_rest: parameters.iter().any(|p| matches!(p.kind, Kind::Sizes | Kind::Operands)),
                    parameters,
                    names: PyOnceLock::new(),
                };
                let place = *places.entry((module, name, form)).or_insert_with(|| {
                    let title = match module {
                        "special" | "linalg" | "fft" => format!("{module}_{name}"),
                        _ => name.to_owned(),
                    };
                    let elementwise = function.elementwise(&overload.parameters);
                    let (class, object) = (PyOnceLock::new(), PyOnceLock::new());
                    entries.push(Entry {
                        module,
                        name,
                        title,
                        form,
                        overloads: Vec::new(),
                        elementwise,
                        class,
                        object,
                    });
                    entries.len() - 1
                });
                entries[place].overloads.push(overload);
            }
        }
    }
    entries
});

/// The receiver of a call with the index of its entry.
struct Receiver {
    index: usize,
    slf: *mut ffi::PyObject,
}

/// The call of an entry, of which pyo3 makes a function that Python can call: it catches panics and sets exceptions.
struct Enter;

impl MethodDef<fastcall_cfunction_with_keywords::Func> for Enter {
    const METH: fastcall_cfunction_with_keywords::Func = |py, receiver, args, count, names| {
        // SAFETY: `call_entry` passes a receiver.
        let Receiver { index, slf } = *unsafe { &*receiver.cast::<Receiver>() };
        // SAFETY: Python calls this with `count` positional arguments followed by those whose names are in `names`.
        unsafe { enter(py, index, slf, args, count, names) }
    };
}

/// Calls the entry at `index` with Python's arguments.
///
/// # Safety
/// As [`enter`]; this thread holds the GIL.
#[inline(never)]
unsafe fn call_entry(
    index: usize,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let mut receiver = Receiver { index, slf };
    let receiver = std::ptr::from_mut(&mut receiver).cast();
    // SAFETY: pyo3 hands the receiver to `Enter::METH`, which alone reads it; the caller vouches for the rest.
    unsafe { fastcall_cfunction_with_keywords::<Enter>(receiver, args, count, names) }
}

/// The entry point of the entry at `INDEX` of [`ENTRIES`].
///
/// # Safety
/// As [`call_entry`].
unsafe extern "C" fn entry_point_of<const INDEX: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller is Python, which passes what `call_entry` requires.
    unsafe { call_entry(INDEX, slf, args, count, names) }
}

macro_rules! one {
    ($index:expr) => {
        entry_point_of::<{ $index }>
    };
}
macro_rules! ten_of {
    ($each:ident, $base:expr, $step:literal) => {
        [
            $each!($base),
            $each!($base + $step),
            $each!($base + 2 * $step),
            $each!($base + 3 * $step),
            $each!($base + 4 * $step),
            $each!($base + 5 * $step),
            $each!($base + 6 * $step),
            $each!($base + 7 * $step),
            $each!($base + 8 * $step),
            $each!($base + 9 * $step),
        ]
    };
}
macro_rules! ten {
    ($base:expr) => {
        ten_of!(one, $base, 1)
    };
}
macro_rules! hundred {
    ($base:expr) => {
        ten_of!(ten, $base, 10)
    };
}
macro_rules! thousand {
    ($base:expr) => {
        ten_of!(hundred, $base, 100)
    };
}

type EntryPointFn = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The thousands of entry points: more than there are functions, in all their forms.
const THOUSANDS: usize = 2;

/// The entry points, by the digits of their indices.
static ENTRY_POINTS: [[[[EntryPointFn; 10]; 10]; 10]; THOUSANDS] = [thousand!(0), thousand!(1000)];

fn entry_point(index: usize) -> Option<EntryPointFn> {
    Some(*ENTRY_POINTS.get(index / 1000)?.get(index / 100 % 10)?.get(index / 10 % 10)?.get(index % 10)?)
}

/// Calls the form at `index`.
///
/// # Safety
/// `args` points to `count` arguments followed by one for each name of the tuple `names`, which may be null.
unsafe fn enter(
    py: Python<'_>,
    index: usize,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    let entry = &ENTRIES[index];
    let form = entry.form;
    let count = count as usize;
    // SAFETY: Python passes a tuple of names or null.
    let names = unsafe { Borrowed::from_ptr_or_opt(py, names) }.map(|names| names.cast::<PyTuple>()).transpose()?;
    let named = names.map_or(0, |names| names.len());
    // SAFETY: the caller passes this many arguments.
    let given = if count + named == 0 { &[] } else { unsafe { std::slice::from_raw_parts(args, count + named) } };
    // SAFETY: Python's arguments are objects that live during the call.
    let given = given.iter().map(|arg| unsafe { Borrowed::from_ptr(py, *arg) });
    let mut all: SmallVec<[Borrowed<'_, '_, PyAny>; 8]> = SmallVec::new();
    if form.is_method() {
        // SAFETY: a method descriptor of `Tensor` passes the tensor.
        all.push(unsafe { Borrowed::from_ptr(py, slf) });
    }
    all.extend(given);
    let positional = all.len() - named;
    let arguments = overrides::OverridableCall { positional: &all[..positional], named: &all[positional..], names };
    if overrides::active()
        && let Some(object) = entry.object.get(py)
        && let Some(result) = arguments.dispatch(object.bind(py))?
    {
        return Ok(result.into_ptr());
    }
    if let (Some(op), [overload]) = (entry.elementwise, entry.overloads.as_slice())
        && named == 0
        && all.len() == op.row().operands as usize
        && let Some(result) = elementwise(py, op, form, &overload.parameters, &all)?
    {
        return Ok(result.into_ptr());
    }
    let call = FunctionCall { py, entry, form, positional: &all[..positional], named: &all[positional..], names };
    call.run().or_else(|error| overridden(py, entry, &arguments, error)).map(|result| result.into_ptr())
}

/// The result of a call that failed, if it was for a device or for objects of which Python's code knows more.
#[cold]
fn overridden<'py>(
    py: Python<'py>,
    entry: &Entry,
    arguments: &overrides::OverridableCall<'_, 'py>,
    error: PyErr,
) -> PyResult<Py<PyAny>> {
    let Some(object) = entry.object.get(py) else { return Err(error) };
    if error.is_instance_of::<MetaDevice>(py) {
        arguments.call(object.bind(py), "gt._meta", "made")
    } else if arguments.explains(&error, py) {
        arguments.call(object.bind(py), "gt.overrides", "dispatch")
    } else if NUMBERS_FIRST.contains(&entry.name.trim_end_matches('_')) && error.is_instance_of::<PyTypeError>(py) {
        match arguments.call(object.bind(py), "gt._deprecated", "numbers_first")? {
            // The arguments are not in the former order, either.
            result if result.is(py.NotImplemented()) => Err(error),
            result => Ok(result),
        }
    } else if entry.name == "einsum" && error.is_instance_of::<PyTypeError>(py) {
        match arguments.call(object.bind(py), "gt._einsum", "of_lists")? {
            // The equation is no string for another reason.
            result if result.is(py.NotImplemented()) => Err(error),
            result => Ok(result),
        }
    } else if entry.module == "nn.functional"
        && SPARSE_GRADIENTS.contains(&entry.name)
        && error.is_instance_of::<PyNotImplementedError>(py)
    {
        match arguments.call(object.bind(py), "gt.sparse._embeddings", "looked_up")? {
            // The error is about something else.
            result if result.is(py.NotImplemented()) => Err(error),
            result => Ok(result),
        }
    } else {
        Err(error)
    }
}

/// Issues one instruction on tensors and numbers, without a scope; `None` if the operands are others.
fn elementwise<'py>(
    py: Python<'py>,
    op: Op,
    form: Form,
    parameters: &[Parameter],
    args: &[Borrowed<'_, 'py, PyAny>],
) -> PyResult<Option<Py<PyAny>>> {
    let Ok(first) = args[0].cast::<PyTensor>() else { return Ok(None) };
    let this = first.get();
    // As in PyTorch, these leave the graph as it is, even that of a leaf.
    let logical = matches!(op, Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor | Op::LogicalNot);
    let _recording = (form.is_in_place() && logical).then(|| Recording::set(false));
    let mut operation = None;
    let since = if form.is_in_place() {
        this.read(py).check_in_place().or_raise()?;
        operation = Some(this.read(py).begin_in_place());
        Some(gt_client::tape::next_number())
    } else {
        None
    };
    let result = match args {
        [_] => this.read(py).elementwise(op, &[TensorOperand::This]),
        [_, other] => {
            if let Ok(other) = other.cast::<PyTensor>() {
                this.read(py).binary(op, &other.get().read(py))
            } else if let Some(scalar) = number(other)?
                && parameters[1].kind == Kind::TensorOrNumber
            {
                this.read(py).elementwise(op, &[TensorOperand::This, TensorOperand::Scalar(scalar)])
            } else {
                return Ok(None);
            }
        }
        [_, others @ ..] => {
            let mut readings: smallvec::SmallVec<[_; 2]> = smallvec::SmallVec::new();
            for other in others {
                readings.push(match other.cast::<PyTensor>() {
                    Ok(tensor) => Ok(tensor.get().read(py)),
                    Err(_) => match number(other)? {
                        Some(scalar) => Err(scalar),
                        None => return Ok(None),
                    },
                });
            }
            let mut operands: smallvec::SmallVec<[TensorOperand<'_>; 3]> = smallvec::smallvec![TensorOperand::This];
            operands.extend(readings.iter().map(|reading| match reading {
                Ok(tensor) => TensorOperand::Tensor(tensor),
                Err(scalar) => TensorOperand::Scalar(*scalar),
            }));
            this.read(py).elementwise(op, &operands)
        }
        [] => return Ok(None),
    }
    .or_raise()?;
    if since.is_some() {
        let overwritten = args[1..].iter().any(|other| saves_written(op, &args[0], other));
        let since = if overwritten { Some(gt_client::tape::next_number()) } else { since };
        this.rebind(py, result, since)?;
        drop(operation);
        return Ok(Some(Bound::clone(&args[0]).unbind()));
    }
    Ok(Some(Py::new(py, PyTensor::wrap(result))?.into_any()))
}

/// A call of a function.
struct FunctionCall<'a, 'py> {
    py: Python<'py>,
    entry: &'static Entry,
    form: Form,
    positional: &'a [Borrowed<'a, 'py, PyAny>],
    named: &'a [Borrowed<'a, 'py, PyAny>],
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

/// The reason why arguments do not fit a signature.
enum Misfit {
    /// Another overload may take them.
    Signature(PyErr),
    /// The arguments fit, but one of them cannot be used.
    Other(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(error: PyErr) -> Misfit {
        Misfit::Other(error)
    }
}

/// The arguments of a call, in the order of the parameters.
#[derive(Default)]
struct ParsedArguments<'py> {
    values: SmallVec<[Value; 8]>,
    /// The scope with the tensors among them.
    scope: Option<Scope>,
    /// The objects of these tensors, if the function makes views.
    tensors: SmallVec<[Bound<'py, PyTensor>; 1]>,
    /// The objects of `out=` and of the options of creation functions.
    out: Option<Py<PyAny>>,
    requires_grad: bool,
}

impl<'a, 'py> FunctionCall<'a, 'py> {
    fn run(&self) -> PyResult<Py<PyAny>> {
        // Before the arguments are read, since a view is computed again then.
        let writes =
            self.form.is_in_place() && !self.entry.overloads.iter().any(|overload| overload.function.forms.view);
        let _operation = if writes { Some(self.this()?.get().read(self.py).begin_in_place()) } else { None };
        if let [overload] = self.entry.overloads.as_slice() {
            let mut arguments = ParsedArguments::default();
            return match self.parse(overload, &mut arguments) {
                Ok(()) => self.compute(overload, &mut arguments),
                Err(Misfit::Signature(error) | Misfit::Other(error)) => Err(error),
            };
        }
        for overload in self.entry.overloads.iter().filter(|overload| self.may_fit(overload)) {
            let mut arguments = ParsedArguments::default();
            match self.parse(overload, &mut arguments) {
                Ok(()) => return self.compute(overload, &mut arguments),
                Err(Misfit::Signature(_)) => {}
                Err(Misfit::Other(error)) => return Err(error),
            }
        }
        Err(self.no_overload())
    }

    /// Whether a signature may take this number of arguments, and no number stands for a tensor. Errors cost more than
    /// this, so that it is asked before.
    fn may_fit(&self, overload: &Overload) -> bool {
        let parameters = &overload.parameters;
        let open = overload.positional.checked_sub(1).is_some_and(|last| parameters[last].kind == Kind::Sizes);
        let required = parameters.iter().filter(|parameter| parameter.default.is_none()).count();
        (open || self.positional.len() <= overload.positional)
            && self.positional.len() + self.named.len() >= required - usize::from(open).min(required)
            && self.positional.iter().zip(parameters).all(|(object, parameter)| {
                parameter.kind != Kind::Tensor
                    || !(object.is_exact_instance_of::<PyInt>() || object.is_exact_instance_of::<PyFloat>())
            })
    }

    /// PyTorch's error where no overload takes the arguments.
    fn no_overload(&self) -> PyErr {
        let mut given: Vec<String> =
            self.arguments().skip(usize::from(self.form.is_method())).map(|arg| type_name(&arg)).collect();
        if let Some(names) = self.names {
            let from = given.len() - names.len();
            for (kind, name) in given[from..].iter_mut().zip(names.iter()) {
                *kind = format!("{name}={kind}");
            }
        }
        let signatures: Vec<String> =
            self.entry.overloads.iter().map(|overload| format!(" * ({})", signature(overload))).collect();
        PyTypeError::new_err(format!(
            "{}() received an invalid combination of arguments - got ({}), but expected one of:\n{}\n",
            self.entry.title,
            given.join(", "),
            signatures.join("\n")
        ))
    }

    fn arguments(&self) -> impl Iterator<Item = Borrowed<'a, 'py, PyAny>> {
        self.positional.iter().chain(self.named).copied()
    }

    /// The error of arguments that do not fit a signature. Where there are other signatures, nobody reads its text.
    fn misfit(&self, text: impl FnOnce() -> String) -> Misfit {
        let only = self.entry.overloads.len() == 1;
        Misfit::Signature(PyTypeError::new_err(if only { text() } else { String::new() }))
    }

    /// Converts the arguments to the parameters of one signature.
    fn parse(&self, overload: &Overload, arguments: &mut ParsedArguments<'py>) -> Result<(), Misfit> {
        let (py, name) = (self.py, &self.entry.title);
        let parameters = &overload.parameters;
        if self.named.is_empty() && self.positional.len() >= overload.required && !overload.takes_rest {
            return self.parse_positional(overload, arguments);
        }
        let mut slots: SmallVec<[Option<Borrowed<'a, 'py, PyAny>>; 8]> = smallvec::smallvec![None; parameters.len()];
        let mut sizes = None;
        let is_open = |last: &usize| matches!(parameters[*last].kind, Kind::Sizes | Kind::Operands);
        let open = overload.positional.checked_sub(1).filter(is_open);
        if let Some(last) = open
            && self.positional.len() > last
            && (self.positional.len() > last + 1 || starts_list(parameters[last].kind, &self.positional[last]))
        {
            sizes = Some(&self.positional[last..]);
            slots[..last].iter_mut().zip(self.positional).for_each(|(slot, arg)| *slot = Some(*arg));
        } else {
            if self.positional.len() > overload.positional {
                return Err(self.too_many(overload));
            }
            slots.iter_mut().zip(self.positional).for_each(|(slot, arg)| *slot = Some(*arg));
        }
        let mut generator = None;
        for (i, value) in self.named.iter().enumerate() {
            let Some(names) = &self.names else { break };
            let key = names.get_borrowed_item(i)?;
            match overload.find(py, &key)? {
                Some(place) if slots[place].is_none() && !(sizes.is_some() && Some(place) == open) => {
                    slots[place] = Some(*value);
                }
                Some(place) => {
                    let word = parameters[place].name;
                    return Err(self.misfit(|| format!("{name}() got multiple values for argument '{word}'")));
                }
                None => {
                    let forms = &overload.function.forms;
                    let key = key.cast::<PyString>().map_err(PyErr::from)?;
                    match key.to_str()? {
                        "out" if (forms.out && self.form == Form::Function) || self.form == Form::Copy => {
                            arguments.out = (!value.is_none()).then(|| Bound::clone(value).unbind());
                        }
                        "generator" if forms.random => {
                            if !value.is_none() {
                                generator = Some(value.cast::<PyGenerator>().map_err(PyErr::from)?.get().0.clone());
                            }
                        }
                        "requires_grad" if forms.creation => arguments.requires_grad = value.is_truthy()?,
                        "device" if forms.creation => {
                            if !value.is_none() {
                                value.extract::<DeviceArg>()?.check(py)?;
                            }
                        }
                        "layout" if forms.creation => {
                            if !value.is_none() {
                                options::one_of(value, "layout", &["strided"])?;
                            }
                        }
                        // A memory format changes strides alone, of which the daemon knows nothing.
                        "memory_format" if forms.creation && name.ends_with("_like") => {
                            if !value.is_none() {
                                value.extract::<MemoryFormat>()?;
                            }
                        }
                        // Transfers use memory that is shared with the daemon in any case.
                        "pin_memory" if forms.creation => {}
                        other => {
                            return Err(
                                self.misfit(|| format!("{name}() got an unexpected keyword argument '{other}'"))
                            );
                        }
                    }
                }
            }
        }
        let missing: Vec<String> = parameters
            .iter()
            .enumerate()
            .filter(|(i, parameter)| {
                // Without arguments, a list of sizes or tensors is empty.
                slots[*i].is_none() && parameter.default.is_none() && Some(*i) != open
            })
            .map(|(_, parameter)| format!("\"{}\"", parameter.name))
            .collect();
        if !missing.is_empty() {
            // PyTorch's plural.
            let plural = if missing.len() == 1 { "s" } else { "" };
            return Err(self.misfit(|| {
                format!(
                    "{name}() missing {} required positional argument{plural}: {}",
                    missing.len(),
                    missing.join(", ")
                )
            }));
        }
        for (place, (parameter, slot)) in parameters.iter().zip(&slots).enumerate() {
            let value = match (slot, sizes) {
                (_, Some(tensors)) if Some(place) == open && parameter.kind == Kind::Operands => {
                    let mut vals = Vec::with_capacity(tensors.len());
                    for tensor in tensors {
                        match self.operand(arguments, overload, tensor)? {
                            Some(val) => vals.push(val),
                            None => return Err(self.wrong_type(parameter, place, tensor)),
                        }
                    }
                    Value::Tensors(vals)
                }
                (None, None) if Some(place) == open && parameter.default.is_none() => match parameter.kind {
                    Kind::Operands => Value::Tensors(Vec::new()),
                    _ => Value::Ints(Vec::new()),
                },
                (_, Some(sizes)) if Some(place) == open => {
                    let sizes: PyResult<Vec<i64>> = sizes.iter().map(|size| convert::int(size)).collect();
                    Value::Ints(sizes?)
                }
                (Some(object), _) => self.value(arguments, overload, parameter, place, object)?,
                (None, _) => Value::Omitted,
            };
            arguments.values.push(value);
        }
        if overload.function.forms.creation
            && let Some(out) = &arguments.out
            && let Ok(out) = out.bind(py).cast::<PyTensor>()
            && let Some(place) = parameters.iter().position(|parameter| parameter.kind == Kind::DType)
        {
            let dtype = out.get().read(py).meta().dtype;
            if matches!(arguments.values[place], Value::DType(wanted) if wanted != dtype) {
                return Err(Misfit::Other(PyRuntimeError::new_err(format!(
                    "{name}(): the dtype asked for is not that of `out`, {dtype}"
                ))));
            }
            arguments.values[place] = Value::DType(dtype);
        }
        if let Some(generator) = generator {
            self.scope(&mut arguments.scope)?.draw_from(generator);
        }
        Ok(())
    }

    fn too_many(&self, overload: &Overload) -> Misfit {
        let name = &self.entry.title;
        let implicit = usize::from(self.form.is_method());
        let takes = overload.positional - implicit.min(overload.positional);
        let were = if self.positional.len() - implicit == 1 { "was" } else { "were" };
        let plural = if takes == 1 { "" } else { "s" };
        self.misfit(|| {
            format!(
                "{name}() takes {takes} positional argument{plural} but {} {were} given",
                self.positional.len() - implicit
            )
        })
    }

    /// Converts arguments that are all passed by position, as many as the signature needs or more.
    fn parse_positional(&self, overload: &Overload, arguments: &mut ParsedArguments<'py>) -> Result<(), Misfit> {
        if self.positional.len() > overload.positional {
            return Err(self.too_many(overload));
        }
        for (place, parameter) in overload.parameters.iter().enumerate() {
            let value = match self.positional.get(place) {
                Some(object) => self.value(arguments, overload, parameter, place, object)?,
                None => Value::Omitted,
            };
            arguments.values.push(value);
        }
        Ok(())
    }

    fn scope<'s>(&self, scope: &'s mut Option<Scope>) -> PyResult<&'s mut Scope> {
        match scope {
            Some(scope) => Ok(scope),
            None => Ok(scope.insert(Scope::new(&current(self.py)?))),
        }
    }

    fn add(&self, scope: &mut Option<Scope>, tensor: &Tensor) -> PyResult<Val> {
        if scope.is_none() {
            *scope = Some(Scope::new(&tensor.session()));
        }
        self.scope(scope)?.add(tensor).or_raise()
    }

    /// Adds a tensor of GT's or of another library's to the operands; `None` if the argument is neither.
    fn operand(
        &self,
        arguments: &mut ParsedArguments<'py>,
        overload: &Overload,
        object: &Borrowed<'_, 'py, PyAny>,
    ) -> PyResult<Option<Val>> {
        let py = self.py;
        let made;
        let tensor = if let Ok(tensor) = object.cast::<PyTensor>() {
            tensor
        } else if data::is_foreign(object) {
            made = Bound::new(py, PyTensor::wrap(data::from_array(object)?))?;
            made.as_borrowed()
        } else {
            return Ok(None);
        };
        if overload.function.forms.view {
            arguments.tensors.push(tensor.to_owned());
        }
        self.add(&mut arguments.scope, &tensor.get().read(py)).map(Some)
    }

    /// Converts an argument to its parameter's type.
    fn value(
        &self,
        arguments: &mut ParsedArguments<'py>,
        overload: &Overload,
        parameter: &Parameter,
        place: usize,
        object: &Borrowed<'_, 'py, PyAny>,
    ) -> Result<Value, Misfit> {
        let py = self.py;
        if object.is_none() && (parameter.optional || parameter.default.is_some()) {
            return Ok(if parameter.optional { Value::None } else { Value::Omitted });
        }
        let wrong = || self.wrong_type(parameter, place, object);
        Ok(match parameter.kind {
            Kind::Tensor => Value::Tensor(self.operand(arguments, overload, object)?.ok_or_else(wrong)?),
            Kind::TensorOrNumber => match operand(object)? {
                Some(PyOperand::Object(tensor)) => {
                    Value::Tensor(self.add(&mut arguments.scope, &tensor.get().read(py))?)
                }
                Some(PyOperand::Made(tensor)) => Value::Tensor(self.add(&mut arguments.scope, &tensor)?),
                Some(PyOperand::Scalar(scalar)) => Value::Number(scalar),
                None => return Err(wrong()),
            },
            Kind::Tensors | Kind::Operands => {
                if object.cast::<PyTensor>().is_ok() {
                    return Err(wrong());
                }
                let mut vals = Vec::new();
                for item in object.try_iter().map_err(|_| wrong())? {
                    let item = item?;
                    match self.operand(arguments, overload, &item.as_borrowed())? {
                        Some(val) => vals.push(val),
                        None => {
                            return Err(self.misfit(|| {
                                format!(
                                    "expected Tensor as element {} in argument {}, but got {}",
                                    vals.len(),
                                    place,
                                    type_name(&item.as_borrowed())
                                )
                            }));
                        }
                    }
                }
                Value::Tensors(vals)
            }
            Kind::Number => Value::Number(self.number(object)?.ok_or_else(wrong)?),
            Kind::Int => match self.number(object)?.ok_or_else(wrong)? {
                Scalar::Int(i) => Value::Number(Scalar::Int(i)),
                _ => return Err(wrong()),
            },
            // An integer of any size is a floating-point number, as long as those reach it.
            Kind::Float if object.is_exact_instance_of::<PyInt>() => Value::Number(Scalar::Float(object.extract()?)),
            Kind::Float => match self.number(object)?.ok_or_else(wrong)? {
                Scalar::Complex(..) => return Err(wrong()),
                number => Value::Number(Scalar::Float(number.to_f64())),
            },
            Kind::Bool => match object.cast::<PyBool>() {
                Ok(flag) => Value::Number(Scalar::Bool(flag.is_true())),
                Err(_) if type_name(object).ends_with("bool") || type_name(object) == "bool_" => {
                    Value::Number(Scalar::Bool(object.is_truthy()?))
                }
                Err(_) => return Err(wrong()),
            },
            Kind::Ints | Kind::Sizes => Value::Ints(self.ints(object, false, &wrong)?),
            Kind::OptionalInts => Value::Ints(self.ints(object, true, &wrong)?),
            Kind::IntLists => {
                let mut all = Vec::new();
                for item in object.try_iter().map_err(|_| wrong())? {
                    all.push(self.ints(&item?.as_borrowed(), false, &wrong)?);
                }
                Value::IntLists(all)
            }
            Kind::Floats => Value::Floats(match self.number(object)? {
                Some(one) => vec![one.to_f64()],
                None => {
                    let mut all = Vec::new();
                    for item in object.try_iter().map_err(|_| wrong())? {
                        all.push(self.number(&item?.as_borrowed())?.ok_or_else(wrong)?.to_f64());
                    }
                    all
                }
            }),
            Kind::Text => match object.cast::<PyString>() {
                Ok(text) => Value::Text(text.to_str()?.into()),
                Err(_) => return Err(wrong()),
            },
            Kind::TensorOrInts => match object.cast::<PyTensor>() {
                Ok(tensor) => Value::Tensor(self.add(&mut arguments.scope, &tensor.get().read(py))?),
                Err(_) => Value::Ints(self.ints(object, false, &wrong)?),
            },
            Kind::Unsupported => Value::Number(Scalar::Bool(true)),
            Kind::DType => Value::DType(object.extract::<DTypeArg>().map_err(|_| wrong())?.0),
        })
    }

    /// The number that an argument is: Python's, NumPy's or a tensor of one element.
    fn number(&self, object: &Borrowed<'_, 'py, PyAny>) -> PyResult<Option<Scalar>> {
        if let Some(scalar) = number(object)? {
            return Ok(Some(scalar));
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            if tensor.get().read(self.py).meta().shape.numel() != 1 {
                return Ok(None);
            }
        } else if !data::is_array(object)
            && object.getattr("__index__").is_err()
            && object.getattr("__float__").is_err()
        {
            return Ok(None);
        } else if !object.hasattr("item")? {
            return match object.call_method0("__index__") {
                Ok(index) => number(&index),
                Err(_) => number(&object.call_method0("__float__")?),
            };
        }
        number(&object.call_method0("item")?)
    }

    /// Integers; with `optional`, `None` may stand for each.
    fn ints(
        &self,
        object: &Borrowed<'_, 'py, PyAny>,
        optional: bool,
        wrong: &dyn Fn() -> Misfit,
    ) -> Result<Vec<i64>, Misfit> {
        let too_large = |item: &Borrowed<'_, 'py, PyAny>| {
            let text = format!("Overflow when unpacking long: {} is too large for a size", **item);
            Misfit::Other(PyRuntimeError::new_err(text))
        };
        let int = |item: &Borrowed<'_, 'py, PyAny>| match self.number(item) {
            _ if optional && item.is_none() => Ok(OptionalInts::NONE),
            Ok(Some(Scalar::Int(i))) => Ok(i),
            Ok(Some(Scalar::Unsigned(_))) => Err(too_large(item)),
            Ok(_) => Err(wrong()),
            Err(error) if error.is_instance_of::<PyOverflowError>(self.py) => Err(too_large(item)),
            Err(error) => Err(Misfit::Other(error)),
        };
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return tuple.iter_borrowed().map(|item| int(&item)).collect();
        }
        if let Ok(list) = object.cast::<PyList>() {
            return list.iter().map(|item| int(&item.as_borrowed())).collect();
        }
        Ok(vec![int(object)?])
    }

    fn wrong_type(&self, parameter: &Parameter, place: usize, object: &Borrowed<'_, 'py, PyAny>) -> Misfit {
        let position = place + 1 - usize::from(self.form.is_method() && place > 0);
        let by_position = place < self.positional.len();
        let at = if by_position { format!(" (position {position})") } else { String::new() };
        let is_number = matches!(parameter.kind, Kind::Number | Kind::Int | Kind::Float);
        if is_number
            && self.entry.overloads.len() == 1
            && let Ok(tensor) = object.cast::<PyTensor>()
        {
            let meta = tensor.get().read(self.py).meta();
            return Misfit::Signature(PyRuntimeError::new_err(format!(
                "{}(): argument '{}'{at} must be {} or a tensor of one such element, not a tensor of gt.{} with shape \
                 {:?}",
                self.entry.title,
                parameter.name,
                parameter.kind.name(),
                meta.dtype,
                meta.shape.dims()
            )));
        }
        self.misfit(|| {
            format!(
                "{}(): argument '{}'{at} must be {}, not {}",
                self.entry.title,
                parameter.name,
                parameter.kind.name(),
                type_name(object)
            )
        })
    }

    /// Computes the result of a call whose arguments fit.
    fn compute(&self, overload: &'static Overload, arguments: &mut ParsedArguments<'py>) -> PyResult<Py<PyAny>> {
        let py = self.py;
        let function = overload.function;
        let asks = |place: usize| arguments.values[place] == Value::Number(Scalar::Bool(true));
        let in_place = self.form.is_in_place() || overload.in_place.is_some_and(asks);
        if function.forms.view && arguments.values.first().is_some_and(is_first_tensor) {
            return self.views(overload, arguments, in_place);
        }
        let since = in_place.then(gt_client::tape::next_number);
        let by_argument = in_place && !self.form.is_in_place();
        let _operation = if by_argument { Some(self.this()?.get().read(py).begin_in_place()) } else { None };
        let ParsedArguments { values, scope: operands, out, requires_grad, .. } = arguments;
        let scope = self.scope(operands)?;
        let entered = autocast::entered();
        match (function.forms.autocast, entered) {
            (Autocast::Keep, _) | (_, None) => {}
            (Autocast::Low, Some(dtype)) => cast_all(scope, values, dtype)?,
            (Autocast::Float32, Some(_)) => cast_all(scope, values, DType::F32)?,
        }
        let (outcome, warnings) = {
            let builder = Builder::new(scope);
            if function.forms.autocast == Autocast::Keep {
                builder.set_autocast(entered);
            }
            let outcome = function.body.call(&builder, values);
            (outcome, builder.warnings())
        };
        self.warn(warnings)?;
        let mut updates: SmallVec<[(Bound<'py, PyTensor>, Tensor); 2]> = SmallVec::new();
        let result = scope
            .finish(outcome, |scope, outcome| {
                let outcome = match outcome {
                    Outcome::Tensors(vals) if !function.forms.updates.is_empty() => {
                        for (name, val) in function.forms.updates.iter().zip(&vals[1..]) {
                            let place = overload.parameters.iter().position(|parameter| parameter.name == *name);
                            let Some(place) = place else { continue };
                            if matches!(values[place], Value::Tensor(own) if own != *val)
                                && let Some(object) = self.object(overload, place)
                            {
                                updates.push((object, scope.tensor(*val)));
                            }
                        }
                        Outcome::Tensor(vals[0])
                    }
                    outcome => outcome,
                };
                if let Outcome::Tensor(val) = outcome
                    && scope.is_operand(val)
                    && let Some(object) = self.object_of(overload, values, val)
                {
                    return Ok(object.into_any().unbind());
                }
                self.convert(overload, scope, outcome)
            })
            .or_raise()??;
        if !updates.is_empty() {
            let _recording = Recording::set(false);
            updates.into_iter().try_for_each(|(object, value)| object.get().rebind(py, value, None))?;
        }
        if let Some(since) = since {
            if self.this()?.is(&result) {
                return Ok(result);
            }
            // The operands and intermediate results are freed before the result is written.
            *operands = None;
            let this = self.this()?;
            let value = result.bind(py).cast::<PyTensor>()?.get().snapshot(py)?;
            let repeats = if overload.function.forms.of_parts { Repeats::Changed } else { Repeats::Refused };
            this.get().rebind_with(py, value, Some(since), repeats)?;
            return Ok(this.into_any().unbind());
        }
        if let Some(out) = out.take() {
            return self.write(overload, out, result);
        }
        if *requires_grad {
            let tensor = result.bind(py).cast::<PyTensor>()?;
            drop(tensor.get().write(py, |tensor| tensor.set_requires_grad(true)).or_raise()?);
        }
        Ok(result)
    }

    /// The views that a function of movement ops makes of its arguments.
    fn views(&self, overload: &Overload, arguments: &mut ParsedArguments<'py>, in_place: bool) -> PyResult<Py<PyAny>> {
        let (py, function) = (self.py, overload.function);
        let ParsedArguments { values, scope, tensors, out, .. } = arguments;
        let (Some(scope), Some(this)) = (scope.take(), tensors.first()) else {
            return Err(PyRuntimeError::new_err("a view of no tensor"));
        };
        if in_place {
            this.get().read(py).check_in_place().or_raise()?;
        }
        // A tensor that becomes a view of itself keeps its history.
        let recorded = gt_client::tape::grad_enabled();
        let _recording = in_place.then(|| Recording::set(true));
        let mut warnings = Vec::new();
        let mut call = |g: &mut dyn Graph| {
            let builder = Builder::new(g);
            let outcome = function.body.call(&builder, values);
            warnings = builder.warnings();
            outcome
        };
        let result = if function.returns == Returns::Tensor {
            let plan = this.get().read(py).plan_view_in(scope, Val(0), |g| match call(g)? {
                Outcome::Tensor(val) if val == Val(0) && !function.forms.or_itself => build::alias(g, val),
                Outcome::Tensor(val) => Ok(val),
                _ => Err(OpError::runtime("a view that is no tensor")),
            });
            let plan = plan.or_raise()?;
            if function.forms.strict_view && plan.is_copy() && self.form != Form::Copy {
                return Err(PyRuntimeError::new_err(
                    "view size is not compatible with input tensor's size and stride (at least one dimension spans \
                     across two contiguous subspaces). Use .reshape(...) instead.",
                ));
            }
            if function.forms.or_itself && plan.is_itself() {
                return Ok(this.clone().into_any().unbind());
            }
            let view = match self.form {
                Form::Copy => plan.into_copy(),
                _ => this.get().write(py, |tensor| tensor.view(plan)),
            };
            let view = Bound::new(py, PyTensor::wrap(view))?;
            if in_place { PyTensor::become_view(this, &view, recorded).into_any() } else { view.into_any() }
        } else {
            let plans = {
                let held: Vec<_> = tensors.iter().map(|tensor| tensor.get().read(py)).collect();
                let bases: Vec<&Tensor> = held.iter().map(|tensor| &**tensor).collect();
                let plans = Tensor::plan_views(scope, &bases, |g| match call(g)? {
                    Outcome::Tensors(vals) => Ok(vals),
                    _ => Err(OpError::runtime("views that are no tensors")),
                });
                plans.or_raise()?
            };
            let view = |(base, plan): (usize, PlannedView)| {
                let view = match self.form {
                    Form::Copy => plan.into_copy(),
                    _ => tensors[base].get().write(py, |base| base.view(plan)),
                };
                Py::new(py, PyTensor::wrap(view))
            };
            let views = plans.into_iter().map(view).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, views)?.into_any()
        };
        self.warn(warnings)?;
        match out.take() {
            Some(out) => self.write(overload, out, result.unbind()),
            None => Ok(result.unbind()),
        }
    }

    /// Writes a result to `out=`.
    fn write(&self, overload: &Overload, out: Py<PyAny>, result: Py<PyAny>) -> PyResult<Py<PyAny>> {
        static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let name = format!("{}{}", self.entry.name, self.form.suffix());
        let same_dtype = overload.function.forms.out_same_dtype;
        Ok(WRITE.import(self.py, "gt._out", "write")?.call1((name, out, result, same_dtype))?.unbind())
    }

    fn warn(&self, warnings: Vec<String>) -> PyResult<()> {
        let py = self.py;
        for text in warnings {
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(text)?, 1)?;
        }
        Ok(())
    }

    /// The tensor that is the argument of the parameter at a place.
    fn object(&self, overload: &Overload, place: usize) -> Option<Bound<'py, PyTensor>> {
        let object = match self.positional.get(place) {
            Some(object) => *object,
            None => {
                let names = self.names?;
                let at = |i: &usize| {
                    let name = names.get_borrowed_item(*i).ok();
                    name.and_then(|name| overload.find(self.py, &name).ok()) == Some(Some(place))
                };
                self.named[(0..names.len()).find(at)?]
            }
        };
        Bound::clone(&object).cast_into::<PyTensor>().ok()
    }

    /// The tensor that is an operand: an argument, or one of a list of tensors.
    fn object_of(&self, overload: &Overload, values: &[Value], val: Val) -> Option<Bound<'py, PyTensor>> {
        values.iter().enumerate().find_map(|(place, value)| match value {
            Value::Tensor(own) if *own == val => self.object(overload, place),
            Value::Tensors(vals) => {
                let index = vals.iter().position(|own| *own == val)?;
                let first = self.positional.get(place)?;
                let object = match first.cast::<PyTensor>() {
                    Ok(_) => Bound::clone(self.positional.get(place + index)?),
                    Err(_) => first.get_item(index).ok()?,
                };
                object.cast_into::<PyTensor>().ok()
            }
            _ => None,
        })
    }

    fn this(&self) -> PyResult<Bound<'py, PyTensor>> {
        match self.arguments().next() {
            Some(this) => Ok(Bound::clone(&this).cast_into::<PyTensor>()?),
            None => Err(PyTypeError::new_err("a method without a tensor")),
        }
    }

    /// Several results, as a named tuple if they have names.
    fn named(&self, overload: &Overload, results: Bound<'py, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = self.py;
        let names = overload.function.forms.results;
        if names.is_empty() {
            return Ok(results.into_any().unbind());
        }
        let class = self.entry.class.get_or_try_init(py, || -> PyResult<Py<PyType>> {
            let made = match self.entry.module {
                "" => self.entry.name.to_owned(),
                module => format!("{}_{}", module.replace('.', "_"), self.entry.name),
            };
            let made = py.import("gt._types")?.call_method1("named_results", (made, names.to_vec()))?;
            Ok(made.cast_into::<PyType>()?.unbind())
        })?;
        Ok(class.bind(py).call1(results)?.unbind())
    }

    /// The Python object of a result.
    fn convert(&self, overload: &Overload, scope: &Scope, outcome: Outcome) -> PyResult<Py<PyAny>> {
        let py = self.py;
        let wrap = |val: Val| Py::new(py, PyTensor::wrap(scope.tensor(val)));
        Ok(match outcome {
            Outcome::Tensor(val) => wrap(val)?.into_any(),
            Outcome::Tensors(vals) => {
                self.named(overload, PyTuple::new(py, vals.into_iter().map(wrap).collect::<PyResult<Vec<_>>>()?)?)?
            }
            Outcome::TensorAndTuple(val, vals) => {
                let tuple = PyTuple::new(py, vals.into_iter().map(wrap).collect::<PyResult<Vec<_>>>()?)?;
                self.named(overload, PyTuple::new(py, [wrap(val)?.into_any(), tuple.into_any().unbind()])?)?
            }
            Outcome::Number(Scalar::Bool(b)) => PyBool::new(py, b).to_owned().into_any().unbind(),
            Outcome::Number(Scalar::Int(i)) => i.into_pyobject(py)?.into_any().unbind(),
            Outcome::Number(Scalar::Unsigned(u)) => u.into_pyobject(py)?.into_any().unbind(),
            Outcome::Number(Scalar::Float(f)) => f.into_pyobject(py)?.into_any().unbind(),
            Outcome::Number(Scalar::Complex(re, im)) => PyComplex::from_doubles(py, re, im).into_any().unbind(),
            Outcome::Sizes(sizes) => {
                static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                SIZE.import(py, "gt._types", "Size")?.call1((PyTuple::new(py, sizes)?,))?.unbind()
            }
            Outcome::DType(dtype) => instance(py, dtype)?.into_any(),
        })
    }
}

fn is_first_tensor(value: &Value) -> bool {
    match value {
        Value::Tensor(val) => *val == Val(0),
        Value::Tensors(vals) => vals.first() == Some(&Val(0)),
        _ => false,
    }
}

/// Whether an argument is the first of several that make a list of sizes or tensors, and not the list.
fn starts_list(kind: Kind, object: &Borrowed<'_, '_, PyAny>) -> bool {
    let is_tensor = object.cast::<PyTensor>().is_ok();
    is_tensor || if kind == Kind::Operands { data::is_foreign(object) } else { object.is_instance_of::<PyInt>() }
}

/// The name of an object's type in PyTorch's messages.
fn type_name(object: &Borrowed<'_, '_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string())
}

/// The tensors among the arguments in another dtype, if they are floating-point ones. float64 is chosen for its
/// precision: automatic mixed precision leaves it alone, as PyTorch's does.
fn cast_all(scope: &mut Scope, values: &mut [Value], dtype: DType) -> PyResult<()> {
    let mut cast = |val: &mut Val| {
        let own = scope.meta(*val).dtype;
        if own.is_float() && own != DType::F64 {
            *val = build::cast(scope, *val, dtype).or_raise()?;
        }
        Ok(())
    };
    values.iter_mut().try_for_each(|value| match value {
        Value::Tensor(val) => cast(val),
        Value::Tensors(vals) => vals.iter_mut().try_for_each(&mut cast),
        _ => Ok(()),
    })
}

impl Overload {
    /// The place of the parameter called `name`, or of which it is NumPy's name.
    fn find(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let names = self.names.get_or_init(py, || {
            self.parameters.iter().map(|parameter| PyString::intern(py, parameter.name).unbind()).collect()
        });
        if let Some(place) = names.iter().position(|own| own.as_ptr() == name.as_ptr()) {
            return Ok(Some(place));
        }
        let name = name.cast::<PyString>()?;
        let name = name.to_str()?;
        let synonym = match name {
            "axis" => "dim",
            "keepdims" => "keepdim",
            "x" | "a" | "x1" => "input",
            "x2" => "other",
            other => other,
        };
        let place = |name: &str| self.parameters.iter().position(|parameter| parameter.name == name);
        Ok(place(name).or_else(|| place(synonym)))
    }
}

/// The parameters of a signature as PyTorch's messages print them.
fn signature(overload: &Overload) -> String {
    let mut words = Vec::new();
    for (i, parameter) in overload.parameters.iter().enumerate() {
        if i == overload.positional {
            words.push("*".to_owned());
        }
        let default = parameter.default.as_ref().map_or_else(String::new, |default| format!(" = {default}"));
        words.push(format!("{} {}{default}", parameter.kind.name(), parameter.name));
    }
    words.join(", ")
}

/// The signature as `inspect.signature` reads it from a built-in's docstring.
fn text_signature(overload: &Overload, form: Form) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut starred = false;
    for (i, parameter) in overload.parameters.iter().enumerate() {
        let default = parameter.default.as_ref().map_or_else(String::new, |default| format!("={default}"));
        if i == 0 && form.is_method() {
            words.push("$self".into());
        } else if matches!(parameter.kind, Kind::Sizes | Kind::Operands)
            && i + 1 == overload.positional
            && default.is_empty()
        {
            words.push(format!("*{}", parameter.python_name()));
            starred = true;
        } else {
            if parameter.keyword_only && !starred {
                words.push("*".to_owned());
                starred = true;
            }
            words.push(format!("{}{default}", parameter.python_name()));
        }
    }
    let keywords = overload.function.keywords(form != Form::Function);
    if !keywords.is_empty() && !starred {
        words.push("*".to_owned());
    }
    words.extend(keywords.into_iter().map(|(name, _, default)| format!("{name}={default}")));
    words.join(", ")
}

/// The docstring with the signature before it.
fn document(entry: &Entry, name: &str, form: Form) -> PyResult<CString> {
    let function = entry.overloads[0].function;
    let text: Vec<&str> = function.doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let doc = match form {
        Form::InPlace if function.forms.function || function.forms.method => {
            format!("In-place `{}`: writes the result to this tensor, and returns this tensor.", entry.name)
        }
        Form::InPlaceFunction => format!("In-place variant of `{}`: the result overwrites the input.", entry.name),
        Form::Copy => format!("`{}`, as a copy.", entry.name),
        _ => text.join("\n"),
    };
    Ok(CString::new(match entry.overloads.as_slice() {
        [only] => format!("{name}({})\n--\n\n{doc}", text_signature(only, form)),
        // `inspect` knows one signature: it says that there are several, and the text lists them.
        several => {
            let this = if form.is_method() { "$self, " } else { "" };
            let signature = |overload| text_signature(overload, form).replace("$self, ", "").replace("$self", "");
            let list: String = several.iter().map(|own| format!("\n    {name}({})", signature(own))).collect();
            let keywords = several.iter().map(|own| own.function.keywords(form != Form::Function));
            let keywords = keywords.max_by_key(Vec::len).unwrap_or_default();
            let keywords: String = keywords.iter().map(|(word, _, default)| format!("{word}={default}, ")).collect();
            format!("{name}({this}*args, {keywords}**kwargs)\n--\n\n{doc}\n\nSignatures:{list}")
        }
    })?)
}

/// The functions of a module, by name.
fn group<'py>(modules: &Bound<'py, PyDict>, module: &str) -> PyResult<Bound<'py, PyDict>> {
    match modules.get_item(module)? {
        Some(place) => Ok(place.cast_into::<PyDict>()?),
        None => {
            let place = PyDict::new(modules.py());
            modules.set_item(module, &place)?;
            Ok(place)
        }
    }
}

/// The functions for Python: those of each module by name. Methods are added to `Tensor`.
#[pyfunction]
fn install_functions(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let modules = PyDict::new(py);
    let tensor = py.get_type::<PyTensor>();
    for (index, entry) in ENTRIES.iter().enumerate() {
        let form = &entry.form;
        let suffix = form.suffix();
        let name = format!("{}{suffix}", entry.name);
        let point = entry_point(index).ok_or_else(|| {
            let (count, most) = (ENTRIES.len(), 1000 * THOUSANDS);
            PyRuntimeError::new_err(format!("{count} functions have {most} entry points: raise THOUSANDS"))
        })?;
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(name.as_str())?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: point },
            ml_flags: ffi::METH_FASTCALL as c_int | ffi::METH_KEYWORDS as c_int,
            ml_doc: document(entry, &name, *form)?.into_raw(),
        }));
        let module = if entry.module.is_empty() { "gt".to_owned() } else { format!("gt.{}", entry.module) };
        if !form.is_method() {
            let module = PyString::new(py, &module);
            // SAFETY: `definition` lives as long as the process, and its entry point has the type that its flags say.
            let function = unsafe {
                let made = ffi::PyCFunction_NewEx(definition, std::ptr::null_mut(), module.as_ptr());
                Bound::from_owned_ptr_or_err(py, made)?
            };
            group(&modules, entry.module)?.set_item(name, &function)?;
            let _ = entry.object.set(py, function.clone().unbind());
            let forms = &entry.overloads[0].function.forms;
            let others = forms.aliases.iter().filter_map(|alias| alias.rsplit_once('.'));
            let of_others = entry.module == forms.module && form == &Form::Function;
            for (module, alias) in others.filter(|(_, alias)| of_others && *alias != entry.name) {
                group(&modules, module)?.set_item(alias, &function)?;
            }
        } else {
            // SAFETY: `definition` lives as long as the process, and its entry point has the type that its flags say.
            let method = unsafe {
                let made = ffi::PyDescr_NewMethod(tensor.as_type_ptr(), definition);
                Bound::from_owned_ptr_or_err(py, made)?
            };
            tensor.setattr(name, &method)?;
            let _ = entry.object.set(py, method.unbind());
        }
    }
    Ok(modules)
}

/// The declarations, a dict each, from which stubs, reference pages and tests follow.
#[pyfunction]
fn function_table(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for function in gt_functions::all() {
        let forms = function.forms;
        let row = PyDict::new(py);
        row.set_item("name", function.name())?;
        row.set_item("full_name", gt_functions::full_name(function))?;
        row.set_item("module", forms.module)?;
        row.set_item("aliases", forms.aliases.to_vec())?;
        row.set_item("doc", function.doc)?;
        for (name, on) in [
            ("function", forms.function),
            ("method", forms.method),
            ("in_place", forms.in_place),
            ("in_place_function", forms.in_place_function),
            ("out", forms.out),
            ("out_same_dtype", forms.out_same_dtype),
            ("view", forms.view),
            ("view_copy", forms.view_copy),
            ("creation", forms.creation),
            ("random", forms.random),
        ] {
            row.set_item(name, on)?;
        }
        row.set_item("results", forms.results.to_vec())?;
        row.set_item("updates", forms.updates.to_vec())?;
        row.set_item(
            "returns",
            match function.returns {
                _ if !forms.updates.is_empty() => "Tensor".to_owned(),
                Returns::Tensor => "Tensor".to_owned(),
                Returns::Tuple(count) => format!("tuple[{}]", vec!["Tensor"; count].join(", ")),
                Returns::Tensors => "tuple[Tensor, ...]".to_owned(),
                Returns::TensorAndTuple => "tuple[Tensor, tuple[Tensor, ...]]".to_owned(),
                Returns::TensorOrTuple => "Tensor | tuple[Tensor, ...]".to_owned(),
                Returns::Bool => "bool".to_owned(),
                Returns::Number => "Number".to_owned(),
                Returns::Sizes => "Size".to_owned(),
                Returns::DType => "dtype".to_owned(),
            },
        )?;
        let parameters = PyList::empty(py);
        for parameter in function.parameters() {
            let word = PyDict::new(py);
            word.set_item("name", parameter.name)?;
            word.set_item("kind", format!("{:?}", parameter.kind))?;
            word.set_item("optional", parameter.optional)?;
            word.set_item("keyword_only", parameter.keyword_only)?;
            word.set_item("default", &parameter.default)?;
            parameters.append(word)?;
        }
        row.set_item("parameters", parameters)?;
        list.append(row)?;
    }
    Ok(list)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(install_functions, module)?)?;
    module.add_function(wrap_pyfunction!(function_table, module)?)
}
