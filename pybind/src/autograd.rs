//! Gradients: what tensors offer of the tape.

use crate::error::OrRaise;
use crate::gil;
use crate::options::MemoryFormat;
use crate::tensor::PyTensor;
use gt_client::backward::{self, BackwardOptions};
use gt_client::{Node, Tensor, tape};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use std::sync::{Arc, Weak};

/// A recorded op, as `grad_fn` shows it.
#[pyclass(name = "Node", module = "gt", frozen)]
pub struct PyNode(Arc<Node>);

impl PyNode {
    /// The op that `node` is a result of.
    fn of(node: &Arc<Node>) -> PyNode {
        PyNode(node.function().0)
    }
}

#[pymethods]
impl PyNode {
    /// The name of the gradient, as `AddBackward0`.
    fn name(&self) -> String {
        self.0.backward_name()
    }
    /// The places on the tape of the operands.
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let next = self.0.inputs().into_iter().map(|node| match node {
            Some(node) => {
                let (function, index) = node.function();
                (Some(PyNode(function)), index)
            }
            None => (None, 0),
        });
        PyTuple::new(py, next.collect::<Vec<_>>())
    }
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyNode>().is_ok_and(|other| Arc::ptr_eq(&self.0, &other.get().0))
    }
    fn __hash__(&self) -> u64 {
        self.0.number()
    }
    fn __repr__(&self) -> String {
        format!("<{} #{}>", self.0.backward_name(), self.0.number())
    }
}

/// What adding a hook returns: `remove()` takes it away again.
#[pyclass(name = "RemovableHandle", module = "gt.utils.hooks", frozen)]
pub struct PyHandle {
    node: Weak<Node>,
    key: u64,
}

#[pymethods]
impl PyHandle {
    /// Takes the hook away.
    fn remove(&self) {
        if let Some(node) = self.node.upgrade() {
            node.remove_hook(self.key);
        }
    }
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.remove();
    }
}

/// Runs Python code in the middle of a backward pass; an exception ends the pass.
fn calling<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> gt_client::Result<T> {
    Python::attach(call).map_err(|error| {
        gil::keep_interrupt(error);
        gt_client::ClientError::Interrupted
    })
}

fn optional(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if object.is_none() { Ok(None) } else { object.cast::<PyTensor>()?.get().snapshot(object.py()).map(Some) }
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
        self.read(py).node().filter(|n| !n.is_leaf()).map(|n| PyNode::of(&n))
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
    /// Whether the gradient is kept though no user made the tensor.
    #[getter]
    fn retains_grad(&self, py: Python<'_>) -> bool {
        self.read(py).node().is_some_and(|node| !node.is_leaf() && node.retains_grad())
    }
    /// Calls `hook` with the gradient of this tensor when that is known; what it returns, if anything, replaces it.
    fn register_hook(&self, py: Python<'_>, hook: Py<PyAny>) -> PyResult<PyHandle> {
        let node = self.hooked(py)?;
        let key = node.add_hook(Arc::new(move |grad| {
            calling(|py| {
                let answer = hook.bind(py).call1((PyTensor::wrap(grad),))?;
                if !answer.is_none() && !answer.is_instance_of::<PyTensor>() {
                    return Err(PyTypeError::new_err(format!(
                        "hook '{}' has changed the type of value (was gt.Tensor got {})",
                        hook.bind(py).repr()?,
                        answer.get_type().name()?
                    )));
                }
                optional(&answer)
            })
        }));
        Ok(PyHandle { node: Arc::downgrade(&node), key })
    }
    /// Calls `hook` with this leaf each time that it has collected a gradient.
    fn register_post_accumulate_grad_hook(slf: &Bound<'_, Self>, hook: Py<PyAny>) -> PyResult<PyHandle> {
        let py = slf.py();
        let node = slf.get().hooked(py)?;
        if !node.is_leaf() {
            return Err(PyRuntimeError::new_err("post accumulate grad hooks cannot be registered on non-leaf tensors"));
        }
        // The leaf holds the hook, so the hook must not hold the leaf.
        let leaf = PyWeakrefReference::new(slf)?.unbind();
        let key = node.add_accumulated_hook(Arc::new(move || {
            calling(|py| match leaf.bind(py).upgrade() {
                Some(leaf) => hook.bind(py).call1((leaf,)).map(drop),
                None => Ok(()),
            })
        }));
        Ok(PyHandle { node: Arc::downgrade(&node), key })
    }
    /// How many in-place operations have changed it; views and `detach()` count with their base.
    #[getter]
    fn _version(&self, py: Python<'_>) -> PyResult<u32> {
        self.read(py).version().or_raise()
    }
    /// Whether it shows elements of another tensor.
    fn _is_view(&self, py: Python<'_>) -> bool {
        self.read(py).is_view()
    }
    /// Which result of its `grad_fn` it is.
    #[getter]
    fn output_nr(&self, py: Python<'_>) -> usize {
        self.read(py).node().map_or(0, |node| node.function().1)
    }
    /// The same elements outside the tape; writing to either in place is seen through both.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyTensor {
        PyTensor::wrap(self.write(py, |tensor| tensor.alias(true)))
    }
    #[setter(data)]
    fn set_data(&self, py: Python<'_>, other: &Bound<'_, PyTensor>) -> PyResult<()> {
        let value = other.get().snapshot(py)?.value().or_raise()?;
        drop(self.write(py, |tensor| tensor.set_data(value)));
        Ok(())
    }
    /// The same elements outside the tape; writing to either in place is seen through both.
    fn detach(&self, py: Python<'_>) -> PyTensor {
        PyTensor::wrap(self.write(py, |tensor| tensor.alias(false)))
    }
    /// Takes this tensor off the tape.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        drop(slf.get().write(slf.py(), Tensor::detach_in_place));
        slf.clone()
    }
    /// A tensor of its own with the same elements, through which gradients flow.
    #[pyo3(signature = (*, memory_format=None))]
    pub fn clone(&self, py: Python<'_>, memory_format: Option<MemoryFormat>) -> PyResult<PyTensor> {
        let copy = self.read(py).copied().or_raise()?;
        let strides = match memory_format {
            Some(format) => format.strides(&copy.meta().shape)?,
            None => None,
        };
        Ok(PyTensor::wrap(match strides {
            Some(strides) => copy.laid_out(strides).or_raise()?,
            None => copy,
        }))
    }
    /// Walks the tape back from this tensor, collecting gradients in the leaves, or in `inputs` alone.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<&Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let this = self.snapshot(py)?;
        let gradient = gradient.map(|g| optional(g)).transpose()?.flatten();
        let inputs = inputs.map(wanted).transpose()?;
        backward::backward(&[(&this, gradient.as_ref())], inputs.as_deref(), options(retain_graph, create_graph))
            .or_raise()
    }
}

