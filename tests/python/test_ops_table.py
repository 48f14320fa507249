"""Every row of the op table against its own reference: values in every dtype and kind of shape, and gradients.

A new row is tested here without writing a test. `CALLS` has the calling convention of each class of ops, so only a new
class needs an entry.
"""

# Functions defined in loops here are called in the same iteration.
# ruff: noqa: B023

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special
from support import (
    DTYPES,
    FLOATS,
    TOLERANCE,
    assert_close,
    draw,
    dtype_of,
    name_of,
    numeric_gradient,
    quantized,
    to_gt,
    to_numpy,
)

import gt

ROWS = {row["name"]: row for row in gt._gt.op_table()}

Arrays = list[np.ndarray]
# Views that make an operand non-contiguous: its original shape, and the view in GT and in NumPy.
View = Callable[[Any], Any]


def _as_is(x: Any) -> Any:
    return x


def _transposed(x: Any) -> Any:
    return x.T


def _every_second(x: Any) -> Any:
    return x[1::2]


def _inner(x: Any) -> Any:
    return x[1:-1, 2:7]


def _backwards(x: Any) -> Any:
    return x[::-1, ::-2]


# The shapes of the operands (the last one repeats), and the view of each.
LAYOUTS: dict[str, tuple[tuple[tuple[int, ...], ...], View]] = {
    "scalar": (((),), _as_is),
    "one element": (((1,),), _as_is),
    "vector": (((7,),), _as_is),
    "matrix": (((5, 4),), _as_is),
    "four axes": (((2, 3, 2, 5),), _as_is),
    "empty": (((0,),), _as_is),
    "empty inside": (((2, 0, 3),), _as_is),
    "broadcast row": (((4, 5), (5,), (1, 5)), _as_is),
    "broadcast column": (((4, 1), (1, 5), (4, 5)), _as_is),
    "broadcast scalar": (((), (2, 3), (1,)), _as_is),
    "broadcast empty": (((0, 1), (1, 4), (1, 1)), _as_is),
    "transposed": (((6, 9),), _transposed),
    "every second": (((9, 3),), _every_second),
    "inner": (((6, 9),), _inner),
    "backwards": (((6, 9),), _backwards),
    "large": (((313, 1001),), _as_is),
    "large, transposed": (((515, 67),), _transposed),
    "large, broadcast": (((400, 1), (1, 333), (333,)), _as_is),
}
SHAPES_OF_GRADIENTS = (
    "scalar",
    "matrix",
    "broadcast row",
    "broadcast column",
    "broadcast scalar",
    "transposed",
    "inner",
)


def _operands(row: dict[str, Any], layout: str, dtype: str) -> Iterator[tuple[np.ndarray, View]]:
    """Returns random operands of a case, each with its view."""
    # Each case has its own seed, so that a failure can be reproduced by running that case alone.
    rng = np.random.default_rng([row["wire_id"], list(LAYOUTS).index(layout), DTYPES.index(dtype)])
    shapes, view = LAYOUTS[layout]
    for i in range(row["operands"]):
        low, high = row["domain"][i]
        divides = row["name"] in ("div", "floor_divide", "remainder") and i == 1
        if dtype not in FLOATS and (divides or (row["name"] == "pow" and i == 1)):
            low = max(low, 1 if divides else 0)
        array = draw(rng, shapes[min(i, len(shapes) - 1)], dtype, low, high)
        if divides and dtype == "bool":
            array = np.ones_like(array)
        yield array, view


def _reference(row: dict[str, Any], arrays: Arrays, **names: Any) -> np.ndarray:
    """Evaluates the NumPy expression of a row."""
    scope = {"np": np, "sp": scipy.special, **dict(zip("abc", arrays, strict=False)), **names}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns about the mean of no elements, NaN.
        return np.asarray(eval(row["reference"], scope))


def _exact(array: np.ndarray) -> np.ndarray:
    """Widens an array so that NumPy's rounding does not matter."""
    if array.dtype == bool:
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def _expected(row: dict[str, Any], arrays: Arrays, result: str, **names: Any) -> np.ndarray:
    wide = [_exact(a) for a in arrays]
    if result in FLOATS:
        wide = [a.astype(np.float64) for a in wide]
    try:
        value = _reference(row, wide, **names)
    except TypeError:
        # NumPy has no `sign` of bools, which count as 0 or 1.
        value = _reference(row, [a.astype(np.int64) if a.dtype == bool else a for a in wide], **names)
    if result in FLOATS:
        return value.astype(np.float64)
    return value.astype(result)


def _result_dtype(row: dict[str, Any], dtype: str) -> str:
    """Returns the result dtype of the table for operands of a dtype."""
    if row["result"] == "bool":
        return "bool"
    if row["result"] == "int64":
        return "int64"
    if row["promotion"] == "float" and dtype not in FLOATS:
        return "float32"
    if row["promotion"] == "sum" and dtype not in FLOATS:
        return "int64"
    return dtype


# No function is the row `matmul_wide` alone: test_half_precision.py tests those that it is a part of. The affine map
# has tests of its own below.
PARTS = {"matmul_wide", "affine"}


