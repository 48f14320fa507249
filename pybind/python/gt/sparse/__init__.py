"""Sparse matrices and tensors, under the names of `torch.sparse`: COO, CSR and CSC, with gradients.

A sparse tensor keeps the indices and values of the elements that it names, as two dense tensors, and all its functions
are composed of operations on these. There are as many as programs with graphs need: construction, conversion,
`coalesce`, products with dense matrices, sums, and elementwise functions that leave zeros zero. All others raise
`NotImplementedError`, and work on `to_dense()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from gt import _absent, _gt, _layouts, _sparse_indices, overrides
from gt._functions import top
from gt._gt import Tensor
from gt.sparse import _gradients

__all__ = ["addmm", "log_softmax", "mm", "softmax", "spdiags", "sum"]

__getattr__ = _absent.getter(__name__)

_COO, _CSR, _CSC = _layouts.sparse_coo, _layouts.sparse_csr, _layouts.sparse_csc
# The indent of the lines of a tensor's text.
_INDENT = " " * len("tensor(")
_DTYPE = re.compile(r", dtype=[\w.]+")
_LINE = re.compile(r"\n(?!\n)")
# Questions about a tensor that are answered by its shape and dtype.
_METADATA = {
    "size", "dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex", "is_signed", "element_size",
    "get_device", "__len__", "is_pinned", "is_conj", "is_neg", "is_inference",
}  # fmt: skip
# Elementwise functions of one tensor that are 0 at 0.
_ZERO_AT_ZERO = {
    "neg", "negative", "abs", "absolute", "sign", "sqrt", "square", "sin", "tan", "asin", "atan", "sinh", "tanh",
    "asinh",
    "atanh", "expm1", "log1p", "relu", "floor", "ceil", "round", "trunc", "erf", "deg2rad", "rad2deg", "nan_to_num",
}  # fmt: skip
_DTYPES = {
    "float": _gt.float32, "double": _gt.float64, "half": _gt.float16, "bfloat16": _gt.bfloat16, "int": _gt.int32,
    "long": _gt.int64, "bool": _gt.bool,
}  # fmt: skip


class SparseTensor(Tensor):
    """A tensor of which some elements are named by their indices, and all others are 0."""

    _layout: _layouts.layout
    # The index of each named element along each sparse axis, int64 of shape (axes, count).
    _places: Tensor
    # The named elements, which may have dense axes after the first.
    _elements: Tensor
    # Whether indices are unique and in row-major order.
    _is_coalesced: bool

    @property
    def layout(self) -> Any:
        """The layout: `sparse_coo`, `sparse_csr` or `sparse_csc`."""
        return self._layout

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `sparse_coo`."""
        return self._layout is _COO

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is `sparse_csr`."""
        return self._layout is _CSR

    @property
    def requires_grad(self) -> bool:
        """Whether the values require a gradient."""
        return self._elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._elements.requires_grad_(value)

    @property
    def grad_fn(self) -> Any:
        """The operation that made the values."""
        return self._elements.grad_fn

    @property
    def is_leaf(self) -> bool:
        """Whether the program made the values."""
        return self._elements.is_leaf

    @property
    def grad(self) -> Tensor | None:
        """The gradient at the elements that this tensor names, as a sparse tensor."""
        grad = self._elements.grad
        return None if grad is None else _like(self, grad)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._elements.grad = value._elements if isinstance(value, SparseTensor) else value

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Says whether gradients of the values are computed."""
        self._elements.requires_grad_(requires_grad)
        return self

    def is_coalesced(self) -> bool:
        """Whether indices are unique and sorted."""
        return self._is_coalesced

    def coalesce(self) -> SparseTensor:
        """The same tensor with each index once, in order; values of equal indices are added."""
        if self._is_coalesced:
            return self
        shape = self._sparse_shape()
        keys, where = top.unique(_flattened(self._places, shape), return_inverse=True)
        values = self._elements.new_zeros((len(keys), *self._elements.shape[1:])).index_add(0, where, self._elements)
        places = top.stack(top.unravel_index(keys, shape)) if len(keys) else self._places[:, :0]
        return _make(_COO, places, values, self.shape, True)

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self._is_coalesced = coalesced
        return self

    def _sparse_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[: self._places.shape[0]])

    def indices(self) -> Tensor:
        """The indices of a coalesced COO tensor, of shape (axes, count)."""
        self._needs("indices", _COO)
        if not self._is_coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._places

    def _indices(self) -> Tensor:
        self._needs("_indices", _COO)
        return self._places

    def values(self) -> Tensor:
        """The named elements; those of a COO tensor must be coalesced."""
        if not self._is_coalesced and self._layout is _COO:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._elements

    def _values(self) -> Tensor:
        self._needs("_values", _COO)
        return self._elements

    def crow_indices(self) -> Tensor:
        """For each row, the number of named elements before it; and their number."""
        self._needs("crow_indices", _CSR)
        return _compressed(self._places[0], self.shape[0])

    def col_indices(self) -> Tensor:
        """The column of each named element."""
        self._needs("col_indices", _CSR)
        return self._places[1]

    def ccol_indices(self) -> Tensor:
        """For each column, the number of named elements before it; and their number."""
        self._needs("ccol_indices", _CSC)
        return _compressed(self._places[1], self.shape[1])

    def row_indices(self) -> Tensor:
        """The row of each named element."""
        self._needs("row_indices", _CSC)
        return self._places[0]

    def _parts(self) -> tuple[Any, ...]:
        """The parts that a checkpoint has of it, in PyTorch's order."""
        if self._layout is _COO:
            return self._places, self._elements, self.shape, self._is_coalesced
        if self._layout is _CSR:
            return self.crow_indices(), self.col_indices(), self._elements, self.shape
        return self.ccol_indices(), self.row_indices(), self._elements, self.shape

    def _needs(self, name: str, layout: Any) -> None:
        if self._layout is not layout:
            raise RuntimeError(f"{name} expected a tensor with the layout {layout!r} but got {self._layout!r}")

    def _nnz(self) -> int:
        return self._elements.shape[0]

    def sparse_dim(self) -> int:
        """The number of axes with indices."""
        return self._places.shape[0]

    def dense_dim(self) -> int:
        """The number of axes of each named element."""
        return self._elements.ndim - 1

    def to_dense(self, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:  # noqa: ARG002 (gradients are masked)
        """All elements, as a dense tensor."""
        values = self._elements if dtype is None else self._elements.to(dtype)
        zeros = values.new_zeros(tuple(self.shape))
        return zeros.index_put(tuple(self._places), values, accumulate=True)

    def to_sparse(self, *_args: Any, layout: Any = None, **_options: Any) -> SparseTensor:
        """The same tensor in another sparse layout, by default COO."""
        layout = _COO if layout is None else layout
        if layout is self._layout:
            return self
        if layout is _COO:
            return _make(_COO, self._places, self._elements, self.shape, self._layout is _CSR)
        return _compress(layout, self._places, self._elements, self.shape)

    def to_sparse_coo(self) -> SparseTensor:
        """The same tensor in COO layout."""
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim: int | None = None) -> SparseTensor:  # noqa: ARG002 (there is one that fits)
        """The same matrix in CSR layout."""
        return self.to_sparse(layout=_CSR)

    def to_sparse_csc(self, dense_dim: int | None = None) -> SparseTensor:  # noqa: ARG002 (there is one that fits)
        """The same matrix in CSC layout."""
        return self.to_sparse(layout=_CSC)

    def t(self) -> SparseTensor:
        """The transpose of a matrix."""
        layout = {_COO: _COO, _CSR: _CSC, _CSC: _CSR}[self._layout]
        return _make(layout, self._places.flip(0), self._elements, self.shape[::-1], layout is not _COO)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """The transpose of a matrix."""
        if len(self.shape) != 2 or {dim0 % 2, dim1 % 2} != {0, 1}:
            _refuse("transpose", self)
        return self.t()

    @property
    def T(self) -> SparseTensor:  # noqa: N802 (PyTorch's name)
        """The transpose of a matrix."""
        return self.t()

    mT = T  # noqa: N815 (PyTorch's name)

    @property
    def data(self) -> SparseTensor:
        """The same tensor, off the graph."""
        return self.detach()

    def detach(self) -> SparseTensor:
        """The same tensor, off the graph."""
        return _like(self, self._elements.detach())

    def clone(self, **_options: Any) -> SparseTensor:
        """The same tensor with a copy of the values."""
        return _like(self, self._elements.clone())

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """The same tensor with values in another dtype."""
        return _like(self, self._elements.to(*args, **options))

    def cpu(self, *_args: Any, **_options: Any) -> SparseTensor:
        """The tensor itself: the daemon places tensors."""
        return self

    cuda = cpu

    def contiguous(self, *_args: Any, **_options: Any) -> SparseTensor:
        """The tensor itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseTensor:
        made = memo[id(self)] = _like(self, self._elements.detach().clone())
        return made.requires_grad_(self.requires_grad)

    def __reduce__(self) -> Any:
        return _make, (self._layout, self._places, self._elements, tuple(self.shape), self._is_coalesced)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        named = {"indices": self._places} if self._layout is _COO else {}
        if self._layout is _CSR:
            named = {"crow_indices": self.crow_indices(), "col_indices": self.col_indices()}
        if self._layout is _CSC:
            named = {"ccol_indices": self.ccol_indices(), "row_indices": self.row_indices()}
        named["values"] = self._elements
        # A line for each tensor, as PyTorch's, whose own lines begin below its first bracket.
        parts = []
        for name, value in named.items():
            text = f"{name}={_DTYPE.sub('', repr(value.detach()))}"
            parts.append(_LINE.sub("\n" + " " * len(f"{_INDENT}{name}="), text))
        suffixes = [f"size={tuple(self.shape)}, nnz={self._nnz()}"]
        if self.dtype not in (_gt.get_default_dtype(), _gt.int64, _gt.bool):
            suffixes.append(f"dtype={self.dtype}")
        suffixes.append(f"layout={self._layout!r}")
        if self.grad_fn is not None:
            suffixes.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        line = f",\n{_INDENT}"
        between = line if self._layout is _COO else ", "
        return f"tensor({line.join(parts)}{between}{', '.join(suffixes)})"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return format(repr(self), format_spec)

    def _refuse_elements(self, *_args: Any, **_options: Any) -> NoReturn:
        _refuse("a list or array of its elements", self)

    numpy = tolist = item = __array__ = __bool__ = __iter__ = _refuse_elements

    # The methods that are defined here, which functions of the same name call.
    _defined = frozenset(vars())

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function of sparse tensors of this name; `NotImplementedError` if there is none."""
        del types
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in _METADATA:
            with overrides.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        first = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(first, SparseTensor):
            if name in cls._defined:
                return getattr(first, name)(*args[1:], **kwargs)
            if name in _ZERO_AT_ZERO:
                coalesced = first.coalesce() if first._layout is _COO else first
                return _like(coalesced, func(coalesced._elements, *args[1:], **kwargs))
            if name in _DTYPES:
                return first.to(_DTYPES[name])
        function = _FUNCTIONS.get(name)
        if function is None:
            sparse = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, SparseTensor)), None)
            _refuse(name, sparse)
        return function(*args, **kwargs)


