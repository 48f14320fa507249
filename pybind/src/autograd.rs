//! Autograd: the tensor's methods on the tape, and functions on its nodes.

use crate::dtype::package;
use crate::error::OrRaise;
use crate::gil;
use crate::options::MemoryFormat;
use crate::tensor::PyTensor;
use gt_client::backward::{self, BackwardOptions};
use gt_client::{Node, Tensor, tape};
use gt_ops::Meta;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use std::sync::{Arc, Weak};

/// A node of the autograd graph: a recorded operation, as `grad_fn` shows it.
#[pyclass(name = "Node", module = "gt", frozen)]
pub struct PyNode(Arc<Node>);

impl PyNode {
    /// The operation of which `node` is an output.
    fn of(node: &Arc<Node>) -> PyNode {
        PyNode(node.function().0)
    }
}

#[pymethods]
impl PyNode {
    /// The name of the gradient function, as `AddBackward0`.
    fn name(&self) -> String {
        self.0.backward_name()
    }
    /// For each operand, the node that computed it and the operand's index among that node's outputs.
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

/// A handle of a hook: `remove()` removes the hook.
#[pyclass(name = "RemovableHandle", module = "gt.utils.hooks", frozen)]
pub struct PyHandle {
    node: Weak<Node>,
    key: u64,
}

#[pymethods]
impl PyHandle {
    /// Removes the hook.
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
    /// Whether autograd records what is computed from this tensor. A view taken before its base required a gradient, or
    /// without recording, answers as the base, as in PyTorch; no gradient flows through it.
    #[getter]
    fn requires_grad(&self, py: Python<'_>) -> bool {
        self.read(py).shows_requires_grad()
    }
    #[setter(requires_grad)]
    fn set_requires_grad(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        // A view resolves its base first, which may wait; the change itself does not.
        self.read(py).resolve().or_raise()?;
        let old = self.write(py, |t| t.set_requires_grad(on));
        old.or_raise().map(drop)
    }
    /// Sets `requires_grad` in place, and returns the tensor.
    ///
    /// Example:
    ///     >>> gt.zeros(2).requires_grad_()
    ///     tensor([0., 0.], requires_grad=True)
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().set_requires_grad(slf.py(), requires_grad)?;
        Ok(slf.clone())
    }
    /// Whether the tensor is a leaf of the graph: made by the user, or computed without being recorded.
    #[getter]
    fn is_leaf(&self, py: Python<'_>) -> bool {
        self.read(py).is_leaf()
    }
    /// The node of the graph that computed the tensor; `None` for a leaf.
    #[getter]
    fn grad_fn(&self, py: Python<'_>) -> Option<PyNode> {
        self.read(py).node().filter(|n| !n.is_leaf()).map(|n| PyNode::of(&n))
    }
    /// The sum of the gradients that `backward()` computed for this tensor; `None` before the first one.
    ///
    /// Assign `None` to begin a new sum.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0], requires_grad=True)
    ///     >>> (3 * x).sum().backward()
    ///     >>> x.grad
    ///     tensor([3., 3.])
    #[getter]
    fn grad(&self, py: Python<'_>) -> PyResult<Option<PyTensor>> {
        let this = self.read(py);
        let Some(grad) = this.grad() else {
            let computed = this.node().is_some_and(|node| !node.is_leaf() && !node.shows_retained_grad());
            let gets_none = computed && this.shows_requires_grad();
            drop(this);
            if gets_none {
                let text = c"this tensor was computed from others, so backward() leaves its .grad None, unless \
                             retain_grad() is called before";
                PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
            }
            return Ok(None);
        };
        let mut grad = PyTensor::wrap(grad);
        grad.gradient_of = this.grad_holder().map(|node| Arc::downgrade(&node));
        Ok(Some(grad))
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
        if grad.is_some() {
            self.write(py, Tensor::hold_grad);
        }
        self.read(py).set_grad(grad).or_raise()
    }
    /// Makes `backward()` keep the gradient of this tensor in `grad`, although it is no leaf.
    ///
    /// Example:
    ///     >>> x = gt.ones(2, requires_grad=True)
    ///     >>> y = x * 3
    ///     >>> y.retain_grad()
    ///     >>> y.sum().backward()
    ///     >>> y.grad
    ///     tensor([1., 1.])
    fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        let (node, shown) = {
            let this = self.read(py);
            (this.node(), this.shows_requires_grad())
        };
        match node {
            Some(node) => {
                // A leaf keeps its gradient anyway.
                if !node.is_leaf() {
                    node.retain_grad();
                }
                Ok(())
            }
            // A view that was taken without recording has no gradient to retain.
            None if shown => Ok(()),
            None => Err(PyRuntimeError::new_err("can't retain_grad on Tensor that has requires_grad=False")),
        }
    }
    /// Whether `retain_grad()` was called on this tensor.
    #[getter]
    fn retains_grad(&self, py: Python<'_>) -> bool {
        self.read(py).node().is_some_and(|node| !node.is_leaf() && node.shows_retained_grad())
    }
    /// Calls `hook(grad)` whenever the gradient of this tensor is computed.
    ///
    /// Args:
    ///     hook: A function of the gradient. A tensor that it returns replaces the gradient.
    ///
    /// Returns:
    ///     A handle whose `remove()` removes the hook.
    ///
    /// Example:
    ///     >>> x = gt.ones(2, requires_grad=True)
    ///     >>> handle = x.register_hook(lambda grad: grad * 10)
    ///     >>> x.sum().backward()
    ///     >>> x.grad
    ///     tensor([10., 10.])
    fn register_hook(&self, py: Python<'_>, hook: Py<PyAny>) -> PyResult<PyHandle> {
        let node = self.hooked(py)?;
        let key = node.add_hook(Arc::new(move |grad| {
            calling(|py| {
                let expected = grad.meta();
                let answer = hook.bind(py).call1((PyTensor::wrap(grad),))?;
                if !answer.is_none() && !answer.is_instance_of::<PyTensor>() {
                    let kind = answer.get_type().name()?;
                    return Err(PyTypeError::new_err(format!("expected Variable, but hook returned '{kind}'")));
                }
                let answer = optional(&answer)?;
                if let Some(grad) = &answer {
                    check_hook(hook.bind(py), expected, grad.meta())?;
                }
                Ok(answer)
            })
        }));
        Ok(PyHandle { node: Arc::downgrade(&node), key })
    }
    /// Calls `hook(tensor)` with this leaf each time that a gradient was added to its `grad`.
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
    /// The number of in-place operations on the tensor; views and `detach()` count with their base.
    #[getter]
    fn _version(&self, py: Python<'_>) -> PyResult<u32> {
        self.read(py).version().or_raise()
    }
    /// Whether the tensor is a view of another.
    fn _is_view(&self, py: Python<'_>) -> bool {
        self.read(py).is_view()
    }
    /// The index of this tensor among the outputs of its `grad_fn`.
    #[getter]
    fn output_nr(&self, py: Python<'_>) -> usize {
        self.read(py).node().map_or(0, |node| node.function().1)
    }
    /// A tensor outside the graph that shares the elements: an in-place write to either changes both.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyTensor {
        PyTensor::wrap(self.write(py, |tensor| tensor.alias(true)))
    }
    #[setter(data)]
    fn set_data(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(other) = other.cast::<PyTensor>() else {
            let kind = other.get_type().name()?;
            return Err(PyTypeError::new_err(format!("Variable data has to be a tensor, but got {kind}")));
        };
        let data = other.get().write(py, |tensor| tensor.alias(false));
        drop(self.write(py, |tensor| tensor.set_data(data)).or_raise()?);
        // Reading `grad` again must give the same tensor.
        if let Some(node) = self.gradient_of.as_ref().and_then(Weak::upgrade) {
            let grad = self.write(py, Tensor::same);
            node.replace_grad(grad);
        }
        Ok(())
    }
    /// A tensor that shares the elements but is no part of the graph: no gradient flows through it.
    ///
    /// An in-place write to either tensor changes both.
    ///
    /// Example:
    ///     >>> x = gt.ones(2, requires_grad=True)
    ///     >>> x.detach().requires_grad
    ///     False
    fn detach(&self, py: Python<'_>) -> PyTensor {
        PyTensor::wrap(self.write(py, |tensor| tensor.alias(false)))
    }
    /// Takes this tensor out of the graph: it becomes a leaf that requires no grad.
    ///
    /// Raises:
    ///     RuntimeError: It is a view, through which gradients may flow to its base.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        if slf.get().read(slf.py()).is_tracked_view() {
            return Err(PyRuntimeError::new_err("Can't detach views in-place. Use detach() instead."));
        }
        drop(slf.get().write(slf.py(), Tensor::detach_in_place));
        Ok(slf.clone())
    }
    /// A copy, through which gradients flow back to this tensor.
    ///
    /// Example:
    ///     >>> x = gt.zeros(2)
    ///     >>> y = x.clone()
    ///     >>> y[0] = 1
    ///     >>> x
    ///     tensor([0., 0.])
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
    /// Computes the gradient of this tensor with respect to the leaves of its graph, and adds it to their `grad`.
    ///
    /// A leaf is a tensor with `requires_grad` that no recorded operation made, such as a parameter. Gradients
    /// accumulate: set `grad` to `None`, or call `optimizer.zero_grad()`, before the next step.
    ///
    /// Args:
    ///     gradient: The gradient of the loss with respect to this tensor, of its shape. A tensor of one element needs
    ///         none: it is taken as the loss, and its gradient is 1.
    ///     retain_graph: Whether to keep the graph for another pass; the value of `create_graph` if not given.
    ///     create_graph: Whether to record the computation of the gradients, for gradients of gradients.
    ///     inputs: The tensors whose `grad` is added to, and no others; all leaves if not given.
    ///
    /// Raises:
    ///     RuntimeError: The tensor requires no grad, has several elements and no `gradient` is given, or its graph was
    ///         freed by an earlier pass.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    ///     >>> (x * x).sum().backward()
    ///     >>> x.grad
    ///     tensor([2., 4., 6.])
    ///     >>> (x * x).backward(gt.tensor([1.0, 0.0, 0.0]))
    ///     >>> x.grad
    ///     tensor([4., 4., 6.])
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
        warn_of_cycle(py, create_graph)?;
        backward::backward(&[(&this, gradient.as_ref())], inputs.as_deref(), options(retain_graph, create_graph))
            .or_raise()
    }
}

