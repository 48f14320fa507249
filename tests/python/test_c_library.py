"""`libgt` through `ctypes`: every row of the op table beside the Python package, bytes, gradients, errors."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_library import Attrs, Failed, Handle, Ints, Session, Tensor, check, functions, library
from support import ROOT, TOKEN, as_bfloat16, daemon, draw, gtd, output_of, server

import gt
from gt._functions import _recurrent
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)

# The library is built first if necessary.
pytestmark = pytest.mark.timeout(1200)
ROWS = {row["name"]: row for row in gt._gt.op_table()}
RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def session() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GT_DAEMON", str(gtd()))
        session = Session()
        yield session
        session.close()


def same(got: Tensor, wanted: gt.Tensor) -> None:
    """Asserts that shape, dtype and bits are those of the Python package."""
    assert (got.shape, got.dtype) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("gt."))
    np.testing.assert_array_equal(got.numpy(), wanted.detach().numpy())


# Operations -----------------------------------------------------------------------------------------------------------

X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4))
INDEX = np.array([[0, 2, 1], [3, 3, 0], [1, 0, 2]])
IMAGE = RNG.standard_normal((2, 4, 6, 6))
KERNEL = RNG.standard_normal((6, 2, 3, 3))
CONVOLVED = RNG.standard_normal((2, 6, 3, 3))
POOLED = RNG.standard_normal((2, 4, 3, 3))
CLASSES = np.array([1, 0, 3])
QUERIES, KEYS, VALUES = (RNG.standard_normal((2, n, k)) for n, k in ((3, 4), (5, 4), (5, 6)))
WINDOWS: dict[str, Any] = {"stride": [2], "padding": [1], "groups": 2}
NEXT: dict[str, Any] = {"kernel": [2, 2]}


def gradient(call: Callable[..., gt.Tensor], inputs: list[np.ndarray], upstream: np.ndarray, which: int) -> gt.Tensor:
    """Returns the gradients of the Python package's backward pass."""
    leaves = [gt.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    return gt.autograd.grad(call(*leaves), leaves[which], gt.tensor(upstream))[0]


def python_convolution(x: gt.Tensor, w: gt.Tensor) -> gt.Tensor:
    return F.conv2d(x, w, stride=2, padding=1, groups=2)


def attention_gradients() -> gt.Tensor:
    upstream = np.ones((2, 3, 6))
    each = [gradient(F.scaled_dot_product_attention, [QUERIES, KEYS, VALUES], upstream, i) for i in range(3)]
    return gt.cat([part.flatten(1) for part in each], 1)


def lstm_cell_gradients() -> gt.Tensor:
    step = lambda *operands: gt.cat(_recurrent.lstm_cell(*operands), 1)  # noqa: E731
    return gt.cat([gradient(step, [X, X[:, :1]], X[:, :2], i) for i in range(2)], 1)


def numbers_of(parts: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(parts).view(complex)[:, 0]


def norm_gradients(call: Callable[..., gt.Tensor], weights: int) -> gt.Tensor:
    return gt.stack([gradient(call, [X, *np.ones((weights, 4))], Y, 1 + i) for i in range(weights)])


def indexed(name: str, *more: np.ndarray) -> gt.Tensor:
    return gt._gt.along_axis(name, 1, gt.tensor(X), gt.tensor(INDEX - 2), *map(gt.tensor, more))


PAIRS = X.reshape(3, 2, 2)
HALVES = X.astype(np.float16)
SOFTMAX = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
# Two time steps of one sample, whose label has a blank before and after it.
EMITTED, STATES, SIZES = np.log([[[0.5, 0.3, 0.4]], [[0.2, 0.6, 0.1]]]), np.array([[0, 1, 0]]), np.array([[2, 1]])


def alignments() -> list[np.ndarray]:
    """The forward variables and the posterior probabilities, from the three paths of states to the label."""
    (a, b, _), (c, d, e) = np.exp(EMITTED[:, 0])
    paths = np.array([a * d, b * d, b * e])
    with np.errstate(divide="ignore"):
        variables = np.log([1 / paths.sum(), a, b, 0, a * c, (a + b) * d, b * e])
    shares = paths / paths.sum()
    posteriors = [[[shares[0], shares[1] + shares[2], 0]], [[0, shares[0] + shares[1], shares[2]]]]
    return [variables[None], np.array(posteriors)]


# For each row that is not elementwise: its operands, its attributes, and the call in Python.
CALLS: dict[str, tuple[list[Any], dict[str, Any], Callable[[], gt.Tensor]]] = {
    "where": ([X > 0, X, 2], {}, lambda: gt.where(gt.tensor(X > 0), gt.tensor(X), 2)),
    "cast": ([X], {"dtype": 6}, lambda: gt.tensor(X).to(gt.int64)),
    "bitcast": ([X], {"dtype": 6}, lambda: gt.tensor(X).view(gt.int64)),
    "reinterpret": ([PAIRS], {"dtype": 15}, lambda: gt.view_as_complex(gt.tensor(PAIRS))),
    **{
        name: ([X], {}, lambda call=call: gt.view_as_real(call(gt.view_as_complex(gt.tensor(PAIRS)))).reshape(3, 4))
        for name, call in (
            ("fourier", gt.fft.fft),
            ("inverse_fourier", lambda z: gt.fft.ifft(z, norm="forward")),
        )
    },
    "real_fourier": ([X], {}, lambda: gt.view_as_real(gt.fft.rfft(gt.tensor(X))).reshape(3, 6)),
    "inverse_real_fourier": ([X], {}, lambda: gt.fft.irfft(gt.view_as_complex(gt.tensor(PAIRS)), norm="forward")),
    **{
        name: ([X], {"axes": [-1], "keepdim": 1}, lambda name=name: getattr(gt.tensor(X), name)(dim=-1, keepdim=True))
        for name in ("sum", "mean", "prod", "amax", "amin", "any", "all", "argmax", "argmin")
    },
    "norm": ([X], {}, lambda: gt.linalg.vector_norm(gt.tensor(X))),
    "reshape": ([X], {"shape": [2, -1]}, lambda: gt.tensor(X).reshape(2, -1)),
    "permute": ([X], {"axes": [1, 0]}, lambda: gt.tensor(X).T),
    "expand": ([X], {"shape": [2, -1, 4]}, lambda: gt.tensor(X).expand(2, -1, 4)),
    "slice": (
        [X],
        {"start": [-(2**63), 3], "stop": [2, -(2**63)], "step": [1, -2]},
        lambda: gt.tensor(np.ascontiguousarray(X[:2, 3::-2])),
    ),
    "slice_scatter": (
        [X, 7],
        {"start": [1], "stop": [2]},
        lambda: gt.tensor(np.concatenate([X[:1], X[:1] * 0 + 7, X[2:]])),
    ),
    "cat": ([X, Y, X], {"axis": -1}, lambda: gt.cat([gt.tensor(X), gt.tensor(Y), gt.tensor(X)], -1)),
    "matmul": ([X, Y.T], {}, lambda: gt.tensor(X) @ gt.tensor(np.ascontiguousarray(Y.T))),
    "matmul_wide": (
        [HALVES, np.ascontiguousarray(HALVES.T)],
        {},
        lambda: gt.tensor(HALVES).float() @ gt.tensor(np.ascontiguousarray(HALVES.T)).float(),
    ),
    "affine": (
        [X, Y, np.arange(3.0, dtype=Y.dtype)],
        {},
        lambda: gt.tensor(X) @ gt.tensor(Y).T + gt.arange(3.0, dtype=gt.tensor(Y).dtype),
    ),
    "gather": ([X, INDEX], {"axis": 1}, lambda: gt.tensor(X).gather(1, gt.tensor(INDEX))),
    "scatter": ([X, INDEX, Y], {"axis": 1}, lambda: gt.tensor(X).scatter(1, gt.tensor(INDEX), gt.tensor(Y))),
    "scatter_add": ([X, INDEX, Y], {"axis": 1}, lambda: gt.tensor(X).scatter_add(1, gt.tensor(INDEX), gt.tensor(Y))),
    **{
        name: ([X, INDEX - 2, *more], {"axis": 1}, lambda name=name, more=more: indexed(name, *more))
        for name, more in (("index", ()), ("index_put", (Y,)), ("index_put_add", (Y,)))
    },
    **{
        f"scatter_{name}": (
            [X, INDEX, Y],
            {"axis": 1},
            lambda name=name: gt.tensor(X).scatter_reduce(1, gt.tensor(INDEX), gt.tensor(Y), name),
        )
        for name in ("prod", "amax", "amin")
    },
    "softmax": ([X], {"axis": 0}, lambda: gt.tensor(X).softmax(0)),
    "log_softmax": ([X], {"axis": -1}, lambda: gt.tensor(X).log_softmax(-1)),
    "softmax_backward": ([Y, SOFTMAX], {}, lambda: gt.tensor(SOFTMAX * (Y - (Y * SOFTMAX).sum(-1, keepdims=True)))),
    "log_softmax_backward": ([Y, np.log(SOFTMAX)], {}, lambda: gt.tensor(Y - SOFTMAX * Y.sum(-1, keepdims=True))),
    "cross_entropy": (
        [X, CLASSES],
        {"ignores": 1, "ignore_index": 3, "label_smoothing": 0.25},
        lambda: F.cross_entropy(gt.tensor(X), gt.tensor(CLASSES), ignore_index=3, label_smoothing=0.25),
    ),
    "nll_loss": (
        [X, CLASSES],
        {"reduction": 2},
        lambda: F.nll_loss(gt.tensor(X), gt.tensor(CLASSES), reduction="none"),
    ),
    "cross_entropy_backward": (
        [np.array(1.0), X, CLASSES, 1.0],
        {"reduction": 1},
        lambda: gradient(lambda x, c: F.cross_entropy(x, c, reduction="sum"), [X, CLASSES], np.array(1.0), 0),
    ),
    "nll_loss_backward": (
        [np.array(1.0), X, CLASSES, 1.0],
        {},
        lambda: gradient(F.nll_loss, [X, CLASSES], np.array(1.0), 0),
    ),
    "layer_norm": ([X, 1.0, Y[0], 1e-5], {}, lambda: F.layer_norm(gt.tensor(X), [4], None, gt.tensor(Y[0]))),
    "layer_norm_backward": ([Y, X, 1.0, 1e-5], {}, lambda: gradient(lambda x: F.layer_norm(x, [4]), [X], Y, 0)),
    "layer_norm_weight_backward": (
        [Y, X, 1e-5],
        {},
        lambda: norm_gradients(lambda x, w, b: F.layer_norm(x, [4], w, b), 2),
    ),
    "rms_norm": ([X, Y[0], 1e-5], {}, lambda: F.rms_norm(gt.tensor(X), [4], gt.tensor(Y[0]), 1e-5)),
    "rms_norm_backward": ([Y, X, 1.0, 1e-5], {}, lambda: gradient(lambda x: F.rms_norm(x, [4], eps=1e-5), [X], Y, 0)),
    "rms_norm_weight_backward": ([Y, X, 1e-5], {}, lambda: norm_gradients(lambda x, w: F.rms_norm(x, [4], w, 1e-5), 1)),
    "attention": (
        [QUERIES, KEYS, VALUES],
        {"causal": 1, "scale": 0.5},
        lambda: F.scaled_dot_product_attention(*map(gt.tensor, (QUERIES, KEYS, VALUES)), is_causal=True, scale=0.5),
    ),
    "attention_backward": ([np.ones((2, 3, 6)), QUERIES, KEYS, VALUES], {}, attention_gradients),
    "attention_gradients": (
        [
            np.ones((2, 3, 6)),
            QUERIES,
            KEYS,
            VALUES,
            F.scaled_dot_product_attention(*map(gt.tensor, (QUERIES, KEYS, VALUES))).numpy(),
        ],
        {},
        attention_gradients,
    ),
    "complex_mul": (
        [X[:, :2], Y[:, :2]],
        {},
        lambda: gt.view_as_real(gt.tensor(numbers_of(X[:, :2])) * gt.tensor(numbers_of(Y[:, :2]))),
    ),
    "complex_div": (
        [X[:, :2], Y[:, :2]],
        {},
        lambda: gt.view_as_real(gt.tensor(numbers_of(X[:, :2])) / gt.tensor(numbers_of(Y[:, :2]))),
    ),
    "lstm_cell": (
        [X, X[:, :1]],
        {},
        lambda: gt.cat(_recurrent.lstm_cell(gt.tensor(X), gt.tensor(X[:, :1])), 1),
    ),
    "lstm_cell_backward": (
        [X[:, :1], X[:, 1:2], X, X[:, :1], _recurrent.lstm_cell(gt.tensor(X), gt.tensor(X[:, :1]))[1].numpy()],
        {},
        lstm_cell_gradients,
    ),
    "ctc_forward": ([EMITTED, STATES, SIZES], {}, lambda: gt.tensor(alignments()[0])),
    "ctc_posteriors": ([EMITTED, STATES, SIZES, alignments()[0]], {}, lambda: gt.tensor(alignments()[1])),
    "full": ([3], {"shape": [2, 3], "dtype": 9}, lambda: gt.full((2, 3), 3.0)),
    "arange": ([2, 3], {"shape": [5]}, lambda: gt.arange(2, 17, 3)),
    "cumsum": ([X], {"axis": 1}, lambda: gt.tensor(X).cumsum(1)),
    "cumprod": ([X], {"axis": 1}, lambda: gt.tensor(X).cumprod(1)),
    "logcumsumexp": ([X], {"axis": 0}, lambda: gt.tensor(X).logcumsumexp(0)),
    "cumargmax": ([X], {"axis": 1}, lambda: gt.tensor(X).cummax(1).indices),
    "cumargmin": ([X], {"axis": 1}, lambda: gt.tensor(X).cummin(1).indices),
    "argsort": ([X], {"axis": 1}, lambda: gt.tensor(X).argsort(1)),
    "argsort_descending": ([X], {"axis": 1}, lambda: gt.tensor(X).argsort(1, descending=True)),
    "searchsorted": ([np.sort(X[0]), Y], {}, lambda: gt.searchsorted(gt.tensor(np.sort(X[0])), gt.tensor(Y))),
    "searchsorted_right": (
        [np.sort(X[0]), Y],
        {},
        lambda: gt.searchsorted(gt.tensor(np.sort(X[0])), gt.tensor(Y), right=True),
    ),
    "nonzero": ([X > 0], {}, lambda: gt.tensor(X > 0).nonzero()),
    "convolution": ([IMAGE, KERNEL], WINDOWS, lambda: python_convolution(gt.tensor(IMAGE), gt.tensor(KERNEL))),
    "convolution_input": (
        [CONVOLVED, KERNEL],
        {**WINDOWS, "shape": [6, 6]},
        lambda: gradient(python_convolution, [IMAGE, KERNEL], CONVOLVED, 0),
    ),
    "convolution_weight": (
        [CONVOLVED, IMAGE],
        {**WINDOWS, "kernel": [3, 3]},
        lambda: gradient(python_convolution, [IMAGE, KERNEL], CONVOLVED, 1),
    ),
    "max_pool": ([IMAGE], {"kernel": [3], "stride": [2]}, lambda: F.max_pool2d(gt.tensor(IMAGE), 3, 2)),
    "max_pool_indices": ([IMAGE], NEXT, lambda: F.max_pool2d(gt.tensor(IMAGE), 2, return_indices=True)[1]),
    "max_pool_input": ([POOLED, IMAGE], NEXT, lambda: gradient(lambda x: F.max_pool2d(x, 2), [IMAGE], POOLED, 0)),
    "sum_pool": ([IMAGE], NEXT, lambda: F.avg_pool2d(gt.tensor(IMAGE), 2, divisor_override=1)),
    "sum_pool_input": (
        [POOLED],
        {**NEXT, "shape": [6, 6]},
        lambda: gradient(lambda x: F.avg_pool2d(x, 2, divisor_override=1), [IMAGE], POOLED, 0),
    ),
}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row["class"] == "elementwise"])
def test_an_elementwise_row_is_the_package_s(session: Session, name: str) -> None:
    row = ROWS[name]
    for dtype in ("float64", "int32"):
        if dtype not in row["accepts"] and row["promotion"] != "float":
            continue
        arrays = [
            draw(RNG, shape, dtype, *(row["domain"][i] if dtype == "float64" else (1, 3)))
            for i, shape in enumerate(((3, 1), (4,), (3, 4))[: row["operands"]])
        ]
        got = session.op(name, *map(session.tensor, arrays))
        same(got, gt._gt.elementwise(row["wire_id"], *map(gt.tensor, arrays)))


