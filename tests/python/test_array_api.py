"""`t.__array_namespace__()`: the Python array API standard, against NumPy, which implements it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gt

xp = gt.ones(1).__array_namespace__()
RNG = np.random.default_rng(0)

# The functions of the standard's version 2024.12.
STANDARD = """
    asarray arange empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros
    zeros_like astype can_cast finfo iinfo isdtype result_type abs acos acosh add asin asinh atan atan2 atanh
    bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign
    cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less
    less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
    negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract
    tan tanh trunc take take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays broadcast_to concat
    expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin count_nonzero
    nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort cumulative_prod
    cumulative_sum max mean min prod std sum var all any diff __array_namespace_info__ e inf nan newaxis pi
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
""".split()
LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer
    pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()

X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4))
I = RNG.integers(0, 9, (3, 4))  # noqa: E741 (integers)
M = X @ X.T + np.eye(3)
AXES: list[dict[str, Any]] = [
    {},
    {"axis": 0},
    {"axis": -1, "keepdims": True},
    {"axis": (0, 1)},
    {"axis": ()},
    {"keepdims": True},
]

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (np.abs(X) / 4 + 1,), {}) for name in "acosh log log1p log2 log10 sqrt reciprocal".split()),
    *((name, (np.tanh(X),), {}) for name in "acos asin atan atanh".split()),
    *(
        (name, (X,), {})
        for name in """abs asinh ceil cos cosh exp expm1 floor isfinite isinf isnan negative positive round sign signbit
        sin sinh square tan tanh trunc conj real""".split()
    ),
    *(
        (name, (X, Y), {})
        for name in """add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal
        logaddexp maximum minimum multiply nextafter not_equal remainder subtract""".split()
    ),
    *((name, (I, I[::-1].copy()), {}) for name in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift".split()),
    *((name, (X > 0, Y > 0), {}) for name in "logical_and logical_or logical_xor".split()),
    ("pow", (np.abs(X), Y), {}),
    ("bitwise_right_shift", (I, I % 3), {}),
    ("bitwise_invert", (I,), {}),
    ("logical_not", (X > 0,), {}),
    ("where", (X > 0, X, Y), {}),
    ("clip", (X,), {"min": -0.5}),
    ("clip", (X,), {"max": 0.5}),
    ("clip", (I, 2, 5), {}),
    *((name, (X,), axes) for name in "max min mean std var sum prod".split() for axes in AXES),
    *((name, (X > 0,), axes) for name in "all any sum count_nonzero".split() for axes in AXES),
    ("var", (X,), {"correction": 1, "axis": 0}),
    ("sum", (I.astype(np.int8),), {"dtype": "int32"}),
    *((name, (X,), axes) for name in ("argmax", "argmin") for axes in ({}, {"axis": 1}, {"axis": 0, "keepdims": True})),
    ("argmax", (X,), {"keepdims": True}),
    ("cumulative_sum", (X,), {"axis": 0, "include_initial": True}),
    ("cumulative_sum", (I[0],), {}),
    ("cumulative_prod", (X,), {"axis": -1}),
    ("diff", (X,), {"axis": 0, "n": 2}),
    ("diff", (X,), {"prepend": X[:, :1], "append": X[:, :2]}),
    ("take", (X, np.array([2, 0, -1])), {"axis": 0}),
    ("take_along_axis", (X, np.argsort(X, 0)), {"axis": 0}),
    ("sort", (X,), {"axis": 0}),
    ("argsort", (X,), {"axis": -1}),
    ("searchsorted", (np.sort(X[0]), Y[0]), {"side": "right"}),
    ("searchsorted", (X[0], Y[0]), {"sorter": np.argsort(X[0])}),
    ("nonzero", (X > 0,), {}),
    *((f"unique_{what}", (I,), {}) for what in ("all", "counts", "inverse")),
    ("isin", (I, np.array([1, 2])), {"invert": True}),
    ("concat", ([X, Y],), {"axis": 1}),
    ("concat", ([X, Y],), {"axis": None}),
    ("stack", ([X, Y],), {"axis": -1}),
    ("unstack", (X,), {"axis": 1}),
    ("expand_dims", (X,), {"axis": 1}),
    ("squeeze", (X[None, :, None], (0, 2)), {}),
    ("flip", (X,), {}),
    ("flip", (X,), {"axis": (1,)}),
    ("roll", (X, 2), {}),
    ("roll", (X, (1, -1)), {"axis": (0, 1)}),
    ("moveaxis", (X, 0, 1), {}),
    ("permute_dims", (X, (1, 0)), {}),
    ("repeat", (X, 2), {}),
    ("repeat", (X, np.array([1, 0, 2])), {"axis": 0}),
    ("tile", (X, (2, 1)), {}),
    ("reshape", (X, (4, -1)), {"copy": True}),
    ("broadcast_to", (X, (2, 3, 4)), {}),
    ("broadcast_arrays", (X, Y[:1]), {}),
    ("arange", (3,), {}),
    ("arange", (3, 1), {}),
    ("arange", (0.0, 1.0, 0.25), {"dtype": "float64"}),
    ("linspace", (0, 1, 5), {"endpoint": False, "dtype": "float64"}),
    ("eye", (3, 4), {"k": 1, "dtype": "float64"}),
    ("full", (3, 2), {}),
    ("full", ((2, 3), True), {}),
    *((name, (3,), {"dtype": "int8"}) for name in ("zeros", "ones")),
    *((name, (I,), {}) for name in ("zeros_like", "ones_like")),
    ("full_like", (I, 4), {}),
    ("tril", (X,), {"k": -1}),
    ("triu", (X,), {"k": 1}),
    ("meshgrid", (X[0], X[:, 0]), {}),
    ("meshgrid", (X[0], X[:, 0]), {"indexing": "ij"}),
    ("matmul", (X, Y.T), {}),
    ("matrix_transpose", (X,), {}),
    ("tensordot", (X, Y), {"axes": ((0,), (0,))}),
    ("vecdot", (X, Y), {"axis": -1}),
    *((f"linalg.{name}", (M,), {}) for name in "cholesky det eigvalsh inv pinv slogdet svdvals matrix_norm".split()),
    ("linalg.matrix_norm", (M,), {"ord": np.inf, "keepdims": True}),
    ("linalg.matrix_power", (M, 3), {}),
    ("linalg.matrix_rank", (M,), {}),
    ("linalg.solve", (M, X), {}),
    ("linalg.cross", (X.T, Y.T), {}),
    ("linalg.diagonal", (X,), {"offset": 1}),
    ("linalg.trace", (X,), {}),
    ("linalg.outer", (X[0], Y[0]), {}),
    ("linalg.vector_norm", (X,), {"axis": 0, "ord": 1}),
    ("linalg.vector_norm", (X,), {}),
]


def _function(library: Any, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        library = getattr(library, part)
    return library


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return gt.tensor(value)
    return [_tensors(v) for v in value] if isinstance(value, list) else value


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert isinstance(found, tuple | list)
        assert getattr(found, "_fields", None) == getattr(expected, "_fields", None)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
        return
    assert isinstance(found, gt.Tensor)
    expected = np.asarray(expected)
    assert tuple(found.shape) == expected.shape
    assert found.dtype.name == expected.dtype.name
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "args", "options"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_as_numpy(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    own, other = ({**options}, {**options})
    if "dtype" in options:
        own["dtype"], other["dtype"] = getattr(gt, options["dtype"]), np.dtype(options["dtype"])
    given = {key: _tensors(value) for key, value in own.items()}
    _same(_function(xp, name)(*(_tensors(value) for value in args), **given), _function(np, name)(*args, **other))


def test_every_name_of_the_standard_is_there() -> None:
    assert [name for name in STANDARD if not hasattr(xp, name)] == []
    assert [name for name in LINALG if not hasattr(xp.linalg, name)] == []
    assert [name for name in xp.__all__ if not hasattr(xp, name)] == []
    assert sorted(xp.linalg.__all__) == sorted(LINALG)


def test_a_tensor_answers_with_the_namespace() -> None:
    x = gt.arange(4)
    assert x.__array_namespace__(api_version="2023.12") is gt.array_api
    with pytest.raises(ValueError, match=r"2024\.12"):
        x.__array_namespace__(api_version="2099.12")
    assert x.to_device(x.device) is x
    with pytest.raises(NotImplementedError):
        x.to_device("cpu", stream=1)


def test_unique_values() -> None:
    assert xp.unique_values(gt.tensor(I)).tolist() == sorted(set(I.flatten().tolist()))


def test_factors_multiply_to_the_matrix() -> None:
    a = gt.tensor(X)
    u, s, vh = xp.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose((u * s @ vh).numpy(), X)
    q, r = xp.linalg.qr(a)
    np.testing.assert_allclose((q @ r).numpy(), X)
    values, vectors = xp.linalg.eigh(gt.tensor(M))
    np.testing.assert_allclose((vectors * values @ vectors.mT).numpy(), M)


def test_dtypes() -> None:
    assert xp.isdtype(gt.float32, "real floating")
    assert xp.isdtype(gt.bfloat16, "numeric")
    assert xp.isdtype(gt.uint8, ("bool", "unsigned integer"))
    assert not xp.isdtype(gt.bool, "numeric")
    assert xp.isdtype(gt.int8, gt.int8)
    with pytest.raises(ValueError, match="kind"):
        xp.isdtype(gt.int8, "number")
    assert xp.result_type(gt.int8, gt.uint8) is gt.int16
    assert xp.result_type(gt.float32, gt.ones(1, dtype=gt.float64), 1) is gt.float64
    assert xp.result_type(gt.int32, 2.5) is gt.float32
    assert xp.result_type(gt.zeros((), dtype=gt.float64), gt.zeros(2)) is gt.float64
    assert xp.can_cast(gt.int8, gt.int32)
    assert not xp.can_cast(gt.ones(1, dtype=gt.int32), gt.int8)
    assert xp.finfo(gt.ones(1)).eps == np.finfo(np.float32).eps
    assert xp.iinfo(gt.int16).max == 32767
    # The limits name dtypes, of complex numbers those of the parts; PyTorch's limits have names of dtypes.
    assert xp.finfo(gt.complex64).dtype is gt.float32
    assert xp.finfo(gt.ones(1, dtype=gt.complex128)).dtype is gt.float64
    assert xp.iinfo(gt.uint64).dtype is gt.uint64
    assert gt.finfo(gt.float32).dtype == "float32"
    x = gt.ones(2)
    assert xp.astype(x, gt.float32, copy=False) is x
    assert xp.astype(x, gt.float32) is not x
    assert xp.astype(x, gt.int8).dtype is gt.int8


def test_namespace_info() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert gt.zeros((1,) * info.capabilities()["max dimensions"]).ndim == info.capabilities()["max dimensions"]
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] is gt.float32
    unsigned = {"uint8", "uint16", "uint32", "uint64"}
    assert set(info.dtypes(kind="integral")) == {"int8", "int16", "int32", "int64"} | unsigned
    assert set(info.dtypes()) == {*info.dtypes(kind=("bool", "integral", "real floating", "complex floating"))}
    with pytest.raises(ValueError, match="kind"):
        info.dtypes(kind="strings")


def test_array_api_code_of_a_library_runs() -> None:
    def standardize(x: Any) -> Any:
        np_ = x.__array_namespace__()
        mean = np_.mean(x, axis=0, keepdims=True)
        scale = np_.std(x, axis=0, keepdims=True)
        return (x - mean) / np_.where(scale == 0, np_.asarray(1.0, dtype=x.dtype), scale)

    np.testing.assert_allclose(standardize(gt.tensor(X)).numpy(), standardize(X))


def test_wrong_calls_raise() -> None:
    with pytest.raises(ValueError, match="axis"):
        xp.cumulative_sum(gt.ones(2, 2))
    with pytest.raises(ValueError, match="axis"):
        xp.take(gt.ones(2, 2), gt.tensor([0]))
    with pytest.raises(ValueError, match="size 2"):
        xp.squeeze(gt.ones(2, 2), 0)
    with pytest.raises(ValueError, match="nonzero"):
        xp.nonzero(gt.ones(()))
    with pytest.raises(BufferError, match="copied"):
        xp.from_dlpack(np.ones(2), copy=False)


BINARY = "add subtract multiply divide pow remainder floor_divide maximum minimum less equal atan2 hypot".split()


@pytest.mark.parametrize("name", BINARY)
def test_numbers_stand_on_either_side(name: str) -> None:
    array = np.array([0.5, 2.0, -3.0])
    function, reference = getattr(xp, name), getattr(np, name)
    x = gt.tensor(array)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(function(x, 2.0).numpy(), reference(array, 2.0))
        np.testing.assert_allclose(function(2.0, x).numpy(), reference(2.0, array))
    with pytest.raises(TypeError, match="at least one"):
        function(1, 2)


def test_tensors_without_axes_promote_as_others_do() -> None:
    assert xp.add(gt.ones(2, dtype=gt.float32), gt.tensor(1.0, dtype=gt.float64)).dtype == gt.float64
    assert xp.add(gt.ones(2, dtype=gt.int8), 1).dtype == gt.int8
    assert xp.multiply(gt.ones(2), 1j).dtype == gt.complex64
    assert xp.result_type(gt.uint16, gt.int8) == gt.int32
    assert xp.sum(gt.ones(2, dtype=gt.uint8)).dtype == gt.uint64
    assert xp.prod(gt.tensor([2**40, 2**23], dtype=gt.uint64)).item() == 2**63
    assert xp.cumulative_sum(gt.ones(2, dtype=gt.uint16)).dtype == gt.uint64
    assert xp.isdtype(gt.complex64, "numeric")
    assert xp.isdtype(gt.uint32, "unsigned integer")
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["complex floating"] == gt.complex64
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}


SIGNED_ZEROS = [(a, b) for a in (0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan) for b in (1.0, -2.0, np.inf, -np.inf)]


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_floor_division_at_special_values(name: str) -> None:
    a, b = (np.array(column) for column in zip(*SIGNED_ZEROS, strict=True))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
        if name == "floor_divide":
            # The standard rounds an infinity or a zero no further; NumPy may answer as Python does.
            expected = np.where(np.isinf(a) | np.isinf(b), a / b, expected)
    found = getattr(xp, name)(gt.tensor(a), gt.tensor(b)).numpy()
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_transforms() -> None:
    array = RNG.standard_normal((4, 6))
    x = gt.tensor(array)
    np.testing.assert_allclose(xp.fft.fft(x, n=5, axis=0, norm="ortho").numpy(), np.fft.fft(array, 5, 0, "ortho"))
    np.testing.assert_allclose(xp.fft.rfftn(x, axes=(0, 1)).numpy(), np.fft.rfftn(array, axes=(0, 1)), atol=1e-12)
    np.testing.assert_allclose(xp.fft.fftshift(x, axes=1).numpy(), np.fft.fftshift(array, 1))
    assert xp.fft.fftfreq(4, d=0.5, dtype=gt.float32).tolist() == [0, 0.5, -1, -0.5]


def test_a_tensor_is_taken_without_a_copy_unless_one_is_asked_for() -> None:
    x = gt.ones(2)
    x_alias, copied = xp.from_dlpack(x, copy=False), xp.from_dlpack(x, copy=True)
    x[0] = 5
    assert x_alias.tolist() == [5, 1]
    assert copied.tolist() == [1, 1]


def test_a_capsule_is_asked_for_with_the_arguments_of_the_standard() -> None:
    capsule = gt.arange(3).__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=True)
    assert "dltensor" in repr(capsule)
    with pytest.raises((RuntimeError, ValueError), match="stream"):
        gt.arange(3).__dlpack__(stream=1)


def test_a_diagonal_outside_the_matrix_has_no_elements() -> None:
    for k in (-2, 3, 2**70, -(2**70)):
        assert xp.eye(2, 3, k=k).tolist() == np.zeros((2, 3)).tolist()
    assert xp.eye(2, 3, k=-1, dtype=gt.int8).tolist() == [[0, 0, 0], [1, 0, 0]]


def test_products_promote_broadcast_and_conjugate_as_the_standard_says() -> None:
    small, wide = gt.tensor([[1, 2, 3]], dtype=gt.uint8), gt.tensor([-1, 0, 1], dtype=gt.int16)
    assert xp.tensordot(small, wide, axes=((1,), (0,))).dtype is gt.int16
    assert xp.linalg.cross(small, wide).tolist() == np.cross([[1, 2, 3]], [-1, 0, 1]).tolist()
    assert xp.linalg.trace(gt.eye(2, dtype=gt.uint8)).dtype is gt.uint64
    assert xp.vecdot(gt.tensor([1j, 2]), gt.tensor([1j, 1])).item() == np.vecdot([1j, 2], [1j, 1])
    with pytest.raises(ValueError, match="1 and 3 elements"):
        xp.vecdot(gt.ones(1), gt.ones(3))
    with pytest.raises(ValueError, match="must have 3"):
        xp.linalg.cross(gt.ones(1), gt.ones(3))


def test_a_right_hand_side_of_two_axes_is_one_matrix() -> None:
    a, b = RNG.standard_normal((3, 3, 3)) + 3 * np.eye(3), RNG.standard_normal((3, 3)).astype(np.float32)
    np.testing.assert_allclose(xp.linalg.solve(gt.tensor(a), gt.tensor(b)).numpy(), np.linalg.solve(a, b), rtol=1e-6)
    found = xp.linalg.solve(gt.tensor(a), gt.tensor(b[0]))
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b[0]), rtol=1e-6)


def test_distinct_complex_numbers() -> None:
    array = np.array([[1 + 2j, 1 + 1j, 1 + 2j], [complex(-0.0, 1), complex(0.0, 1), 3]])
    found, expected = xp.unique_all(gt.tensor(array)), np.unique_all(array)
    _same(found, expected)
    _same(xp.unique_counts(gt.tensor(array)), np.unique_counts(array))
    _same(xp.unique_inverse(gt.tensor(array)), np.unique_inverse(array))
    # Every NaN is a value of its own.
    assert xp.unique_values(gt.tensor([complex(1, np.nan), complex(1, np.nan), 1])).shape == (3,)
