//! Gradients: what tensors offer of the tape.

use crate::error::OrRaise;
use crate::tensor::PyTensor;
use gt_client::tape::{self, BackwardOptions};
use gt_client::{Node, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;

/// A recorded op, as `grad_fn` shows it.
#[pyclass(name = "Node", module = "gt", frozen)]
pub struct PyNode(Arc<Node>);

/// PyTorch's name for the gradient of an op: `AddBackward` for `add`.
fn backward_name(node: &Node) -> String {
    let Some(op) = node.recorded_op() else { return "AccumulateGrad".into() };
    let words = op.name().split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
    });
    words.collect::<String>() + "Backward"
}

#[pymethods]
impl PyNode {
    /// The name of the gradient, as `AddBackward`.
    fn name(&self) -> String {
        backward_name(&self.0)
    }
    /// The places on the tape of the operands.
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let next = self.0.inputs().into_iter().map(|node| (node.map(PyNode), 0));
        PyTuple::new(py, next.collect::<Vec<_>>())
    }
    fn __repr__(&self) -> String {
        format!("<{} #{}>", backward_name(&self.0), self.0.number())
    }
}

fn options(retain_graph: Option<bool>, create_graph: bool) -> BackwardOptions {
    BackwardOptions { retain_graph: retain_graph.unwrap_or(create_graph), create_graph }
}

#[pymethods]
impl PyTensor {
    /// Whether gradients flow to it.
    #[getter]
    fn requires_grad(&self, py: Python<'_>) -> bool {
        self.read(py).requires_grad()
    }
    #[setter(requires_grad)]
    fn set_requires_grad(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        // A view looks its base up first, which may wait; the change itself does not.
        self.read(py).resolve().or_raise()?;
        let old = self.write(py, |t| t.set_requires_grad(on));
        old.or_raise().map(drop)
    }
    /// Starts or stops gradients flowing to it.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().set_requires_grad(slf.py(), requires_grad)?;
        Ok(slf.clone())
    }
    /// Whether a user made it, rather than a recorded op.
    #[getter]
    fn is_leaf(&self, py: Python<'_>) -> bool {
        self.read(py).is_leaf()
    }
    /// The op that made it, if one was recorded.
    #[getter]
    fn grad_fn(&self, py: Python<'_>) -> Option<PyNode> {
        self.read(py).node().filter(|n| !n.is_leaf()).map(PyNode)
    }
    /// The gradient collected by `backward()`.
    #[getter]
    fn grad(&self, py: Python<'_>) -> Option<PyTensor> {
        self.read(py).grad().map(PyTensor::wrap)
    }
    #[setter(grad)]
    fn set_grad(&self, py: Python<'_>, grad: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let grad = match grad {
            None => None,
            Some(object) => {
                let tensor =
                    object.cast::<PyTensor>().map_err(|_| PyTypeError::new_err("grad must be a Tensor or None"))?;
                Some(tensor.get().write(py, Tensor::same))
            }
        };
        self.read(py).set_grad(grad).or_raise()
    }
    /// Keeps the gradient of this tensor though no user made it.
    fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        match self.read(py).node() {
            Some(node) => {
                node.retain_grad();
                Ok(())
            }
            None => Err(PyRuntimeError::new_err("can't retain_grad on Tensor that has requires_grad=False")),
        }
    }
    /// The same elements outside the tape; writing to either in place is seen through both.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyTensor {
        PyTensor::wrap(self.write(py, Tensor::alias))
    }
    #[setter(data)]
    fn set_data(&self, py: Python<'_>, other: &Bound<'_, PyTensor>) -> PyResult<()> {
        let value = other.get().snapshot(py)?.value().or_raise()?;
        drop(self.write(py, |tensor| tensor.set_data(value)));
        Ok(())
    }
    /// The same elements outside the tape; writing to either in place is seen through both.
    fn detach(&self, py: Python<'_>) -> PyTensor {
        self.data(py)
    }
    /// Takes this tensor off the tape.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        drop(slf.get().write(slf.py(), Tensor::leave_tape));
        slf.clone()
    }
    /// A tensor of its own with the same elements, through which gradients flow.
    fn clone(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.read(py).copied().or_raise().map(PyTensor::wrap)
    }
    /// Walks the tape back from this tensor, collecting gradients in the leaves.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<&Bound<'_, PyTensor>>,
        retain_graph: Option<bool>,
        create_graph: bool,
    ) -> PyResult<()> {
        let this = self.snapshot(py)?;
        let gradient = gradient.map(|g| g.get().snapshot(py)).transpose()?;
        tape::backward(&this, gradient.as_ref(), options(retain_graph, create_graph)).or_raise()
    }
}

/// Whether this thread records what it computes.
#[pyfunction]
fn is_grad_enabled() -> bool {
    tape::grad_enabled()
}

/// Turns recording on or off for this thread; returns what it was.
#[pyfunction]
fn set_grad_enabled(mode: bool) -> bool {
    tape::set_grad_enabled(mode)
}

fn tensors(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    if let Ok(one) = object.cast::<PyTensor>() {
        return Ok(vec![one.get().snapshot(py)?]);
    }
    object.try_iter()?.map(|item| item?.cast::<PyTensor>()?.get().snapshot(py)).collect()
}

/// The gradients of outputs with respect to inputs, collected nowhere else.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=false, allow_unused=false))]
fn grad<'py>(
    py: Python<'py>,
    outputs: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    grad_outputs: Option<&Bound<'py, PyAny>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let (outputs, inputs) = (tensors(py, outputs)?, tensors(py, inputs)?);
    let seeds = grad_outputs.map(|g| tensors(py, g)).transpose()?;
    let pairs: Vec<_> = outputs.iter().enumerate().map(|(i, o)| (o, seeds.as_ref().and_then(|s| s.get(i)))).collect();
    let wanted: Vec<&Tensor> = inputs.iter().collect();
    let grads = tape::grad(&pairs, &wanted, options(retain_graph, create_graph)).or_raise()?;
    if !allow_unused && grads.iter().any(Option::is_none) {
        return Err(PyRuntimeError::new_err(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.",
        ));
    }
    PyTuple::new(py, grads.into_iter().map(|g| g.map(PyTensor::wrap)))
}

/// The places on the tape that are alive, oldest first.
#[pyfunction(name = "tape")]
fn live_tape(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for place in tape::entries() {
        let entry = PyDict::new(py);
        entry.set_item("id", place.number)?;
        entry.set_item("op", place.op.map_or("leaf", |op| op.name()))?;
        entry.set_item("shape", PyTuple::new(py, place.meta.shape.dims())?)?;
        entry.set_item("dtype", place.meta.dtype.name())?;
        entry.set_item("inputs", place.inputs)?;
        entry.set_item("leaf", place.op.is_none())?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNode>()?;
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(grad, module)?)?;
    module.add_function(wrap_pyfunction!(live_tape, module)?)
}