@pytest.mark.parametrize("name", CALLS)
def test_a_row_is_the_package_s(session: Session, name: str) -> None:
    operands, attrs, wanted = CALLS[name]
    got = session.op(name, *[session.tensor(x) if isinstance(x, np.ndarray) else x for x in operands], **attrs)
    wanted = wanted().detach()
    assert (got.shape, got.dtype) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("gt."))
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "operands"), [("rand", []), ("randn", []), ("randint", [-4, 9])])
def test_random_numbers_are_the_package_s(session: Session, name: str, operands: list[int]) -> None:
    library().gt_manual_seed(ctypes.c_uint64(11))
    gt.manual_seed(11)
    same(session.op(name, *operands, shape=[5, 3]), getattr(gt, name)(*operands, (5, 3)))


def test_every_row_is_called_here_and_says_what_it_is() -> None:
    random = {name for name, row in ROWS.items() if row["class"] == "random"}
    elementwise = {name for name, row in ROWS.items() if row["class"] == "elementwise"}
    assert CALLS.keys() | random | elementwise == ROWS.keys()
    lib = library()
    opcodes = [lib.gt_op_at(ctypes.c_size_t(i)) for i in range(lib.gt_op_count())]
    assert {lib.gt_op_name(op).decode(): (op, lib.gt_op_doc(op).decode()) for op in opcodes} == {
        name: (row["wire_id"], row["doc"]) for name, row in ROWS.items()
    }
    assert all(lib.gt_op_by_name(name.encode()) == row["wire_id"] for name, row in ROWS.items())
    assert lib.gt_op_attrs(ROWS["sum"]["wire_id"]) == b"axes keepdim"


