//! Convolution and pooling for `gt.nn.functional`, which passes every argument per axis.

use crate::convert::{Ints, ints};
use crate::error::OrRaise;
use crate::tensor::{PyTensor, build_from};
use gt_ops::build::window::{self, WindowParameters};
use gt_ops::{Op, OpError};
use pyo3::prelude::*;

/// Stride, padding and dilation of windows, per axis.
struct PyWindow {
    stride: Ints,
    low: Ints,
    high: Ints,
    dilation: Ints,
}

impl PyWindow {
    fn window(&self, groups: i64) -> WindowParameters<'_> {
        WindowParameters { stride: &self.stride, low: &self.low, high: &self.high, dilation: &self.dilation, groups }
    }
}

/// Convolution of a batch, with separate padding before (`low`) and after (`high`) each axis.
#[pyfunction]
#[pyo3(signature = (input, weight, bias, stride, low, high, dilation, groups))]
#[expect(clippy::too_many_arguments, reason = "as many as PyTorch's")]
fn convolution(
    py: Python<'_>,
    input: &PyTensor,
    weight: &PyTensor,
    bias: Option<&PyTensor>,
    stride: &Bound<'_, PyAny>,
    low: &Bound<'_, PyAny>,
    high: &Bound<'_, PyAny>,
    dilation: &Bound<'_, PyAny>,
    groups: i64,
) -> PyResult<PyTensor> {
    let sizes = PyWindow { stride: ints(stride)?, low: ints(low)?, high: ints(high)?, dilation: ints(dilation)? };
    let mut tensors = vec![input.snapshot(py)?, weight.snapshot(py)?];
    tensors.extend(bias.map(|bias| bias.snapshot(py)).transpose()?);
    let tensors: Vec<_> = tensors.iter().collect();
    build_from(
        &tensors,
        |g, v| window::convolution(g, v[0], v[1], v.get(2).copied(), &sizes.window(groups)),
        |s, v| s.tensor(v),
    )
    .or_raise()
    .map(PyTensor::wrap)
}

/// Transposed convolution: the gradient of `convolution` with respect to an input whose last sizes are `sizes`.
#[pyfunction]
#[pyo3(signature = (input, weight, sizes, stride, low, high, dilation, groups))]
#[expect(clippy::too_many_arguments, reason = "as many as PyTorch's")]
fn convolution_input(
    py: Python<'_>,
    input: &PyTensor,
    weight: &PyTensor,
    sizes: &Bound<'_, PyAny>,
    stride: &Bound<'_, PyAny>,
    low: &Bound<'_, PyAny>,
    high: &Bound<'_, PyAny>,
    dilation: &Bound<'_, PyAny>,
    groups: i64,
) -> PyResult<PyTensor> {
    let made = ints(sizes)?;
    let sizes = PyWindow { stride: ints(stride)?, low: ints(low)?, high: ints(high)?, dilation: ints(dilation)? };
    build_from(
        &[&input.snapshot(py)?, &weight.snapshot(py)?],
        |g, v| window::transposed_convolution(g, v[0], v[1], &made, &sizes.window(groups)),
        |s, v| s.tensor(v),
    )
    .or_raise()
    .map(PyTensor::wrap)
}

/// Pooling by the op's name (`max_pool`, `max_pool_indices` or `sum_pool`), with padding before and after each axis.
#[pyfunction]
#[pyo3(signature = (name, input, kernel_size, stride, low, high, dilation))]
#[expect(clippy::too_many_arguments, reason = "as many as PyTorch's")]
fn pool(
    py: Python<'_>,
    name: &str,
    input: &PyTensor,
    kernel_size: &Bound<'_, PyAny>,
    stride: &Bound<'_, PyAny>,
    low: &Bound<'_, PyAny>,
    high: &Bound<'_, PyAny>,
    dilation: &Bound<'_, PyAny>,
) -> PyResult<PyTensor> {
    let op = [Op::MaxPool, Op::MaxPoolIndices, Op::SumPool].into_iter().find(|op| op.name() == name);
    let op = op.ok_or_else(|| OpError::value(format!("no pool is called {name}"))).or_raise()?;
    let kernel = ints(kernel_size)?;
    let sizes = PyWindow { stride: ints(stride)?, low: ints(low)?, high: ints(high)?, dilation: ints(dilation)? };
    input.build(py, |g, v| window::pool(g, op, v, &kernel, &sizes.window(1)))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(convolution, module)?)?;
    module.add_function(wrap_pyfunction!(convolution_input, module)?)?;
    module.add_function(wrap_pyfunction!(pool, module)?)
}
