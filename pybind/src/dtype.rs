//! `gt.dtype` and its instances, as `gt.float32`.

use gt_ops::DType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether dtypes and types of tensors are printed as PyTorch's.
static PYTORCH_NAMES: AtomicBool = AtomicBool::new(false);

/// The package whose names dtypes are printed with: `torch` for a program that was written for PyTorch.
pub fn package() -> &'static str {
    if PYTORCH_NAMES.load(Relaxed) { "torch" } else { "gt" }
}

/// Sets whether dtypes and types of tensors are printed as PyTorch's, as `torch.float32`; returns the former setting.
#[pyfunction]
fn set_pytorch_names(on: bool) -> bool {
    PYTORCH_NAMES.swap(on, Relaxed)
}

/// The type of a tensor's elements, as `gt.float32`.
#[pyclass(name = "dtype", module = "gt", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        format!("{}.{}", package(), self.0)
    }
    /// The name, as `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }
    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
    /// Whether it is one of the four floating-point dtypes.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }
    /// Whether it can represent negative numbers.
    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::Bool | DType::U8) && !self.0.is_wide_unsigned()
    }
    /// Whether it is one of the two complex dtypes.
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }
    /// The dtype of the real and imaginary parts of a complex dtype; any other dtype itself.
    fn to_real(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        instance(py, self.0.to_real())
    }
    /// The complex dtype with parts of this dtype: complex64 for all but float64.
    fn to_complex(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        instance(py, self.0.to_complex())
    }
    /// The name in `gt`, by which pickle finds it; `copy` takes it as it is.
    fn __reduce__(&self) -> &'static str {
        self.0.name()
    }
}

static INSTANCES: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The only Python object of `dtype`.
pub fn instance(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    let all = INSTANCES.get_or_try_init(py, || {
        DType::ALL.into_iter().map(|d| Py::new(py, PyDType(d))).collect::<PyResult<Vec<_>>>()
    })?;
    Ok(all[dtype as usize].clone_ref(py))
}

/// A dtype argument: `gt.float32`, Python's `float`, a NumPy dtype or a name.
pub struct DTypeArg(pub DType);

impl<'py> FromPyObject<'_, 'py> for DTypeArg {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(dtype) = object.cast::<PyDType>() {
            return Ok(DTypeArg(dtype.get().0));
        }
        let py = object.py();
        if let Ok(kind) = object.cast::<PyType>() {
            for (python, dtype) in [
                (py.get_type::<PyBool>(), DType::Bool),
                (py.get_type::<PyInt>(), DType::I64),
                (py.get_type::<PyFloat>(), DType::F64),
                (py.get_type::<PyComplex>(), DType::C128),
            ] {
                if kind.is(&python) {
                    return Ok(DTypeArg(dtype));
                }
            }
        }
        let name = if let Ok(name) = object.cast::<PyString>() {
            name.to_string()
        } else {
            // A NumPy dtype, or one of its scalar types.
            match py.import("numpy").and_then(|np| np.getattr("dtype")).and_then(|d| d.call1((object,))) {
                Ok(dtype) => dtype.getattr("name")?.extract()?,
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "expected a dtype such as gt.float32, but got {}",
                        object.get_type().name()?
                    )));
                }
            }
        };
        let name = name.trim_start_matches("torch.").trim_start_matches("gt.");
        // The names of tensor types that `type()` returns, such as `FloatTensor`, are accepted too.
        let typed = |d: &DType| name.strip_suffix("Tensor") == Some(d.scalar_type_name());
        DType::from_name(name).or_else(|| DType::ALL.into_iter().find(typed)).map(DTypeArg).ok_or_else(|| {
            let all: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            PyTypeError::new_err(format!("there is no dtype '{name}': there are {}", all.join(", ")))
        })
    }
}

/// The argument of `Tensor.type`: a dtype, or a class of tensors of one, such as `gt.FloatTensor`.
pub struct TypeArg(pub DType);

impl<'py> FromPyObject<'_, 'py> for TypeArg {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let of_class = object.cast::<PyType>().ok().and_then(|class| class.getattr("dtype").ok());
        if let Some(dtype) = of_class.as_ref().and_then(|dtype| dtype.cast::<PyDType>().ok()) {
            return Ok(TypeArg(dtype.get().0));
        }
        object.extract().map(|DTypeArg(dtype)| TypeArg(dtype))
    }
}

/// The dtype of tensors made of Python floats, float32 unless changed.
///
/// Example:
///     >>> gt.get_default_dtype()
///     gt.float32
#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Py<PyDType>> {
    instance(py, DType::default_float())
}

/// Sets the dtype of tensors made of Python floats, for this process.
///
/// Args:
///     d: A floating-point dtype.
///
/// Example:
///     >>> gt.set_default_dtype(gt.float64)
///     >>> gt.tensor(1.5).dtype
///     gt.float64
///     >>> gt.set_default_dtype(gt.float32)
#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyAny>) -> PyResult<()> {
    match d.cast::<PyDType>() {
        Ok(dtype) if dtype.get().0.is_float() => DType::set_default_float(dtype.get().0),
        Ok(dtype) => {
            return Err(PyTypeError::new_err(format!(
                "only floating-point types are supported as the default type, but got {}",
                dtype.get().__repr__()
            )));
        }
        Err(_) => return Err(PyTypeError::new_err("invalid dtype object: only floating-point types are supported")),
    }
    Ok(())
}

/// The dtype of an operation on tensors of these two dtypes, by PyTorch's promotion rules.
///
/// Example:
///     >>> gt.promote_types(gt.int64, gt.float16)
///     gt.float16
#[pyfunction]
fn promote_types(py: Python<'_>, type1: DTypeArg, type2: DTypeArg) -> PyResult<Py<PyDType>> {
    instance(py, type1.0.promote(type2.0))
}

/// Adds the class, its instances and PyTorch's other names for them.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<PyDType>()?;
    module.add_function(wrap_pyfunction!(get_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(set_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(promote_types, module)?)?;
    module.add_function(wrap_pyfunction!(set_pytorch_names, module)?)?;
    for dtype in DType::ALL {
        module.add(dtype.name(), instance(py, dtype)?)?;
    }
    for (alias, dtype) in [
        ("half", DType::F16),
        ("float", DType::F32),
        ("double", DType::F64),
        ("short", DType::I16),
        ("int", DType::I32),
        ("long", DType::I64),
        ("cfloat", DType::C64),
        ("cdouble", DType::C128),
    ] {
        module.add(alias, instance(py, dtype)?)?;
    }
    Ok(())
}