# Functions ------------------------------------------------------------------------------------------------------------

FUNCTIONS = {row["full_name"]: row for row in gt._gt.function_table()}
# Arguments of functions for which those of `arguments_of` mean nothing.
TEXTS = {"equation": "ij,kj->ik", "mode": "constant", "reduction": "mean", "padding_mode": "zeros", "reduce": "sum"}
TABLED = [name for name, row in FUNCTIONS.items() if row["returns"] not in ("Size", "dtype")]


def arguments_of(row: dict[str, Any]) -> list[Any]:
    """Returns an argument for each parameter without a default: arrays for tensors."""
    values = {
        "Tensor": np.abs(X).astype(np.float32),
        "TensorOrNumber": np.abs(Y).astype(np.float32),
        "Tensors": [X.astype(np.float32), Y.astype(np.float32)],
        "Operands": [X.astype(np.float32), Y.astype(np.float32)],
        "Number": 2.0,
        "Int": 1,
        "Float": 0.5,
        "Bool": False,
        "Ints": [1],
        "OptionalInts": [1],
        "Sizes": [3, 4],
    }
    needed = [parameter for parameter in row["parameters"] if parameter["default"] is None]
    kinds = [parameter["kind"] for parameter in needed if not parameter["keyword_only"]]
    if any(parameter["keyword_only"] for parameter in needed):
        pytest.skip("an argument that has to be named")
    if any(kind not in values and kind != "Text" for kind in kinds):
        pytest.skip(f"arguments of kind {kinds}")
    return [
        TEXTS.get(parameter["name"], "mean") if parameter["kind"] == "Text" else values[parameter["kind"]]
        for parameter in needed
    ]