def _cases(*classes: str, dtypes: bool = True) -> list[Any]:
    """Returns the rows of some classes with each dtype that they accept."""
    cases = []
    for row in ROWS.values():
        if row["class"] not in classes or row["name"] in PARTS:
            continue
        if not dtypes:
            cases.append(pytest.param(row, id=row["name"]))
            continue
        for dtype in DTYPES:
            if dtype in row["accepts"] or row["promotion"] in ("float", "sum"):
                cases.append(pytest.param(row, dtype, id=f"{row['name']}-{dtype}"))
    return cases


def _takes_numbers(row: dict[str, Any]) -> bool:
    """Returns whether operands other than the first may be numbers, as in PyTorch."""
    return row["operands"] > 1 and not row["tensors_only"]


def _function(row: dict[str, Any]) -> Callable[..., gt.Tensor]:
    """Returns the function of an elementwise row; rows of gradients and optimizers, and some others, have no name in
    `gt`."""
    if hasattr(gt, row["name"]):
        assert not row["name"].endswith(("_backward", "_step"))
        return getattr(gt, row["name"])
    return lambda *operands: gt._gt.elementwise(row["wire_id"], *operands)


def _reduction(row: dict[str, Any]) -> Callable[..., gt.Tensor]:
    """Returns the function of a reduction; that of the norm takes an order first."""
    if row["name"] == "norm":
        return lambda t, *axes, **words: gt.linalg.vector_norm(t, 2, *axes, **words)
    return getattr(gt, row["name"])


# Forms ------------------------------------------------------------------------------------------------------------


FORMS = ("function", "method", "in_place", "in_place_function", "out")


# Python has the function `index_put`; `gt.lstm_cell` takes the weights and the instruction takes gates.
@pytest.mark.parametrize("op", [op for op in ROWS if op not in ("index_put", "lstm_cell")])
def test_forms_of_the_function_of_a_row_are_those_of_the_package(op: str) -> None:
    module = "nn.functional" if op == "layer_norm" else ""  # `gt` imports that function.
    overloads = [row for row in gt._gt.function_table() if (row["module"], row["name"]) == (module, op)]
    forms = {form: any(row[form] for row in overloads) for form in FORMS}
    for name in (op, *(alias for row in overloads for alias in row["aliases"] if "." not in alias)):
        assert (name in gt.__all__) == forms["function"]
        assert hasattr(gt.Tensor, name) == forms["method"]
        assert hasattr(gt.Tensor, name + "_") == forms["in_place"]
        assert (name + "_" in gt.__all__) == forms["in_place_function"]
        takes_out = forms["function"] and "out" in inspect.signature(getattr(gt, name)).parameters
        assert takes_out == forms["out"]


# Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "dtype"), _cases("elementwise"))
def test_elementwise_values(row: dict[str, Any], dtype: str) -> None:
    function = _function(row)
    result = _result_dtype(row, dtype)
    for layout in LAYOUTS:
        drawn = list(_operands(row, layout, dtype))
        got = function(*(view(to_gt(array, dtype)) for array, view in drawn))
        wanted = _expected(row, [view(array) for array, view in drawn], result)
        assert_close(got, wanted, result)


@pytest.mark.parametrize(("row", "dtype"), _cases("elementwise"))
def test_elementwise_methods_and_in_place_forms_are_the_function(row: dict[str, Any], dtype: str) -> None:
    if not hasattr(gt.Tensor, row["name"]):
        pytest.skip("a function alone")
    operands = [to_gt(array, dtype) for array, _ in _operands(row, "matrix", dtype)]
    wanted = getattr(gt, row["name"])(*operands)
    got = getattr(operands[0], row["name"])(*operands[1:])
    np.testing.assert_array_equal(to_numpy(got), to_numpy(wanted))
    in_place = getattr(operands[0], row["name"] + "_", None)
    if in_place is not None and wanted.dtype == operands[0].dtype:
        assert in_place(*operands[1:]) is operands[0]
        np.testing.assert_array_equal(to_numpy(operands[0]), to_numpy(wanted))


