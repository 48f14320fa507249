//! Reductions of tensors: sums, extremes, variances, and softmax.

use crate::convert::{self, axes};
use crate::dtype::DTypeArg;
use crate::error::OrRaise;
use crate::operators;
use crate::tensor::{PyTensor, build_from};
use gt_client::Tensor;
use gt_ops::build::row_wise;
use gt_ops::{Op, Val, build};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

fn values_indices<'py>(py: Python<'py>, values: Tensor, indices: Tensor) -> PyResult<Bound<'py, PyAny>> {
    static PAIR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    PAIR.import(py, "gt._types", "ValuesIndices")?.call1((PyTensor::wrap(values), PyTensor::wrap(indices)))
}

/// Reductions over axes, which may be passed as `dim` or as `axis`.
macro_rules! reductions {
    ($($name:ident $op:ident $doc:literal;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[doc = $doc]
                #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false, dtype=None))]
                fn $name(
                    &self,
                    py: Python<'_>,
                    dim: Option<&Bound<'_, PyAny>>,
                    keepdim: bool,
                    axis: Option<&Bound<'_, PyAny>>,
                    keepdims: bool,
                    dtype: Option<DTypeArg>,
                ) -> PyResult<PyTensor> {
                    let axes = axes(dim, axis)?;
                    self.build(py, |g, v| {
                        let v = match dtype {
                            Some(DTypeArg(dtype)) => build::cast(g, v, dtype)?,
                            None => v,
                        };
                        let result = build::reduce(g, Op::$op, v, axes.as_deref(), keepdim || keepdims)?;
                        // Integers are summed as int64; the low bits are those of a sum in the narrower dtype.
                        match dtype {
                            Some(DTypeArg(dtype)) if matches!(Op::$op, Op::Sum | Op::Prod) => {
                                build::cast(g, result, dtype)
                            }
                            _ => Ok(result),
                        }
                    })
                }
            )*
        }
    };
}

reductions! {
    sum Sum
        "The sum of all elements, or along axes.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of the input's shape without the reduced axes. Bools and integers add up as int64.

Example:
    >>> x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gt.sum(x)
    tensor(10.)
    >>> x.sum(dim=0, keepdim=True)
    tensor([[4., 6.]])";
    mean Mean
        "The mean of all elements, or along axes.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of the input's shape without the reduced axes. Integers need `dtype`.

Example:
    >>> x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gt.mean(x)
    tensor(2.5000)
    >>> x.mean(dim=1)
    tensor([1.5000, 3.5000])";
    _norm Norm "The Euclidean norm of all elements, or along axes: the square root of the sum of squares.";
    prod Prod
        "The product of all elements, or along axes.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of the input's shape without the reduced axes. Bools and integers multiply as int64.

Example:
    >>> gt.prod(gt.tensor([1.0, 2.0, 3.0]))
    tensor(6.)";
    amax Amax
        "The largest element of all, or along axes. Equal elements share the gradient.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of the input's shape without the reduced axes. NaN if there is one.

Example:
    >>> gt.amax(gt.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=(0, 1))
    tensor(7.)";
    amin Amin
        "The smallest element of all, or along axes. Equal elements share the gradient.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of the input's shape without the reduced axes. NaN if there is one.

Example:
    >>> gt.amin(gt.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
    tensor([1., 2.])";
    any Any
        "Whether any element, of all or along axes, is nonzero.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of bools of the input's shape without the reduced axes.

Example:
    >>> gt.any(gt.tensor([[False, True], [False, False]]), dim=1)
    tensor([ True, False])";
    all All
        "Whether every element, of all or along axes, is nonzero.

Args:
    dim: An axis or several; all if not given. `axis` is another name.
    keepdim: Whether reduced axes stay with size 1.
    dtype: The dtype to convert the input to before.

Returns:
    A tensor of bools of the input's shape without the reduced axes.

Example:
    >>> gt.all(gt.tensor([[True, True], [True, False]]), dim=1)
    tensor([ True, False])";
}

fn extreme<'py>(
    slf: &Bound<'py, PyTensor>,
    op: Op,
    dim: Option<&Bound<'py, PyAny>>,
    keepdim: bool,
    axis: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let this = slf.get();
    let along = match dim {
        Some(other) if other.is_instance_of::<PyTensor>() => {
            let pairwise = if op == Op::Amax { Op::Maximum } else { Op::Minimum };
            let args = PyTuple::new(py, [slf.as_any(), other])?;
            return Ok(Bound::new(py, operators::elementwise(py, pairwise as u16, &args)?)?.into_any());
        }
        Some(dim) => Some(dim.extract::<i64>()?),
        None => None,
    };
    match convert::axis(along, axis)? {
        None => Ok(Bound::new(py, this.build(py, |g, v| build::reduce(g, op, v, None, keepdim))?)?.into_any()),
        Some(axis) => {
            let this = this.snapshot(py)?;
            let (values, indices) = build_from(
                &[&this],
                |g, v| build::extreme_along(g, op, v[0], axis, keepdim),
                |s, (values, indices)| (s.tensor(values), s.tensor(indices)),
            )
            .or_raise()?;
            values_indices(py, values, indices)
        }
    }
}