def _refuse(name: str, sparse: Any) -> NoReturn:
    layout = "a sparse layout" if sparse is None else f"the layout {sparse.layout!r}"
    raise NotImplementedError(f"{name}: not implemented for a tensor with {layout}; call it with .to_dense()")


def _flattened(places: Tensor, shape: Sequence[int]) -> Tensor:
    """The index of each element in the flattened tensor."""
    flat = places[0]
    for axis, size in enumerate(shape[1:], 1):
        flat = flat * size + places[axis]
    return flat


def _compressed(indices: Tensor, size: int) -> Tensor:
    """For each index below `size`, the number of elements with a smaller one; and their number."""
    return _sparse_indices._convert_indices_from_coo_to_csr(indices, size)


def _expanded(starts: Tensor) -> Tensor:
    """The index of each element, from the number of elements before each index."""
    return top.repeat_interleave(top.arange(len(starts) - 1), starts.diff())


def _make(layout: Any, places: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool) -> SparseTensor:
    with overrides.DisableTorchFunctionSubclass():
        one = top.zeros((), dtype=values.dtype)
        made = Tensor.__new__(SparseTensor, _detached=one.expand(*tuple(shape)))
    made._layout, made._places, made._elements, made._is_coalesced = layout, places, values, coalesced
    return made