def package_s(row: dict[str, Any], arguments: list[Any]) -> Any:
    """Calls the function of the Python package, as a function, a method or in place."""

    def made(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return gt.tensor(value)
        return [made(item) for item in value] if isinstance(value, list) and isinstance(value[0], np.ndarray) else value

    given = [made(value) for value in arguments]
    if row["function"]:
        return gt._functions.MODULES[row["module"]][row["name"]](*given)
    first, *others = given
    return getattr(first, row["name"] + ("" if row["method"] else "_"))(*others)


@pytest.mark.parametrize("name", TABLED)
def test_a_function_is_the_package_s(session: Session, name: str) -> None:
    """Calls each declared function in Python and in C: results and errors are the same."""
    row = FUNCTIONS[name]
    same_name = [
        other for other in FUNCTIONS.values() if (other["module"], other["name"]) == (row["module"], row["name"])
    ]
    if len(same_name) > 1:
        pytest.skip("Python selects an overload by the arguments")
    arguments = arguments_of(row)

    def made(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return session.tensor(value)
        return [made(item) for item in value] if isinstance(value, list) and isinstance(value[0], np.ndarray) else value

    gt.manual_seed(3)
    library().gt_manual_seed(ctypes.c_uint64(3))
    wanted, text = None, None
    try:
        wanted = package_s(row, arguments)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError) as error:
        text = str(error)
    call = session.number if row["returns"] in ("bool", "Number") else session.call
    if text is not None:
        with pytest.raises(Failed):
            call(name, *map(made, arguments))
        return
    got = call(name, *map(made, arguments))
    if isinstance(wanted, gt.Tensor):
        same(got[0], wanted)
    elif isinstance(wanted, tuple):
        for mine, theirs in zip(got, wanted, strict=True):
            same(mine, theirs)
    else:
        assert got == float(wanted)


def test_what_a_function_does_not_take_is_an_error(session: Session) -> None:
    x = session.tensor(X)
    for text, name, arguments in [
        ("there is no function called", "no_such_function", [x]),
        ("the argument dim is missing", "logsumexp", [x]),
        ("takes 3 arguments, but 4 were given", "logsumexp", [x, [1], False, 1]),
        ("the argument dim must be tuple of ints", "logsumexp", [x, "1"]),
        ("Dimension out of range", "logsumexp", [x, [5]]),
        ("call it with gt_call_number", "allclose", [x, x]),
    ]:
        with pytest.raises(Failed, match=text):
            session.call(name, *arguments)
    with pytest.raises(Failed, match="do not fit in 0"):
        session.call("logsumexp", x, [1], capacity=0)
    with pytest.raises(Failed, match="call it with gt_call"):
        session.number("logsumexp", x, [1])
    (total,) = session.call("logsumexp", x, [1], ...)
    np.testing.assert_allclose(total.numpy(), np.log(np.exp(X).sum(1)), rtol=1e-12)


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_zeros_and_ones_are_functions_of_their_own(session: Session, name: str) -> None:
    for shape, number, dtype in (((2, 3), 0, gt.float32), ((), 10, gt.float64), ((0, 4), 1, gt.bool)):
        sizes, ndim, made = (ctypes.c_int64 * len(shape))(*shape), ctypes.c_size_t(len(shape)), Handle()
        check(getattr(library(), f"gt_{name}")(session.handle, sizes, ndim, number, ctypes.byref(made)))
        same(Tensor(made), getattr(gt, name)(shape, dtype=dtype))


def test_updated_arguments_are_further_results(session: Session) -> None:
    mean, var = gt.zeros(4, dtype=gt.float64), gt.ones(4, dtype=gt.float64)
    wanted = F.batch_norm(gt.tensor(X), mean, var, training=True)
    old = [session.tensor(np.full(4, float(number))) for number in (0, 1)]
    for got, python in zip(
        session.call("batch_norm", session.tensor(X), *old, None, None, True), (wanted, mean, var), strict=True
    ):
        same(got, python)
    np.testing.assert_array_equal(old[0].numpy(), np.zeros(4))


def test_numbers_promote_as_python_s_do(session: Session) -> None:
    small = session.tensor(np.array([1, 2], np.int8))
    assert [session.op("add", small, n).dtype for n in (True, 2, 2.0)] == ["int8", "int8", "float32"]


# Bytes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4), (500, 600)], ids=str)
def test_bytes_come_back(session: Session, code: str, shape: tuple[int, ...]) -> None:
    array = RNG.integers(0, 2, shape).astype(code)
    tensor = session.tensor(array)
    assert (tensor.shape, tensor.dtype) == (shape, array.dtype.name)
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_bfloat16_comes_and_goes_as_its_bits(session: Session) -> None:
    array = RNG.standard_normal(100).astype(np.float32)
    bits = (as_bfloat16(array).view(np.uint32) >> 16).astype(np.uint16)
    tensor = session.tensor(bits, "bfloat16")
    assert tensor.dtype == "bfloat16"
    np.testing.assert_array_equal(tensor.numpy(), bits)
    np.testing.assert_array_equal(session.op("cast", tensor, dtype=9).numpy(), as_bfloat16(array))


def bytes_of(buffer: Handle) -> Any:
    lib = library()
    size = lib.gt_buffer_bytes(buffer)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(lib.gt_buffer_data(buffer)), np.float64)