/// Warns of gradients whose graphs refer to the leaves that hold them.
fn warn_of_cycle(py: Python<'_>, create_graph: bool) -> PyResult<()> {
    if !create_graph {
        return Ok(());
    }
    let text =
        c"backward(create_graph=True) leaves gradients whose graphs refer to their parameters, which are not freed \
                 until .grad = None: autograd.grad returns them instead";
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)
}

/// Whether operations are recorded, until it is dropped.
pub(crate) struct Recording {
    before: bool,
}

impl Recording {
    /// Turns recording on or off.
    pub(crate) fn set(on: bool) -> Recording {
        Recording { before: tape::set_grad_enabled(on) }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        tape::set_grad_enabled(self.before);
    }
}

/// Checks that a hook returned a gradient of the shape and dtype that it was given.
///
/// # Errors
/// PyTorch's: it has not.
fn check_hook(hook: &Bound<'_, PyAny>, expected: Meta, found: Meta) -> PyResult<()> {
    if expected == found {
        return Ok(());
    }
    let name = hook.getattr("__name__").and_then(|name| name.extract::<String>()).unwrap_or("<unknown>".into());
    Err(PyRuntimeError::new_err(if expected.dtype == found.dtype {
        format!(
            "hook '{name}' has changed the size of value: it was given {} and returned {}",
            expected.shape, found.shape
        )
    } else {
        let kinds = [expected, found].map(|meta| format!("{}.{}Tensor", package(), meta.dtype.scalar_type_name()));
        format!("hook '{name}' has changed the type of value (was {} got {})", kinds[0], kinds[1])
    }))
}