impl PyTensor {
    /// Its place on the tape, for a hook.
    fn hooked(&self, py: Python<'_>) -> PyResult<Arc<Node>> {
        self.read(py)
            .node()
            .ok_or_else(|| PyRuntimeError::new_err("cannot register a hook on a tensor that doesn't require gradient"))
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

/// The places on the tape of tensors, of one or of places themselves.
fn wanted(object: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<Node>>> {
    if object.is_instance_of::<PyTensor>() {
        return wanted(PyTuple::new(object.py(), [object])?.as_any());
    }
    let place = |item: PyResult<Bound<'_, PyAny>>| {
        place_of(&item?)?
            .ok_or_else(|| PyRuntimeError::new_err("One of the differentiated Tensors does not require grad"))
    };
    object.try_iter()?.map(place).collect()
}

/// Where a tensor is on the tape, or the place itself; none for `None` and tensors outside it.
fn place_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Node>>> {
    if object.is_none() {
        return Ok(None);
    }
    match object.cast::<PyNode>() {
        Ok(node) => Ok(Some(node.get().0.clone())),
        Err(_) => Ok(object.cast::<PyTensor>()?.get().read(object.py()).node()),
    }
}

fn roots(tensors: &Bound<'_, PyAny>, grads: &Bound<'_, PyAny>) -> PyResult<Vec<(Tensor, Option<Tensor>)>> {
    let both = tensors.try_iter()?.zip(grads.try_iter()?);
    both.map(|(tensor, grad)| Ok((tensor?.cast::<PyTensor>()?.get().snapshot(grads.py())?, optional(&grad?)?)))
        .collect()
}

fn borrowed(roots: &[(Tensor, Option<Tensor>)]) -> Vec<(&Tensor, Option<&Tensor>)> {
    roots.iter().map(|(tensor, grad)| (tensor, grad.as_ref())).collect()
}

/// Walks the tape back from tensors, with a gradient or `None` for each, collecting gradients in the leaves.
#[pyfunction]
#[pyo3(signature = (tensors, grads, retain_graph, create_graph, inputs=None))]
fn run_backward(
    tensors: &Bound<'_, PyAny>,
    grads: &Bound<'_, PyAny>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let roots = roots(tensors, grads)?;
    let inputs = inputs.map(wanted).transpose()?;
    backward::backward(&borrowed(&roots), inputs.as_deref(), options(retain_graph, create_graph)).or_raise()
}

/// The gradients of tensors, with a gradient or `None` for each, with respect to tensors or places on the tape.
#[pyfunction]
fn gradients<'py>(
    py: Python<'py>,
    tensors: &Bound<'py, PyAny>,
    grads: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    retain_graph: Option<bool>,
    create_graph: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let roots = roots(tensors, grads)?;
    let found = backward::grad(&borrowed(&roots), &wanted(inputs)?, options(retain_graph, create_graph)).or_raise()?;
    PyTuple::new(py, found.into_iter().map(|grad| grad.map(PyTensor::wrap)))
}

/// Records `results` as those of a function of `inputs`: tensors, places on the tape, or `None`. Its gradient is what
/// `backward` makes of its place, a list of the gradients of the results and whether another pass may come. A result
/// that is not `differentiable` stays outside the tape.
#[pyfunction]
fn record<'py>(
    py: Python<'py>,
    name: String,
    results: &Bound<'py, PyAny>,
    differentiable: Vec<bool>,
    inputs: &Bound<'py, PyAny>,
    backward: Py<PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let results =
        results.try_iter()?.map(|item| item?.cast::<PyTensor>()?.get().snapshot(py)).collect::<PyResult<Vec<_>>>()?;
    let inputs = inputs.try_iter()?.map(|item| place_of(&item?)).collect::<PyResult<Vec<_>>>()?;
    let count = inputs.len();
    let metas: Vec<_> = results.iter().map(Tensor::meta).collect();
    let Some(meta) = metas.first().copied() else { return Ok(PyTuple::empty(py)) };
    let call = move |node: &Arc<Node>, grads: Vec<Option<Tensor>>, retain: bool| {
        calling(|py| {
            let grads = PyTuple::new(py, grads.into_iter().map(|grad| grad.map(PyTensor::wrap)))?;
            let answer = backward.bind(py).call1((PyNode(node.clone()), grads, retain))?;
            let found = answer.try_iter()?.map(|item| optional(&item?)).collect::<PyResult<Vec<_>>>()?;
            assert_eq!(found.len(), count, "one gradient for each input");
            Ok(found)
        })
    };
    let node = Node::custom(name, inputs, results.len(), meta, Box::new(call));
    let placed = results.iter().zip(&differentiable).enumerate().map(|(index, (tensor, on))| {
        let place = on.then(|| Node::custom_output(&node, index, metas[index]));
        tensor.at(place).or_raise().map(PyTensor::wrap)
    });
    PyTuple::new(py, placed.collect::<PyResult<Vec<_>>>()?)
}