def test_a_buffer_is_fetched_changed_and_sent_without_a_copy(session: Session) -> None:
    lib, buffer, made = library(), Handle(), Handle()
    tensor = session.tensor(np.arange(4.0))
    check(lib.gt_tensor_fetch(tensor, ctypes.byref(buffer)))
    place = lib.gt_buffer_data(buffer)
    assert place % 64 == 0
    bytes_of(buffer)[:] *= 2
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4.0))  # Writing to the buffer leaves the tensor unchanged.
    check(lib.gt_tensor_from_buffer(ctypes.byref(buffer), ctypes.byref(made)))
    assert not buffer
    np.testing.assert_array_equal(Tensor(made).numpy(), 2 * np.arange(4.0))


def test_a_new_buffer_becomes_a_tensor_of_a_hundred_megabytes(session: Session) -> None:
    lib, buffer, made = library(), Handle(), Handle()
    shape, count = (ctypes.c_int64 * 2)(3125, 4000), ctypes.c_size_t(2)
    check(lib.gt_buffer_new(session.handle, 10, shape, count, ctypes.byref(buffer)))
    bytes_of(buffer)[:] = np.arange(3125 * 4000)
    check(lib.gt_tensor_from_buffer(ctypes.byref(buffer), ctypes.byref(made)))
    total = session.op("sum", Tensor(made))
    assert total.item() == np.arange(3125.0 * 4000).sum()