impl PyTensor {
    /// The tensor's node on the tape, to which a hook is added.
    fn hooked(&self, py: Python<'_>) -> PyResult<Arc<Node>> {
        self.read(py)
            .hooked_node()
            .ok_or_else(|| PyRuntimeError::new_err("cannot register a hook on a tensor that doesn't require gradient"))
    }
}

/// Whether autograd records operations in this thread.
///
/// Example:
///     >>> with gt.no_grad():
///     ...     gt.is_grad_enabled()
///     False
#[pyfunction]
fn is_grad_enabled() -> bool {
    tape::grad_enabled()
}

/// Enables or disables recording in this thread; returns the former setting.
#[pyfunction]
fn set_grad_enabled(mode: bool) -> bool {
    tape::set_grad_enabled(mode)
}

/// The node of a tensor, or the nodes of a sequence of tensors and nodes.
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

/// The node of a tensor, or the node itself; `None` for `None` and for tensors outside the graph.
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

/// Runs the backward pass from tensors, with a gradient or `None` for each, and accumulates gradients in the leaves.
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
    warn_of_cycle(tensors.py(), create_graph)?;
    backward::backward(&borrowed(&roots), inputs.as_deref(), options(retain_graph, create_graph)).or_raise()
}

/// The gradients of `tensors` with respect to `inputs`, which are tensors or nodes. For each tensor, `grads` has its
/// gradient or `None`.
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

/// Records `results` as the outputs of a function of `inputs`: tensors, nodes, or `None`. Its gradient function is
/// `backward(node, gradients of the results, whether the graph is retained)`. A result that is not `differentiable`
/// stays outside the graph.
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

/// The nodes that tensors were computed from: leaves, and nodes older than `since`.
#[pyfunction]
fn frontier(tensors: &Bound<'_, PyAny>, since: u64) -> PyResult<Vec<PyNode>> {
    let mut todo = Vec::new();
    for item in tensors.try_iter()? {
        todo.extend(place_of(&item?)?);
    }
    Ok(backward::frontier(todo, since).into_iter().map(PyNode).collect())
}

/// The number of the next node on the tape.
#[pyfunction]
fn tape_clock() -> u64 {
    tape::next_number()
}

/// Sets whether matrix products of float32, and whether convolutions, may use TF32 (11 significant bits).
#[pyfunction]
fn allow_tf32(matmuls: bool, convolutions: bool) {
    gt_client::precision::allow_tf32(matmuls, convolutions);
}

/// Enables or disables anomaly detection and its NaN check; returns the former settings.
#[pyfunction]
fn set_anomaly(on: bool, check_nan: bool) -> (bool, bool) {
    let before = tape::anomaly();
    tape::set_anomaly(on, check_nan);
    before
}

/// Whether anomaly detection is enabled, and whether it checks for NaN.
#[pyfunction]
fn anomaly() -> (bool, bool) {
    tape::anomaly()
}

/// The live nodes of the tape, oldest first.
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