def _like(t: SparseTensor, values: Tensor) -> SparseTensor:
    shape = (*t._sparse_shape(), *values.shape[1:])
    return _make(t._layout, t._places, values, shape, t._is_coalesced)


def _compress(layout: Any, places: Tensor, values: Tensor, shape: Sequence[int]) -> SparseTensor:
    """A matrix in CSR or CSC layout, from the indices of its elements in any order, of which equal ones are added."""
    if len(shape) - values.ndim + 1 != 2:
        raise NotImplementedError(f"a tensor with the layout {layout!r} is a matrix; there are no batches of them")
    # CSC sorts by columns, as the transpose does by rows.
    turned = (lambda pair: pair) if layout is _CSR else (lambda pair: pair.flip(0))
    sizes = (*shape[:2], *shape[2:]) if layout is _CSR else (shape[1], shape[0], *shape[2:])
    matrix = _make(_COO, turned(places), values, sizes, False).coalesce()
    return _make(layout, turned(matrix._places), matrix._elements, shape, True)


def _values(values: Any, dtype: Any, requires_grad: bool) -> Tensor:
    values = _gt.as_tensor(values) if dtype is None else _gt.as_tensor(values, dtype=dtype)
    return values.detach().requires_grad_() if requires_grad else values


def _coo(
    indices: Any,
    values: Any,
    size: Sequence[int] | None,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    is_coalesced: bool | None = None,
    **_ignored: Any,
) -> Tensor:
    """The tensor of `gt.sparse_coo_tensor`."""
    places, values = _gt.as_tensor(indices, dtype=_gt.int64), _values(values, dtype, requires_grad)
    if places.ndim != 2 or (values.ndim and places.shape[1] != values.shape[0]):
        raise RuntimeError(
            f"sparse_coo_tensor: indices of shape {tuple(places.shape)} do not name the elements of values of shape "
            f"{tuple(values.shape)}: give indices of shape (axes, count) and values of shape (count, ...)"
        )
    count = places.shape[1]
    if values.ndim == 0:
        values = values.expand(count)
    ends = [int(end) + 1 for end in places.amax(1)] if count else [0] * places.shape[0]
    shape = (*ends, *values.shape[1:]) if size is None else tuple(size)
    if count and (any(end > known for end, known in zip(ends, shape, strict=False)) or int(places.min()) < 0):
        raise RuntimeError(f"size is inconsistent with indices: the indices go up to {ends} and the size is {shape}")
    return _make(_COO, places, values, shape, bool(is_coalesced))