def test_a_buffer_outlives_its_tensor_and_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_DAEMON", str(gtd()))
    lib, buffer, made, own = library(), Handle(), Handle(), Session()
    tensor = own.tensor(np.arange(4.0))
    check(lib.gt_tensor_fetch(tensor, ctypes.byref(buffer)))
    own.close()
    del tensor
    gc.collect()
    np.testing.assert_array_equal(bytes_of(buffer), np.arange(4.0))
    with pytest.raises(Failed, match="GT_ERROR_DISCONNECTED: the session is closed"):
        check(lib.gt_tensor_from_buffer(ctypes.byref(buffer), ctypes.byref(made)))
    assert buffer
    lib.gt_buffer_release(buffer)


# Gradients ------------------------------------------------------------------------------------------------------------


def test_gradients_add_up_in_leaves(session: Session) -> None:
    w = session.tensor(X).requires_grad()
    for _ in range(2):
        session.op("sum", session.op("mul", w, session.tensor(Y))).backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 2 * Y)
    check(library().gt_tensor_zero_grad(w))
    assert w.grad is None


@pytest.mark.parametrize("name", ["complex_mul", "complex_div"])
def test_gradients_of_products_of_pairs_are_those_of_complex_numbers(session: Session, name: str) -> None:
    pairs = [X[:, :2], Y[:, :2]]
    operands = [session.tensor(x).requires_grad() for x in pairs]
    result = session.op(name, *operands)
    session.op("sum", session.op("mul", result, session.tensor(X[:, 2:]))).backward()
    a, b, upstream = (numbers_of(x) for x in [*pairs, X[:, 2:]])
    first = upstream * np.conj(b) if name == "complex_mul" else upstream / np.conj(b)
    second = upstream * np.conj(a) if name == "complex_mul" else -first * np.conj(a / b)
    for operand, wanted in zip(operands, [first, second], strict=True):
        assert operand.grad is not None
        np.testing.assert_allclose(numbers_of(operand.grad.numpy()), wanted, rtol=1e-12)


def test_gradients_of_gradients(session: Session) -> None:
    lib = library()
    x = session.tensor(np.array(3.0)).requires_grad()
    y, found = session.op("pow", x, 3), (Handle * 1)()
    inputs, one, create = (Handle * 1)(x._as_parameter_), ctypes.c_size_t(1), ctypes.c_uint32(2)
    check(lib.gt_gradients(y, None, inputs, one, create, found))
    first = Tensor(Handle(found[0]))
    assert first.item() == 27.0
    first.backward()
    assert x.grad is not None
    assert x.grad.item() == 18.0


def test_a_second_pass_needs_the_graph(session: Session) -> None:
    x = session.tensor(X).requires_grad()
    y = session.op("sum", session.op("exp", x))
    y.backward(flags=1)
    y.backward()
    with pytest.raises(Failed, match="GT_ERROR_RUNTIME: Trying to backward through the graph a second time"):
        y.backward()


def test_parameters_are_assigned_to_where_nothing_is_recorded(session: Session) -> None:
    lib = library()
    w, zero = session.tensor(X).requires_grad(), session.tensor(np.array(0, np.int32))
    with pytest.raises(Failed, match="a leaf Variable that requires grad is being used in an in-place operation"):
        check(lib.gt_tensor_assign(w, zero))
    assert lib.gt_set_grad_enabled(False) is True
    try:
        check(lib.gt_tensor_assign(w, zero))  # The value is converted and broadcast.
        assert not lib.gt_tensor_requires_grad(session.op("exp", w))
    finally:
        assert lib.gt_set_grad_enabled(True) is False
    same(w, gt.zeros(3, 4, dtype=gt.float64))
    assert lib.gt_tensor_requires_grad(w)


def test_a_saved_tensor_cannot_be_assigned_to(session: Session) -> None:
    x, factor = session.tensor(X).requires_grad(), session.tensor(Y)
    product = session.op("sum", session.op("mul", x, factor))
    check(library().gt_tensor_assign(factor, session.tensor(X)))
    with pytest.raises(Failed, match="modified by an inplace operation"):
        product.backward()


# Errors, threads, processes -------------------------------------------------------------------------------------------