/// The correction of the divisor, passed as `unbiased` or as `correction`.
fn correction_of(dim: &mut Option<Bound<'_, PyAny>>, unbiased: Option<bool>, correction: Option<f64>) -> f64 {
    // PyTorch's overload `x.var(unbiased)`.
    let mut unbiased = unbiased;
    if let Some(flag) = dim.as_ref().and_then(|d| d.cast::<pyo3::types::PyBool>().ok().map(|b| b.is_true())) {
        unbiased = Some(flag);
        *dim = None;
    }
    correction.unwrap_or(if unbiased.unwrap_or(true) { 1.0 } else { 0.0 })
}

#[pymethods]
impl PyTensor {
    /// The largest element of all, the largest elements along an axis with their indices, or the elementwise maximum.
    ///
    /// Args:
    ///     dim: An axis, or another tensor: `x.max(other)` is `gt.maximum(x, other)`. Without it, all elements are
    ///         reduced.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor without axes; with `dim`, a pair `(values, indices)` of the input's shape without that axis. A NaN
    ///     is larger than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> x.max()
    ///     tensor(7.)
    ///     >>> values, indices = gt.max(x, dim=1)
    ///     >>> values, indices
    ///     (tensor([5., 7.]), tensor([1, 0]))
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn max<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        extreme(slf, Op::Amax, dim, keepdim || keepdims, axis)
    }
    /// The smallest element of all, the smallest elements along an axis with their indices, or the elementwise minimum.
    ///
    /// Args:
    ///     dim: An axis, or another tensor: `x.min(other)` is `gt.minimum(x, other)`. Without it, all elements are
    ///         reduced.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor without axes; with `dim`, a pair `(values, indices)` of the input's shape without that axis. A NaN
    ///     is smaller than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> x.min()
    ///     tensor(1.)
    ///     >>> gt.min(x, dim=0).indices
    ///     tensor([0, 1])
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn min<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        extreme(slf, Op::Amin, dim, keepdim || keepdims, axis)
    }
    /// The index of the largest element: in the flattened tensor, or along an axis.
    ///
    /// Args:
    ///     dim: The axis. Without it, the index is that in the flattened tensor.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor of int64. Of equal elements, the first counts; a NaN is larger than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> gt.argmax(x)
    ///     tensor(2)
    ///     >>> x.argmax(dim=1)
    ///     tensor([1, 0])
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn argmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let along = convert::axis(dim, axis)?;
        self.build(py, |g, v| build::arg_reduce(g, Op::Argmax, v, along, keepdim || keepdims))
    }
    /// The index of the smallest element: in the flattened tensor, or along an axis.
    ///
    /// Args:
    ///     dim: The axis. Without it, the index is that in the flattened tensor.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor of int64. Of equal elements, the first counts; a NaN is smaller than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> gt.argmin(x)
    ///     tensor(0)
    ///     >>> x.argmin(dim=1)
    ///     tensor([0, 1])
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn argmin(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let along = convert::axis(dim, axis)?;
        self.build(py, |g, v| build::arg_reduce(g, Op::Argmin, v, along, keepdim || keepdims))
    }
    /// The variance of all elements, or along axes: sum((x - mean(x)) ** 2) / (n - correction).
    ///
    /// `n` is the number of elements over which the variance is taken. With `n <= correction` it is NaN or infinite.
    ///
    /// Args:
    ///     dim: An axis or several; all if not given.
    ///     unbiased: An older form of `correction`: `True` is `correction=1`, `False` is `correction=0`.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     correction: The number subtracted from `n`: 1 by default, for the unbiased estimate from a sample (Bessel's
    ///         correction); 0 for the variance of a whole population.
    ///     axis: NumPy's name of `dim`.
    ///     keepdims: NumPy's name of `keepdim`.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes, or with size 1 there if `keepdim`.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    ///     >>> gt.var(x, dim=1)
    ///     tensor([1., 4.])
    ///     >>> x.var(correction=0)
    ///     tensor(5.6667)
    #[pyo3(signature = (dim=None, unbiased=None, keepdim=false, *, correction=None, axis=None, keepdims=false))]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's signature and NumPy's aliases")]
    fn var(
        &self,
        py: Python<'_>,
        mut dim: Option<Bound<'_, PyAny>>,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
        axis: Option<&Bound<'_, PyAny>>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let correction = correction_of(&mut dim, unbiased, correction);
        let axes = axes(dim.as_ref(), axis)?;
        self.build(py, |g, v| build::var(g, v, axes.as_deref(), correction, keepdim || keepdims))
    }
    /// The standard deviation of all elements, or along axes: the square root of `var`.
    ///
    /// Args:
    ///     dim: An axis or several; all if not given.
    ///     unbiased: `False` stands for `correction=0`.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     correction: The number subtracted from the number of elements: 1 by default (Bessel's correction).
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    ///     >>> gt.std(x, dim=1)
    ///     tensor([1., 2.])
    ///     >>> x.std(dim=1, correction=0)
    ///     tensor([0.8165, 1.6330])
    #[pyo3(signature = (dim=None, unbiased=None, keepdim=false, *, correction=None, axis=None, keepdims=false))]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's signature and NumPy's aliases")]
    fn std(
        &self,
        py: Python<'_>,
        mut dim: Option<Bound<'_, PyAny>>,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
        axis: Option<&Bound<'_, PyAny>>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let correction = correction_of(&mut dim, unbiased, correction);
        let axes = axes(dim.as_ref(), axis)?;
        self.build(py, |g, v| build::std(g, v, axes.as_deref(), correction, keepdim || keepdims))
    }
    /// Probabilities from logits: exp(x) / sum(exp(x)) along an axis.
    ///
    /// The largest element is subtracted first, so large logits do not overflow.
    ///
    /// Args:
    ///     dim: The axis along which the result sums to 1. It has to be given.
    ///     axis: NumPy's name of `dim`.
    ///     dtype: The dtype that the input is converted to first; its own dtype if not given.
    ///
    /// Returns:
    ///     A tensor of the input's shape, whose elements lie between 0 and 1.
    ///
    /// Raises:
    ///     TypeError: `dim` is not given.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    ///     >>> gt.softmax(x, dim=1)
    ///     tensor([[0.0900, 0.2447, 0.6652],
    ///             [0.3333, 0.3333, 0.3333]])
    ///     >>> x.softmax(dim=0).sum(0)
    ///     tensor([1.0000, 1.0000, 1.0000])
    #[pyo3(signature = (dim=None, *, axis=None, dtype=None))]
    fn softmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        axis: Option<i64>,
        dtype: Option<DTypeArg>,
    ) -> PyResult<PyTensor> {
        let along = along(dim, axis, "softmax")?;
        self.build(py, |g, v| {
            let v = optional_cast(g, v, dtype)?;
            row_wise::softmax(g, Op::Softmax, v, along)
        })
    }
    /// Log-probabilities from logits: x - log(sum(exp(x))) along an axis, without overflow.
    ///
    /// Args:
    ///     dim: The axis along which the exponentials of the result sum to 1. It has to be given.
    ///     axis: NumPy's name of `dim`.
    ///     dtype: The dtype that the input is converted to first; its own dtype if not given.
    ///
    /// Returns:
    ///     A tensor of the input's shape, whose elements are at most 0.
    ///
    /// Raises:
    ///     TypeError: `dim` is not given.
    ///
    /// Example:
    ///     >>> gt.log_softmax(gt.tensor([1.0, 2.0, 3.0]), dim=0)
    ///     tensor([-2.4076, -1.4076, -0.4076])
    #[pyo3(signature = (dim=None, *, axis=None, dtype=None))]
    fn log_softmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        axis: Option<i64>,
        dtype: Option<DTypeArg>,
    ) -> PyResult<PyTensor> {
        let along = along(dim, axis, "log_softmax")?;
        self.build(py, |g, v| {
            let v = optional_cast(g, v, dtype)?;
            row_wise::softmax(g, Op::LogSoftmax, v, along)
        })
    }
}

fn along(dim: Option<i64>, other: Option<i64>, name: &str) -> PyResult<i64> {
    convert::axis(dim, other)?.ok_or_else(|| PyTypeError::new_err(format!("{name}() missing the argument 'dim'")))
}

fn optional_cast(g: &mut dyn gt_ops::Graph, v: Val, dtype: Option<DTypeArg>) -> gt_ops::error::Result<Val> {
    match dtype {
        Some(DTypeArg(dtype)) => build::cast(g, v, dtype),
        None => Ok(v),
    }
}