def _compressed_matrix(
    layout: Any,
    starts: Any,
    indices: Any,
    values: Any,
    size: Sequence[int] | None,
    *,
    dtype: Any = None,
    requires_grad: bool = False,
    **_ignored: Any,
) -> Tensor:
    """The matrix of `gt.sparse_csr_tensor` and `gt.sparse_csc_tensor`."""
    starts, indices = _gt.as_tensor(starts, dtype=_gt.int64), _gt.as_tensor(indices, dtype=_gt.int64)
    values = _values(values, dtype, requires_grad)
    if starts.ndim != 1 or indices.ndim != 1:
        raise NotImplementedError(f"a tensor with the layout {layout!r} is a matrix; there are no batches of them")
    if len(indices) != values.shape[0] or int(starts[-1]) != len(indices):
        raise RuntimeError(
            f"the compressed indices end with {int(starts[-1])}, and there are {len(indices)} plain indices and "
            f"{values.shape[0]} values: the three must be equal"
        )
    other = int(indices.max()) + 1 if len(indices) else 0
    found = (len(starts) - 1, other) if layout is _CSR else (other, len(starts) - 1)
    shape = (*found, *values.shape[1:]) if size is None else tuple(size)
    if any(end > known for end, known in zip(found, shape, strict=False)):
        raise RuntimeError(f"size is inconsistent with indices: the indices go up to {found} and the size is {shape}")
    compressed = _expanded(starts)
    places = top.stack([compressed, indices] if layout is _CSR else [indices, compressed])
    return _make(layout, places, values, shape, True)