def test_an_error_is_a_code_and_a_sentence(session: Session) -> None:
    x, i, reserved = session.tensor(X), session.tensor(np.array([1, 0])), (ctypes.c_uint8 * 61)(1)
    cases: list[tuple[str, Callable[[], Any]]] = [
        (
            "GT_ERROR_RUNTIME: The size of tensor a .4. must match",
            lambda: session.op("add", x, session.tensor(X[:, :3])),
        ),
        ("GT_ERROR_INDEX: Dimension out of range", lambda: session.op("sum", x, axes=[2])),
        ("GT_ERROR_TYPE: add: takes 2 operands, but 1 were given", lambda: session.op("add", x)),
        ("GT_ERROR_TYPE: matmul: operand 1 must be a tensor", lambda: session.op("matmul", x, 2)),
        ("GT_ERROR_TYPE: add: operand 0 is left out", lambda: session.op("add", None, x)),
        ("GT_ERROR_TYPE: add: takes no attribute axes", lambda: session.op("add", x, x, axes=[0])),
        ("GT_ERROR_TYPE: cast: needs the attribute dtype", lambda: session.op("cast", x)),
        ("GT_ERROR_VALUE: slice step cannot be zero", lambda: session.op("slice", x, step=[0])),
        ("GT_ERROR_NOT_IMPLEMENTED: .*not implemented for 'Double'", lambda: session.op("bitwise_and", x, x)),
        ("GT_ERROR_ARGUMENT: 99 is no dtype", lambda: session.op("cast", x, dtype=99)),
        ("GT_ERROR_ARGUMENT: there is no operation 0", lambda: session.op("no such thing", x)),
        (
            "GT_ERROR_ARGUMENT: attrs.reserved is not zero",
            lambda: session.op("sum", x, reserved=reserved),
        ),
        ("GT_ERROR_RUNTIME: a Tensor with 12 elements cannot be converted to Scalar", x.item),
        ("GT_ERROR_RUNTIME: element 0 of tensors does not require grad", x.backward),
        ("GT_ERROR_RUNTIME: only Tensors of floating point", i.requires_grad),
    ]
    for wanted, call in cases:
        with pytest.raises(Failed, match=wanted):
            call()


def test_errors_found_by_execution_are_raised_where_a_value_is_read(session: Session) -> None:
    taken = session.op("gather", session.tensor(np.arange(3.0)), session.tensor(np.array([7])))
    with pytest.raises(
        Failed, match=r"GT_ERROR_INDEX: gather .* index 7 is out of bounds for dimension 0 with size 3$"
    ):
        taken.numpy()


def test_a_failed_call_leaves_nothing_where_its_result_would_be(session: Session) -> None:
    result = Handle(1)
    assert library().gt_op(session.handle, -1, None, ctypes.c_size_t(0), None, ctypes.byref(result)) == 1
    assert not result


def test_no_operands_and_attributes_are_a_defect(session: Session) -> None:
    rng = random.Random(7)
    shapes: list[tuple[int, ...]] = [(), (0,), (4,), (3, 4), (2, 0, 3), (2, 4, 6, 6), (6, 2, 3, 3), (1,) * 8]
    pool = [session.tensor(np.ones(shape, code)) for shape in shapes for code in ("?", "i4", "f2", "f8")]
    numbers = [0, 1, 2, 3, -1, -5, 2**31, -(2**63), 2**63 - 1]
    outcomes = set()
    for name in [name for name in ROWS for _ in range(30)]:
        attrs: dict[str, Any] = {}
        for key in library().gt_op_attrs(ROWS[name]["wire_id"]).decode().split():
            kind = dict(Attrs._fields_).get(key)
            few = numbers[:5] if key == "shape" else numbers  # The shapes that are valid have to fit into memory.
            if kind is Ints:
                attrs[key] = [rng.choice(few) for _ in range(rng.randrange(9))]
            elif kind is ctypes.c_double:
                attrs[key] = rng.choice([0.0, 0.5, -1.0, 1e300, float("nan")])
            else:
                attrs[key] = rng.choice(numbers) if kind is ctypes.c_int64 else rng.randrange(3)
        operands = [rng.choice([*pool, 1, 2.5, True, None]) for _ in range(ROWS[name]["operands"])]
        try:
            session.op(name, *operands, **attrs)
            outcomes.add("GT_OK")
        except Failed as failure:
            outcomes.add(failure.status)
            if failure.status in ("GT_ERROR_INTERNAL", "GT_ERROR_DISCONNECTED"):
                pytest.fail(f"{name}, {attrs}: {failure}")
    check(library().gt_session_synchronize(session.handle))
    assert {"GT_OK", "GT_ERROR_RUNTIME", "GT_ERROR_INDEX", "GT_ERROR_TYPE"} <= outcomes


def test_sizes_are_checked(session: Session) -> None:
    lib, handle, shape = library(), Handle(), (ctypes.c_int64 * 1)(3)
    data = (ctypes.c_double * 3)()
    for size in (0, 23, 25):
        status = lib.gt_tensor_from_data(
            session.handle, 10, shape, ctypes.c_size_t(1), data, ctypes.c_size_t(size), ctypes.byref(handle)
        )
        with pytest.raises(Failed, match=rf"data has {size} bytes, but 3 elements of float64 in shape \[3\] have 24"):
            check(status)
    shape[0] = -1
    status = lib.gt_tensor_from_data(
        session.handle, 10, shape, ctypes.c_size_t(1), data, ctypes.c_size_t(24), ctypes.byref(handle)
    )
    with pytest.raises(Failed, match="negative dimension -1"):
        check(status)