@pytest.mark.parametrize(
    "row", [case for case in _cases("elementwise", dtypes=False) if _takes_numbers(case.values[0])]
)
def test_elementwise_operands_may_be_numbers(row: dict[str, Any]) -> None:
    dtype = "float64" if "float64" in row["accepts"] else "int64"
    first, *others = [array for array, _ in _operands(row, "matrix", dtype)]
    numbers = [other.flat[0].item() for other in others]
    got = _function(row)(to_gt(first, dtype), *numbers)
    assert_close(got, _expected(row, [first, *map(np.asarray, numbers)], _result_dtype(row, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_values(dtype: str) -> None:
    row = ROWS["where"]
    for layout in LAYOUTS:
        (condition, view), (a, _), (b, _) = _operands(row, layout, dtype)
        got = gt.where(view(to_gt(condition > 0, "bool")), view(to_gt(a, dtype)), view(to_gt(b, dtype)))
        assert_close(got, _reference(row, [view(condition > 0), view(a), view(b)]), dtype)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_cast_values(source: str, target: str) -> None:
    rng = np.random.default_rng(1)
    for layout, (shapes, view) in LAYOUTS.items():
        low = 0.0 if target == "uint8" else -90.0  # Out of range, the result is undefined in C and in PyTorch.
        array = draw(rng, shapes[0], source, low, 90.0)
        got = view(to_gt(array, source)).to(dtype_of(target))
        (
            assert_close(
                got, quantized(view(array), target).astype(np.float64 if target in FLOATS else target), target, 0.0
            ),
            layout,
        )


def _axes(rank: int) -> list[Any]:
    """Returns the axes to reduce: all, each one, negative ones, and several."""
    return [
        None,
        *range(rank),
        *range(-rank, 0),
        *([(0, rank - 1), (-1, 0)] if rank > 1 else []),
        *([()] if rank else []),
    ]


def _reduces_nothing(row: dict[str, Any], shape: tuple[int, ...], axis: Any) -> bool:
    """Returns whether a reduction without identity, such as `amax`, is applied to no elements, an error."""
    axes = range(len(shape)) if axis in (None, ()) else (axis,) if isinstance(axis, int) else axis
    return row["name"] in ("amax", "amin", "argmax", "argmin") and any(shape[i] == 0 for i in axes)


@pytest.mark.parametrize(("row", "dtype"), _cases("reduction"))
def test_reduction_values(row: dict[str, Any], dtype: str) -> None:
    result = _result_dtype(row, dtype)
    for layout in LAYOUTS:
        ((array, view),) = _operands(row, layout, dtype)
        if row["name"] == "prod" and dtype in FLOATS:
            array = quantized(1 + array / 30, dtype)  # Factors near 1 keep products in range.
            array = array if array.size < 100 else np.sign(array - 1) + (array == 1)
        t, seen = view(to_gt(array, dtype)), view(array)
        for axis in _axes(seen.ndim):
            if axis == ():
                continue
            for keepdims in (False, True):
                if _reduces_nothing(row, seen.shape, axis):
                    with pytest.raises((IndexError, RuntimeError), match="reduction dim"):
                        _reduction(row)(t, dim=axis, keepdim=keepdims)
                    continue
                got = _reduction(row)(t, dim=axis, keepdim=keepdims)
                if row["result"] == "bool":
                    # As in PyTorch, whether any or all bytes are nonzero is a byte.
                    truth = _reference(row, [seen != 0], axis=axis, keepdims=keepdims)
                    assert_close(got, truth, "uint8" if dtype == "uint8" else "bool")
                    continue
                wanted = _expected(row, [seen], result, axis=axis, keepdims=keepdims)
                # The error of a sum of n numbers is at most n times that of one; the numbers are at most 3.
                count = seen.size / max(wanted.size, 1)
                terms = max(1.0, count) * 3 if row["name"] == "sum" else 3.0
                assert name_of(got.dtype) == result
                if result in FLOATS:
                    np.testing.assert_allclose(
                        to_numpy(got), wanted, rtol=TOLERANCE[result], atol=TOLERANCE[result] * terms * 0.1
                    )
                    assert tuple(got.shape) == wanted.shape
                else:
                    assert_close(got, wanted, result)


@pytest.mark.parametrize(("row", "dtype"), _cases("reduction", "arg-reduction"))
def test_reductions_take_numpy_s_words_and_are_methods(row: dict[str, Any], dtype: str) -> None:
    ((array, _),) = _operands(row, "matrix", dtype)
    t = to_gt(array, dtype)
    method = _reduction(row) if row["name"] == "norm" else getattr(gt.Tensor, row["name"])
    wanted = _reduction(row)(t, dim=1, keepdim=True)
    for got in (
        _reduction(row)(t, axis=1, keepdims=True),
        method(t, dim=1, keepdim=True),
        method(t, 1, True),
        method(t, axis=-1, keepdims=True),
    ):
        np.testing.assert_array_equal(to_numpy(got), to_numpy(wanted))


@pytest.mark.parametrize(("row", "dtype"), _cases("arg-reduction"))
def test_arg_reduction_values(row: dict[str, Any], dtype: str) -> None:
    for layout in LAYOUTS:
        ((array, view),) = _operands(row, layout, dtype)
        t, seen = view(to_gt(array, dtype)), view(array)
        for axis in [None, *range(seen.ndim), *range(-seen.ndim, 0)]:
            if _reduces_nothing(row, seen.shape, axis):
                with pytest.raises((IndexError, RuntimeError), match="reduction dim"):
                    getattr(gt, row["name"])(t, dim=axis)
                continue
            got = getattr(gt, row["name"])(t, dim=axis)
            assert_close(got, _reference(row, [seen], axis=axis, keepdims=False), "int64")


SQUARE: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((2, 3), (3, 0)),
    ((0, 2, 3), (0, 3, 4)),
    ((64, 65), (65, 66)),
    ((129, 257), (257, 130)),
    ((2, 33, 70), (70, 40)),
)


@pytest.mark.parametrize(("row", "dtype"), _cases("contraction"))
def test_contraction_values(row: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(2)
    for left, right in SQUARE:
        a, b = draw(rng, left, dtype), draw(rng, right, dtype)
        for turned in (False, True):
            x, y = to_gt(a, dtype), to_gt(b, dtype)
            if turned:  # The same matrices in column-major order.
                if min(a.ndim, b.ndim) < 2:
                    continue
                x = to_gt(a.swapaxes(-1, -2).copy(), dtype).transpose(-1, -2)
                y = to_gt(b.swapaxes(-1, -2).copy(), dtype).transpose(-1, -2)
            wanted = _expected(row, [a, b], dtype)
            scale = 9.0 * a.shape[-1] if dtype in FLOATS else 0.0
            got = getattr(gt, row["name"])(x, y)
            assert name_of(got.dtype) == dtype
            assert tuple(got.shape) == wanted.shape
            near = TOLERANCE.get(dtype, 0.0)
            np.testing.assert_allclose(to_numpy(got), wanted, rtol=near, atol=near * scale * 0.1)
            np.testing.assert_array_equal(to_numpy(x @ y), to_numpy(got))


# Shapes of the input and the number of outputs of an affine map.
AFFINE = (((2, 3), 4), ((1, 1), 1), ((3, 4, 5), 2), ((0, 3), 2), ((4, 0), 3), ((2, 1, 2, 6), 8), ((65, 130), 70))


def _affine_operands(shape: tuple[int, ...], outputs: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(21)
    return [draw(rng, dims, dtype) for dims in (shape, (outputs, shape[-1]), (outputs,))]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "outputs"), AFFINE, ids=str)
def test_linear_values(shape: tuple[int, ...], outputs: int, dtype: str) -> None:
    arrays = _affine_operands(shape, outputs, dtype)
    x, weight, bias = (to_gt(array, dtype) for array in arrays)
    wanted = _expected(ROWS["affine"], arrays, dtype)
    turned = to_gt(arrays[1].T.copy(), dtype).T
    for got in (
        gt.nn.functional.linear(x, weight, bias),
        gt.nn.functional.linear(x, turned, gt.stack([bias, bias], 1)[:, 1]),
        gt.addmm(bias, x, weight.T) if x.ndim == 2 else None,
        gt.vmap(lambda row: gt.nn.functional.linear(row[None], weight, bias)[0])(x) if shape[0] else None,
    ):
        if got is None:
            continue
        assert name_of(got.dtype) == dtype
        assert tuple(got.shape) == wanted.shape
        near = TOLERANCE.get(dtype, 0.0)
        np.testing.assert_allclose(to_numpy(got), wanted, rtol=near, atol=near * 9.0 * (shape[-1] + 1) * 0.1)


@pytest.mark.parametrize(("shape", "outputs"), [case for case in AFFINE if np.prod(case[0]) < 200], ids=str)
def test_linear_gradients(shape: tuple[int, ...], outputs: int) -> None:
    arrays = _affine_operands(shape, outputs, "float64")
    _check_gradients(gt.nn.functional.linear, lambda *operands: _reference(ROWS["affine"], operands), arrays)
    if len(shape) == 2:
        turned = [arrays[0], arrays[1].T.copy(), arrays[2]]
        _check_gradients(lambda x, y, bias: gt.addmm(bias, x, y), lambda x, y, bias: x @ y + bias, turned)


def test_linear_of_a_batch_of_weights_or_biases() -> None:
    rng = np.random.default_rng(22)
    x, weights, biases = (rng.standard_normal(shape) for shape in ((5, 3), (4, 2, 3), (4, 2)))
    wanted = np.matmul(x, weights.swapaxes(1, 2)) + biases[:, None]
    linear = gt.nn.functional.linear
    got = gt.vmap(lambda weight, bias: linear(gt.tensor(x), weight, bias))(gt.tensor(weights), gt.tensor(biases))
    np.testing.assert_allclose(to_numpy(got), wanted)
    only = gt.vmap(lambda bias: linear(gt.tensor(x), gt.tensor(weights[0]), bias))(gt.tensor(biases))
    np.testing.assert_allclose(to_numpy(only), x @ weights[0].T + biases[:, None])


def test_linear_is_one_instruction() -> None:
    x, weight, bias = gt.ones(2, 3, dtype=gt.bfloat16), gt.ones(4, 3, dtype=gt.bfloat16), gt.ones(4, dtype=gt.bfloat16)
    assert gt.nn.functional.linear(x.requires_grad_(), weight, bias).grad_fn.name() == "AffineBackward0"
    assert gt.addmm(bias, x, weight.T).grad_fn.name() == "AffineBackward0"
    # Operands that the instruction does not take are multiplied and added one after the other.
    assert gt.nn.functional.linear(x[0], weight, bias).tolist() == [4.0] * 4
    assert gt.nn.functional.linear(gt.ones(2, 3).long(), weight.long(), bias.long()).tolist() == [[4] * 4] * 2
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        gt.nn.functional.linear(x, weight[:, :2], bias)


# The calls of movement ops, in GT and in the reference, on a tensor of shape (2, 3, 4).
MOVES: dict[str, list[tuple[Callable[[gt.Tensor], gt.Tensor], dict[str, Any]]]] = {
    "reshape": [
        (lambda t: t.reshape(6, 4), {"shape": (6, 4)}),
        (lambda t: t.reshape((4, -1)), {"shape": (4, 6)}),
        (lambda t: t.reshape(-1), {"shape": (24,)}),
        (lambda t: t.flatten(1), {"shape": (2, 12)}),
        (lambda t: t.unsqueeze(0), {"shape": (1, 2, 3, 4)}),
        (lambda t: t.unsqueeze(-1), {"shape": (2, 3, 4, 1)}),
        (lambda t: t.reshape(2, 1, 3, 4, 1).squeeze(), {"shape": (2, 3, 4)}),
        (lambda t: t.reshape(2, 1, 3, 4, 1).squeeze(1), {"shape": (2, 3, 4, 1)}),
    ],
    "permute": [
        (lambda t: t.permute(2, 0, 1), {"axes": (2, 0, 1)}),
        (lambda t: t.permute((0, -1, 1)), {"axes": (0, 2, 1)}),
        (lambda t: t.transpose(0, -1), {"axes": (2, 1, 0)}),
        (lambda t: t.mT, {"axes": (0, 2, 1)}),
    ],
    "expand": [
        (lambda t: t.expand(5, 2, 3, 4), {"shape": (5, 2, 3, 4)}),
        (lambda t: t.expand(5, -1, -1, 4), {"shape": (5, 2, 3, 4)}),
        (lambda t: t.expand((2, 3, 4)), {"shape": (2, 3, 4)}),
    ],
    "slice": [
        (lambda t: t[1], {"slices": (1,)}),
        (lambda t: t[:, ::2, 1:-1], {"slices": (slice(None), slice(None, None, 2), slice(1, -1))}),
        (lambda t: t[..., ::-3], {"slices": (..., slice(None, None, -3))}),
        (lambda t: t[:, None, 2:0:-1], {"slices": (slice(None), None, slice(2, 0, -1))}),
        (lambda t: t[1:1], {"slices": (slice(1, 1),)}),
    ],
    # It is of dtypes that no row accepts: test_complex.py and test_unsigned.py test it.
    "reinterpret": [],
    # test_views.py tests it with pairs of dtypes.
    "bitcast": [],
}


@pytest.mark.parametrize(("row", "dtype"), _cases("movement"))
def test_movement_values(row: dict[str, Any], dtype: str) -> None:
    array = draw(np.random.default_rng(3), (2, 3, 4), dtype)
    for move, names in MOVES[row["name"]]:
        assert_close(move(to_gt(array, dtype)), _reference(row, [array], **names), dtype, 0.0)
        # The same on a view, whose elements are not in row-major order.
        turned = to_gt(array.transpose(2, 0, 1).copy(), dtype).permute(1, 2, 0)
        assert_close(move(turned), _reference(row, [array], **names), dtype, 0.0)


@pytest.mark.parametrize(("row", "dtype"), _cases("concatenation"))
def test_concatenation_values(row: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(4)
    for axis, shapes in {
        0: [(2, 3), (1, 3), (0, 3), (4, 3)],
        1: [(2, 3), (2, 5)],
        -1: [(2, 2, 1), (2, 2, 0), (2, 2, 4)],
    }.items():
        arrays = [draw(rng, shape, dtype) for shape in shapes]
        got = getattr(gt, row["name"])([to_gt(a, dtype) for a in arrays], dim=axis)
        assert_close(got, _reference(row, [], tensors=arrays, axis=axis), dtype, 0.0)
    # More operands than one instruction takes.
    arrays = [draw(rng, (2,), dtype) for _ in range(40)]
    assert_close(getattr(gt, row["name"])([to_gt(a, dtype) for a in arrays]), np.concatenate(arrays), dtype, 0.0)


BOXES = [(1,), (slice(None), 2), (slice(None, None, -1), slice(1, None, 2)), (..., -1), (slice(0, 0),), (...,)]


@pytest.mark.parametrize(("row", "dtype"), _cases("slice-scatter"))
def test_slice_scatter_values(row: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(5)
    for box in BOXES:
        a = draw(rng, (3, 5), dtype)
        b = draw(rng, a[box].shape, dtype)
        t = to_gt(a, dtype)
        before = t.clone()
        t[box] = to_gt(b, dtype)
        wanted = a.copy()
        wanted[box] = b
        assert_close(t, wanted, dtype, 0.0), row
        assert_close(before, a, dtype, 0.0)


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "scatter": lambda _, new: new,
    "scatter_add": lambda old, new: old + new,
    "index_put": lambda _, new: new,
    "index_put_add": lambda old, new: old + new,
    "scatter_prod": lambda old, new: old * new,
    "scatter_amax": np.maximum,
    "scatter_amin": np.minimum,
}


def along_axis(name: str, axis: int, t: gt.Tensor, *others: gt.Tensor) -> gt.Tensor:
    """Calls the method of a row that works along an axis."""
    match name:
        case "scatter_prod" | "scatter_amax" | "scatter_amin":
            return t.scatter_reduce(axis, *others, name.removeprefix("scatter_"))
        case "index" | "index_put" | "index_put_add":
            return gt._gt.along_axis(name, axis, t, *others)
        case "cumargmax" | "cumargmin":
            return getattr(t, name.replace("arg", ""))(axis).indices
        case "argsort_descending":
            return t.argsort(axis, descending=True, stable=True)
        case "argsort":
            return t.argsort(axis, stable=True)
    return getattr(t, name)(axis, *others)


def _scattered(name: str, a: np.ndarray, index: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    result = a.copy()
    for place in np.ndindex(index.shape):
        to = list(place)
        to[axis] = index[place]
        result[tuple(to)] = JOINS[name](result[tuple(to)], b[place])
    return result


@pytest.mark.parametrize(("row", "dtype"), _cases("gather", "scatter"))
def test_gather_and_scatter_values(row: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(6)
    for shape, axis in [((5,), 0), ((4, 3), 0), ((4, 3), 1), ((2, 3, 4), -2), ((3, 400), 1)]:
        a = draw(rng, shape, dtype)
        index_shape = list(shape)
        index_shape[axis] = 2
        least = -shape[axis] if row["name"].startswith("index") else 0
        index = rng.integers(least, shape[axis], index_shape)
        if row["class"] == "gather":
            got = along_axis(row["name"], axis, to_gt(a, dtype), gt.tensor(index))
            assert_close(got, np.take_along_axis(a, index, axis), dtype, 0.0)
        else:
            b = draw(rng, tuple(index_shape), dtype)
            wanted = _scattered(row["name"], _exact(a), index, _exact(b), axis)
            got = along_axis(row["name"], axis, to_gt(a, dtype), gt.tensor(index), to_gt(b, dtype))
            assert_close(got, wanted if dtype in FLOATS else wanted.astype(dtype), dtype)


def _cumargmax(a: np.ndarray, axis: int) -> np.ndarray:
    places = np.where(a >= np.maximum.accumulate(a, axis), np.indices(a.shape)[axis], 0)
    return np.maximum.accumulate(places, axis)


def _cumargmin(a: np.ndarray, axis: int) -> np.ndarray:
    return _cumargmax(-a.astype(np.float64), axis)


@pytest.mark.parametrize(("row", "dtype"), _cases("scan", "sort"))
def test_scan_and_sort_values(row: dict[str, Any], dtype: str) -> None:
    result = _result_dtype(row, dtype)
    for layout in LAYOUTS:
        ((array, view),) = _operands(row, layout, dtype)
        if row["name"] == "cumprod" and dtype in FLOATS:
            array = np.sign(array) + (array == 0)
        if row["class"] == "sort":
            array = np.round(array * 2) if dtype in FLOATS else array  # Few values, so that some are equal.
        t, seen = view(to_gt(array, dtype)), view(quantized(array, dtype))
        for axis in {*range(seen.ndim), -1}:
            if seen.ndim == 0:
                continue
            got = along_axis(row["name"], axis, t)
            wide = _exact(seen) if row["class"] == "scan" else seen.astype(np.float64)
            wanted = _reference(row, [wide], axis=axis, cumargmax=_cumargmax, cumargmin=_cumargmin)
            if result not in FLOATS:
                assert_close(got, wanted.astype(result), result)
                continue
            scale = 3.0 * seen.shape[axis] if row["name"] == "cumsum" else 3.0
            near = TOLERANCE[result]
            np.testing.assert_allclose(to_numpy(got), wanted, rtol=near, atol=near * max(scale, 1.0) * 0.1)
            assert name_of(got.dtype) == result


@pytest.mark.parametrize(("row", "dtype"), _cases("search"))
def test_search_values(row: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(14)
    for count, shape in [(5, (7,)), (5, (2, 3)), (0, (3,)), (4, ()), (400, (1000,))]:
        a, b = np.sort(draw(rng, (count,), dtype)), draw(rng, shape, dtype)
        got = gt.searchsorted(to_gt(a, dtype), to_gt(b, dtype), right="right" in row["name"])
        assert_close(got, _reference(row, [a, b]), "int64")


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row["class"] == "positions"])
def test_positions_values(row: dict[str, Any]) -> None:
    for layout in LAYOUTS:
        ((array, view),) = _operands(row, layout, "bool")
        wanted = _reference(row, [view(array)])
        assert_close(view(to_gt(array, "bool")).nonzero(), wanted, "int64")


# Gradients --------------------------------------------------------------------------------------------------------


def _check_gradients(call: Callable[..., gt.Tensor], reference: Callable[..., np.ndarray], arrays: Arrays) -> None:
    """Compares `backward` of a weighted sum of the results with central differences of the reference."""
    weights = np.random.default_rng(7).uniform(0.5, 1.5, np.shape(reference(*arrays)))
    leaves = [gt.tensor(a, requires_grad=True) for a in arrays]
    call(*leaves).backward(gt.tensor(weights))
    for i, leaf in enumerate(leaves):
        assert leaf.grad is not None, f"operand {i} has no gradient"
        wanted = numeric_gradient(lambda *xs: reference(*xs) * weights, arrays, i)
        np.testing.assert_allclose(to_numpy(leaf.grad), wanted, rtol=2e-5, atol=2e-6, err_msg=f"operand {i}")
        assert tuple(leaf.grad.shape) == arrays[i].shape


def _differentiable(*classes: str) -> list[Any]:
    # Only the second operand of zeta has a gradient (test_special.py), and that of floor_divide is an error
    # (test_autograd.py).
    rows = [(case, case.values[0]) for case in _cases(*classes, dtypes=False)]
    return [case for case, row in rows if row["differentiable"] and row["name"] not in ("zeta", "floor_divide")]


@pytest.mark.parametrize("layout", SHAPES_OF_GRADIENTS)
@pytest.mark.parametrize("row", _differentiable("elementwise"))
def test_elementwise_gradients(row: dict[str, Any], layout: str) -> None:
    drawn = list(_operands(row, layout, "float64"))
    view = drawn[0][1]
    _check_gradients(
        lambda *leaves: _function(row)(*map(view, leaves)),
        lambda *arrays: _reference(row, list(map(view, arrays))),
        [array for array, _ in drawn],
    )


@pytest.mark.parametrize("row", [case for case in _differentiable("elementwise") if _takes_numbers(case.values[0])])
def test_elementwise_gradients_beside_a_number(row: dict[str, Any]) -> None:
    """Replaces each operand by a number in turn, and checks the gradients of the others."""
    drawn = [array for array, _ in _operands(row, "matrix", "float64")]
    for fixed in range(1, len(drawn)):
        number = float(drawn[fixed].flat[0])

        def fill(xs: tuple[Any, ...], fixed: int = fixed, number: float = number) -> list[Any]:
            return [*xs[:fixed], number, *xs[fixed:]]

        _check_gradients(
            lambda *leaves: _function(row)(*fill(leaves)),
            lambda *arrays: _reference(row, [np.asarray(x) for x in fill(arrays)]),
            drawn[:fixed] + drawn[fixed + 1 :],
        )


def test_where_gradients() -> None:
    rng = np.random.default_rng(8)
    condition = rng.uniform(size=(4, 5)) > 0.5
    for shapes in [((4, 5), (4, 5)), ((5,), (4, 1)), ((), (4, 5))]:
        arrays = [rng.standard_normal(shape) for shape in shapes]
        choice = gt.tensor(condition)
        _check_gradients(lambda a, b: gt.where(choice, a, b), lambda a, b: np.where(condition, a, b), arrays)


def test_cast_gradients_come_back_in_the_leaf_s_dtype() -> None:
    leaf = gt.ones(3, dtype=gt.float32, requires_grad=True)
    (leaf.to(gt.float64) * gt.tensor([1.0, 2.0, 3.0], dtype=gt.float64)).sum().backward()
    assert_close(leaf.grad, [1.0, 2.0, 3.0], "float32")


@pytest.mark.parametrize("row", _differentiable("reduction"))
def test_reduction_gradients(row: dict[str, Any]) -> None:
    for layout in SHAPES_OF_GRADIENTS:
        ((array, view),) = _operands(row, layout, "float64")
        for axis in _axes(view(array).ndim):
            if axis == ():
                continue
            for keepdims in (False, True):
                _check_gradients(
                    lambda t: _reduction(row)(view(t), dim=axis, keepdim=keepdims),
                    lambda a: _reference(row, [view(a)], axis=axis, keepdims=keepdims),
                    [array],
                )


@pytest.mark.parametrize("row", _differentiable("contraction"))
@pytest.mark.parametrize("shapes", [s for s in SQUARE if max(np.prod(s[0]), np.prod(s[1])) < 200], ids=str)
def test_contraction_gradients(row: dict[str, Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    _check_gradients(getattr(gt, row["name"]), lambda a, b: _reference(row, [a, b]), arrays)


@pytest.mark.parametrize("row", _differentiable("movement"))
def test_movement_gradients(row: dict[str, Any]) -> None:
    array = np.random.default_rng(10).standard_normal((2, 3, 4))
    for move, names in MOVES[row["name"]]:
        _check_gradients(move, lambda a: _reference(row, [a], **names), [array])


@pytest.mark.parametrize("row", _differentiable("concatenation"))
def test_concatenation_gradients(row: dict[str, Any]) -> None:
    rng = np.random.default_rng(11)
    for axis, shapes in {0: [(2, 3), (1, 3), (0, 3)], -1: [(2, 1), (2, 4)]}.items():
        _check_gradients(
            lambda *ts: getattr(gt, row["name"])(list(ts), dim=axis),
            lambda *xs: np.concatenate(xs, axis=axis),
            [rng.standard_normal(shape) for shape in shapes],
        )


@pytest.mark.parametrize("row", _differentiable("slice-scatter"))
def test_slice_scatter_gradients(row: dict[str, Any]) -> None:
    rng = np.random.default_rng(12)
    for box in BOXES:
        a = rng.standard_normal((3, 5))
        b = rng.standard_normal(a[box].shape)

        def put(x: Any, y: Any, box: Any = box) -> Any:
            x = x * 1.0  # A leaf that requires a gradient may not be changed in place.
            x[box] = y
            return x

        _check_gradients(put, put, [a, b]), row


@pytest.mark.parametrize("row", _differentiable("gather", "scatter"))
def test_gather_and_scatter_gradients(row: dict[str, Any]) -> None:
    rng = np.random.default_rng(13)
    index = rng.integers(0, 4, (4, 2))
    if row["name"] in ("scatter", "index_put"):
        # Positions are unique: PyTorch gives each of several elements at one position the gradient of the position.
        index = np.argsort(rng.uniform(size=(4, 2)), 0)
    if row["name"].startswith("index"):
        index[1] -= 4
    at = gt.tensor(index)
    arrays = [rng.standard_normal((4, 3))]
    if row["class"] == "gather":
        _check_gradients(
            lambda t: along_axis(row["name"], 0, t, at),
            lambda a: np.take_along_axis(a, index, 0),
            [arrays[0][:, :2].copy()],
        )
    else:
        arrays.append(rng.standard_normal((4, 2)))
        call = lambda t, s: along_axis(row["name"], 0, t, at, s)  # noqa: E731
        _check_gradients(call, lambda a, b: _scattered(row["name"], a, index, b, 0), arrays)


def test_products_by_index_have_gradients_at_zeros() -> None:
    for zeros in [(0,), (0, 2), (1, 3)]:
        a, b, index = np.array([2.0, 0.0, 3.0]), np.array([1.5, 0.5, -1.0, 2.0]), np.array([0, 0, 1, 0])
        b[list(zeros)] = 0
        _check_gradients(
            lambda t, s: along_axis("scatter_prod", 0, t, gt.tensor(index), s),
            lambda x, y: _scattered("scatter_prod", x, index, y, 0),
            [a, b],
        )


@pytest.mark.parametrize("row", _differentiable("scan"))
def test_scan_gradients(row: dict[str, Any]) -> None:
    rng = np.random.default_rng(15)
    arrays = [rng.standard_normal(shape) for shape in [(5,), (3, 4), (2, 3, 2), (1,)]]
    if row["name"] == "cumprod":
        for zeros in [(1,), (0, 3), (4,)]:
            arrays.append(rng.standard_normal(5))
            arrays[-1][list(zeros)] = 0
    for array in arrays:
        for axis in range(array.ndim):
            _check_gradients(
                lambda t: along_axis(row["name"], axis, t), lambda a: _reference(row, [a], axis=axis), [array]
            )


# Second derivatives, of ops whose first derivative is not constant.
TWICE = ["exp", "log", "sqrt", "sin", "tanh", "sigmoid", "gelu", "silu", "hardswish", "reciprocal", "mul", "div", "pow"]


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients(name: str) -> None:
    row = ROWS[name]
    arrays = [array for array, _ in _operands(row, "vector", "float64")]

    def first(*xs: np.ndarray) -> np.ndarray:
        leaves = [gt.tensor(x, requires_grad=True) for x in xs]
        _function(row)(*leaves).sum().backward()
        return to_numpy(leaves[0].grad)

    leaves = [gt.tensor(a, requires_grad=True) for a in arrays]
    _function(row)(*leaves).sum().backward(create_graph=True)
    gradient = leaves[0].grad
    assert gradient.requires_grad
    for leaf in leaves:
        leaf.grad = None
    gradient.sum().backward()
    for i, leaf in enumerate(leaves):
        # A leaf that the first derivative does not depend on, such as x in that of x * y by x, has no gradient.
        got = np.zeros(arrays[i].shape) if leaf.grad is None else to_numpy(leaf.grad)
        np.testing.assert_allclose(got, numeric_gradient(first, arrays, i, 1e-5), rtol=1e-4, atol=1e-5)


# The table itself -------------------------------------------------------------------------------------------------


def test_every_row_is_tested_here() -> None:
    tested = {
        "elementwise", "select", "cast", "reduction", "arg-reduction", "movement", "slice-scatter", "concatenation",
        "contraction", "gather", "scatter", "scan", "sort", "search", "positions",
    }  # fmt: skip
    # These classes are tested in test_creation.py, test_rows.py and test_windows.py.
    elsewhere = {"creation", "random", "rows", "convolution", "pooling"}
    assert {row["class"] for row in ROWS.values()} <= tested | elsewhere
    assert {row["name"] for row in ROWS.values() if row["class"] == "movement"} == set(MOVES)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_tells_all_of_itself(row: dict[str, Any]) -> None:
    assert set(row["accepts"]) <= set(DTYPES)
    assert row["doc"]
    assert row["class"] == "random" or row["reference"]
    assert len(row["domain"]) == 3