def _of_dense(self: Tensor, sparse_dim: int | None = None, layout: Any = None, **_ignored: Any) -> Tensor:
    """The elements of a dense tensor that are not 0."""
    axes = self.ndim if sparse_dim is None else sparse_dim
    named = self if axes == self.ndim else self.flatten(axes).ne(0).any(-1)
    places = named.detach().nonzero().mT
    made = _make(_COO, places, self[tuple(places)], self.shape, True)
    return made if layout in (None, _COO) else made.to_sparse(layout=layout)


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """The product of a sparse and a dense matrix, or of a dense and a sparse one; gradients flow to both.

    Args:
        mat1: A matrix, of which the gradient is sparse if it is sparse.
        mat2: A matrix.
        reduce: How the products of a row are combined: `"sum"`, `"mean"`, `"amax"` or `"amin"`.

    Example:
        >>> adjacency = gt.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
        >>> gt.sparse.mm(adjacency, gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [2., 4.]])
    """
    if len(mat1.shape) != 2 or len(mat2.shape) != 2 or mat1.shape[1] != mat2.shape[0]:
        first, second = tuple(mat1.shape), tuple(mat2.shape)
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({first} and {second})")
    if isinstance(mat1, SparseTensor) and isinstance(mat2, SparseTensor):
        # A column of the product names at least as many elements as it has; a dense one is what programs make of it.
        return _of_dense(mm(mat1, mat2.to_dense()), layout=mat1.layout)
    if not isinstance(mat1, SparseTensor):
        if not isinstance(mat2, SparseTensor):
            return mat1 @ mat2
        return mm(mat2.t(), mat1.mT).mT
    rows, columns = mat1._places
    products = mat1._elements.unsqueeze(-1) * mat2.index_select(0, columns)
    result = products.new_zeros((mat1.shape[0], mat2.shape[1]))
    if reduce == "sum":
        return result.index_add(0, rows, products)
    if reduce not in ("mean", "amax", "amin"):
        raise ValueError(f"reduce argument must be one of sum, mean, amax, amin, but got {reduce!r}")
    where = rows.unsqueeze(-1).expand(products.shape)
    return result.scatter_reduce(0, where, products, reduce, include_self=False)


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    if len(other.shape) == 1:
        return mm(input, other.unsqueeze(-1)).squeeze(-1)
    if len(input.shape) == 1:
        return mm(input.unsqueeze(0), other).squeeze(0)
    return mm(input, other)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """`beta * mat + alpha * (mat1 @ mat2)` for a sparse and a dense matrix."""
    return beta * mat + alpha * mm(mat1, mat2)


def _scaled(input: Tensor, other: Any, function: Callable[[Tensor, Any], Tensor], name: str) -> Tensor:
    """A sparse tensor times or over a number, or a dense tensor that broadcasts to its shape."""
    if not isinstance(input, SparseTensor):
        if name == "div":
            _refuse("division by a sparse tensor", other)
        input, other = other, input
    if isinstance(other, SparseTensor):
        _refuse(f"{name} of two sparse tensors", other)
    if isinstance(other, Tensor) and other.ndim:
        other = other.expand(tuple(input.shape))[tuple(input._places)]
    return _like(input, function(input._elements, other))


def _mul(input: Any, other: Any) -> Tensor:
    return _scaled(input, other, lambda a, b: a * b, "mul")


def _scale_(input: Any, number: Any, function: Callable[[Tensor, Any], Tensor], name: str) -> Tensor:
    """Multiplies or divides the values of a sparse tensor in place by a number."""
    if not isinstance(input, SparseTensor) or (isinstance(number, Tensor) and number.ndim):
        _refuse(f"{name} with anything but a number", input)
    function(input._elements, number)
    return input


def _mul_(input: Any, other: Any) -> Tensor:
    return _scale_(input, other, Tensor.mul_, "mul_")


def _div_(input: Any, other: Any) -> Tensor:
    return _scale_(input, other, Tensor.div_, "div_")


def _zero_(input: SparseTensor) -> Tensor:
    """Leaves a sparse tensor without elements that it names."""
    empty = _empty_like(input)
    input._places, input._elements, input._is_coalesced = empty._places, empty._elements, True
    return input