def said_by(program: str, **env: str) -> str:
    """Runs a program in a new process, and returns its output."""
    folders = os.pathsep.join([str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH", "")])
    return output_of(program, **{"GT_DAEMON": str(gtd()), "PYTHONPATH": folders, **env})


def test_null_is_an_error_everywhere_and_never_a_crash() -> None:
    said = said_by("""
import ctypes
from c_library import functions, library
for name, (result, parameters) in functions().items():
    zeros = [None if "*" in p else ctypes.c_double(0) if "double" in p else ctypes.c_uint64(0) for p in parameters]
    returned = getattr(library(), name)(*zeros)
    if result == "gt_status":
        print(name, library().gt_status_name(returned).decode(), library().gt_last_error().decode())
""")
    lines = [line.split(maxsplit=2) for line in said.splitlines()]
    assert {name for name, _, _ in lines} == {
        name for name, (result, _) in functions().items() if result == "gt_status"
    }
    for name, status, text in lines:
        assert status == "GT_ERROR_ARGUMENT", name
        assert "NULL" in text, name


def test_no_daemon_is_an_error(tmp_path: Path) -> None:
    program = """
from c_library import Attrs, Failed, Session
try:
    Session({})
except Failed as failure:
    print(failure)
"""
    nobody = str(tmp_path / "nobody.sock")
    assert re.match(f"GT_ERROR_LAUNCH: .*{nobody}", said_by(program.format(repr(nobody))))
    said = said_by(program.format(""), GT_DAEMON=nobody)
    assert re.match(f"GT_ERROR_LAUNCH: GT_DAEMON names {nobody}, where there is no file", said)


def test_a_session_is_with_the_daemon_of_its_address(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket):
        for address in (str(socket), f"unix:{socket}"):
            own = Session(address)
            assert own.tensor(X).numpy().shape == X.shape
            own.close()
    for wrong in ("nowhere", ""):
        with pytest.raises(Failed, match=f"GT_ERROR_VALUE: `{wrong}` is no address of a daemon"):
            Session(wrong)
    with pytest.raises(Failed, match="GT_ERROR_VALUE: "):
        Session(name="a name of\nmany lines")


def test_a_session_by_tcp_takes_the_daemon_s_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with server(tmp_path) as there:
        with pytest.raises(Failed, match="GT_ERROR_LAUNCH: connecting by TCP takes the daemon's token: set GT_TOKEN"):
            Session(there.address)
        monkeypatch.setenv("GT_TOKEN", "wrong-token-0123456789")
        with pytest.raises(Failed, match=f"GT_ERROR_LAUNCH: the daemon at {there.address}: wrong token"):
            Session(there.address)
        monkeypatch.setenv("GT_TOKEN", TOKEN)
        own = Session(there.address, name="c by tcp")
        x = own.tensor(X.astype(np.float32)).requires_grad()
        own.op("sum", own.op("mul", x, x)).backward()
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X.astype(np.float32))
        assert [session["name"] for session in there.sessions()] == ["c by tcp"]
        assert library().gt_session_is_alive(own.handle)
        own.close()
        there.wait_for_no_sessions()
    with pytest.raises(Failed, match=f"cannot connect to the daemon at {there.address}: nobody listens there"):
        Session(there.address)


def test_tensors_of_a_closed_session_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_DAEMON", str(gtd()))
    own = Session()
    tensor = own.tensor(X)
    assert library().gt_session_is_alive(own.handle)
    own.close()
    for call in (tensor.numpy, lambda: own.op("exp", tensor)):
        with pytest.raises(Failed, match="GT_ERROR_DISCONNECTED"):
            call()


def test_a_forked_child_opens_a_session_of_its_own() -> None:
    said = said_by("""
import os
import numpy as np
from c_library import Attrs, Failed, Session
session = Session()
tensor = session.tensor(np.arange(3.0))
if os.fork() == 0:
    try:
        tensor.numpy()
    except Failed as failure:
        print(failure, flush=True)
    print(Session().tensor(np.arange(4.0)).numpy().sum(), flush=True)
    os._exit(0)
os.wait()
print(tensor.numpy().sum())
""")
    first, *rest = said.splitlines()
    assert first.startswith("GT_ERROR_DISCONNECTED: this tensor belongs to the parent process's session")
    assert rest == ["6.0", "3.0"]


def test_threads_share_a_session_and_its_tensors(session: Session) -> None:
    shared, failures = session.tensor(np.ones(1000)), []

    def work(i: int) -> None:
        try:
            mine = shared
            for _ in range(200):
                mine = session.op("add", session.op("mul", mine, 1.0), shared)
            np.testing.assert_array_equal(mine.numpy(), np.full(1000, 201.0))
            with pytest.raises(Failed, match=f"no operation {-i - 1}$"):
                check(library().gt_op(session.handle, -i - 1, None, ctypes.c_size_t(0), None, ctypes.byref(Handle())))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