/// The elements of `tensor` as result `index` of the recorded function `node`.
#[pyfunction]
fn as_result(py: Python<'_>, tensor: &Bound<'_, PyTensor>, node: &PyNode, index: usize) -> PyResult<PyTensor> {
    let tensor = tensor.get().snapshot(py)?;
    let place = Node::custom_output(&node.0, index, tensor.meta());
    tensor.at(Some(place)).or_raise().map(PyTensor::wrap)
}

/// The places on the tape that tensors were computed from: leaves, and those older than `since`.
#[pyfunction]
fn frontier(tensors: &Bound<'_, PyAny>, since: u64) -> PyResult<Vec<PyNode>> {
    let mut todo = Vec::new();
    for item in tensors.try_iter()? {
        todo.extend(place_of(&item?)?);
    }
    Ok(backward::frontier(todo, since).into_iter().map(PyNode).collect())
}

/// The number of the next place on the tape.
#[pyfunction]
fn tape_clock() -> u64 {
    tape::next_number()
}

/// Whether products of float32 may be rounded to 11 bits: of matrices, of convolutions.
#[pyfunction]
fn allow_tf32(matmuls: bool, convolutions: bool) {
    gt_client::precision::allow_tf32(matmuls, convolutions);
}

/// Turns anomaly detection on or off, and the search for NaNs with it; returns what both were.
#[pyfunction]
fn set_anomaly(on: bool, check_nan: bool) -> (bool, bool) {
    let before = tape::anomaly();
    tape::set_anomaly(on, check_nan);
    before
}

/// Whether anomaly detection is on, and whether it looks for NaNs.
#[pyfunction]
fn anomaly() -> (bool, bool) {
    tape::anomaly()
}

/// The places on the tape that are alive, oldest first.
#[pyfunction(name = "tape")]
fn live_tape(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for place in tape::entries() {
        let entry = PyDict::new(py);
        entry.set_item("id", place.number)?;
        entry.set_item("op", place.name)?;
        entry.set_item("shape", PyTuple::new(py, place.meta.shape.dims())?)?;
        entry.set_item("dtype", place.meta.dtype.name())?;
        entry.set_item("inputs", place.inputs)?;
        entry.set_item("leaf", place.leaf)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNode>()?;
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(set_grad_enabled, module)?)?;
    module.add_class::<PyHandle>()?;
    for function in [
        wrap_pyfunction!(run_backward, module)?,
        wrap_pyfunction!(gradients, module)?,
        wrap_pyfunction!(record, module)?,
        wrap_pyfunction!(as_result, module)?,
        wrap_pyfunction!(frontier, module)?,
        wrap_pyfunction!(tape_clock, module)?,
        wrap_pyfunction!(allow_tf32, module)?,
        wrap_pyfunction!(set_anomaly, module)?,
        wrap_pyfunction!(anomaly, module)?,
    ] {
        module.add_function(function)?;
    }
    module.add_function(wrap_pyfunction!(live_tape, module)?)
}