def _norm(input: SparseTensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The norm of all elements as one vector."""
    if dim is not None or keepdim:
        _refuse("norm along axes", input)
    values = (input.coalesce() if input.layout is _COO else input)._elements
    return top.norm(values if dtype is None else values.to(dtype), 2.0 if p in ("fro", None) else p)


def _div(input: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    return _scaled(input, other, lambda a, b: top.div(a, b, rounding_mode=rounding_mode), "div")


def _add(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    if not isinstance(other, SparseTensor):
        return _add(other * alpha, input) if isinstance(other, Tensor) else _refuse("add of a number", input)
    if not isinstance(input, SparseTensor):
        return input + alpha * other.to_dense()
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(
            f"add: sparse tensors of shapes {tuple(input.shape)} and {tuple(other.shape)} do not broadcast"
        )
    values = top.cat([input._elements, alpha * other._elements])
    both = _make(_COO, top.cat([input._places, other._places], 1), values, input.shape, False)
    return both if input.layout is _COO else both.to_sparse(layout=input.layout)


def _sub(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    return _add(input, other, -alpha)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a sparse tensor: of all elements, a number; along sparse axes, a sparse tensor, or a dense one of CSR.

    Example:
        >>> gt.sparse.sum(gt.eye(3).to_sparse())
        tensor(3.)
    """
    if not isinstance(input, SparseTensor):
        return input.sum(dim, dtype=dtype)
    values = input._elements if dtype is None else input._elements.to(dtype)
    if dim is None:
        return values.sum()
    axes = {axis % len(input.shape) for axis in ([dim] if isinstance(dim, int) else dim)}
    count = input._places.shape[0]
    kept = [axis for axis in range(count) if axis not in axes]
    dense = [axis - count + 1 for axis in axes if axis >= count]
    values = values.sum(dense) if dense else values
    if not kept:
        return values.sum(0)
    shape = (*(input.shape[axis] for axis in kept), *values.shape[1:])
    made = _make(_COO, input._places[kept], values, shape, False)
    return made.coalesce() if input.layout is _COO else made.to_dense()


def _sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    result = sum(input, dim, dtype)
    if not keepdim or dim is None:
        return result
    if isinstance(result, SparseTensor):
        result = result.to_dense()
    for axis in sorted(axis % len(input.shape) for axis in ([dim] if isinstance(dim, int) else dim)):
        result = result.unsqueeze(axis)
    return result


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The softmax along an axis of a sparse matrix; elements that it does not name count as minus infinity."""
    logarithm = log_softmax(input, dim, dtype=dtype)
    return _like(logarithm, logarithm._elements.exp())


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    if not isinstance(input, SparseTensor) or input._places.shape[0] != 2 or input._elements.ndim != 1:
        _refuse("softmax of anything but a matrix", input)
    matrix = input.coalesce() if input.layout is _COO else input
    values = matrix._elements if dtype is None else matrix._elements.to(dtype)
    groups = matrix._places[1 - dim % 2]
    size = input.shape[1 - dim % 2]
    largest = values.detach().new_zeros(size).scatter_reduce(0, groups, values.detach(), "amax", include_self=False)
    shifted = values - largest[groups]
    return _like(matrix, shifted - values.new_zeros(size).index_add(0, groups, shifted.exp()).log()[groups])


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Tensor:
    """A sparse matrix with the given diagonals: element i of a diagonal is in column i.

    Example:
        >>> gt.sparse.spdiags(gt.tensor([[1.0, 2.0]]), gt.tensor([0]), (2, 2)).to_dense()
        tensor([[1., 0.],
                [0., 2.]])
    """
    diagonals, offsets = top.atleast_2d(diagonals), _gt.as_tensor(offsets, dtype=_gt.int64).reshape(-1, 1)
    columns = top.arange(diagonals.shape[1]).expand(diagonals.shape)
    rows = columns - offsets
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    made = _make(_COO, top.stack([rows[inside], columns[inside]]), diagonals[inside], tuple(shape), False)
    return made if layout in (None, _COO) else made.to_sparse(layout=layout)


def _empty_like(input: SparseTensor, **_options: Any) -> SparseTensor:
    """A sparse tensor of the same shape that names no element."""
    return _make(input.layout, input._places[:, :0], input._elements.detach()[:0], input.shape, True)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mm": mm, "spmm": mm, "matmul": _matmul, "mv": _matmul, "__matmul__": _matmul,
    "__rmatmul__": lambda second, first: _matmul(first, second), "addmm": addmm,
    "mul": _mul, "multiply": _mul, "__mul__": _mul, "__rmul__": _mul,
    "div": _div, "divide": _div, "true_divide": _div, "__truediv__": _div,
    "add": _add, "__add__": _add, "__radd__": _add, "sub": _sub, "subtract": _sub, "__sub__": _sub,
    "mul_": _mul_, "multiply_": _mul_, "__imul__": _mul_, "div_": _div_, "divide_": _div_, "__itruediv__": _div_,
    "zero_": _zero_, "norm": _norm,
    "sum": _sum, "is_same_size": lambda a, b: tuple(a.shape) == tuple(b.shape),
    "is_tensor": lambda _: True, "zeros_like": _empty_like,
}  # fmt: skip

_gradients.install()
