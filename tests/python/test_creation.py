"""Creation of tensors from data, constant, spaced and random."""

from __future__ import annotations

import numpy as np
import pytest
from support import DTYPES, FLOATS, INTEGERS, assert_close, draw, dtype_of, name_of, output_of, to_gt, to_numpy

import gt


@pytest.mark.parametrize(
    ("data", "dtype", "wanted"),
    [
        (3, "int64", 3),
        (3.5, "float32", 3.5),
        (True, "bool", True),
        ([], "float32", []),
        ([1, 2], "int64", [1, 2]),
        ([1, 2.5], "float32", [1, 2.5]),
        ([True, False], "bool", [True, False]),
        ([True, 2], "int64", [1, 2]),
        ([[1, 2], [3, 4]], "int64", [[1, 2], [3, 4]]),
        (((1.0, 2.0),), "float32", [[1, 2]]),
        ([[], []], "float32", np.zeros((2, 0))),
        (range(4), "int64", [0, 1, 2, 3]),
        (np.float64(2.5), "float64", 2.5),
        (np.arange(3, dtype=np.int16), "int16", [0, 1, 2]),
        ([np.float32(1), np.float32(2)], "float32", [1, 2]),
    ],
)
def test_tensor_takes_nested_data_and_finds_its_dtype(data: object, dtype: str, wanted: object) -> None:
    assert_close(gt.tensor(data), np.asarray(wanted, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_takes_a_dtype(dtype: str) -> None:
    t = gt.tensor([0, 1, 2], dtype=dtype_of(dtype))
    assert_close(t, [False, True, True] if dtype == "bool" else [0, 1, 2], dtype)


def test_tensor_copies_a_tensor() -> None:
    a = gt.tensor([1.0, 2.0])
    b = gt.tensor([a[0], a[1]])
    assert b.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 4), (2, 0, 3), (2, 3, 8, 16)])
def test_from_numpy_and_back_keeps_every_bit(dtype: str, shape: tuple[int, ...]) -> None:
    array = draw(np.random.default_rng(1), shape, dtype)
    t = gt.from_numpy(array)
    assert name_of(t.dtype) == dtype
    back = t.numpy()
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.asarray(t), array)
    # A joined tensor is read from the daemon, whatever the client has kept of the array.
    np.testing.assert_array_equal(gt.stack([t, t]).numpy(), np.stack([array, array]))


def test_from_numpy_takes_any_strides() -> None:
    for a in (np.arange(20.0).reshape(4, 5), np.arange(2000.0).reshape(40, 50)):
        for seen in (a.T, a[::-1], a[:, ::2], a[1:, 1:], np.broadcast_to(a[0], (3, a.shape[1])), a[:0], a[1, 1, ...]):
            np.testing.assert_array_equal(gt.from_numpy(seen).numpy(), seen)
            np.testing.assert_array_equal((gt.from_numpy(seen) * 1).numpy(), seen)


def test_from_numpy_takes_what_has_an_array_interface() -> None:
    class Image:
        __array_interface__ = np.arange(6, dtype=np.uint8).reshape(2, 3).__array_interface__ | {"data": b"abcdef"}

    assert gt.from_numpy(Image()).tolist() == [[97, 98, 99], [100, 101, 102]]
    masked = np.ma.masked_array([1, 2], mask=[False, True])
    for array in (np.float32(2.5), masked, np.array([1, 2])[::-1]):
        assert gt.from_numpy(array).tolist() == np.asarray(array).tolist()
    read_only = np.arange(3)
    read_only.flags.writeable = False
    assert gt.from_numpy(read_only).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [">f4", "datetime64[s]", "U3", "O", "V4", "f4,i4", np.longdouble])
def test_from_numpy_refuses_dtypes_that_gt_lacks(dtype: object) -> None:
    array = np.zeros(2, dtype)
    with pytest.raises(TypeError, match=r"can't convert np\.ndarray of type"):
        gt.from_numpy(array)


def test_from_numpy_refuses_what_is_no_array() -> None:
    class Wrong:
        __array_interface__ = None
        __array_struct__ = "no capsule"

    with pytest.raises((TypeError, ValueError)):
        gt.from_numpy(Wrong())
    with pytest.raises(TypeError, match=r"expected np\.ndarray"):
        gt.from_numpy([1.0])


def test_a_large_array_goes_there_and_back() -> None:
    array = np.random.default_rng(2).standard_normal((1500, 2001)).astype(np.float32)
    np.testing.assert_array_equal(gt.from_numpy(array).numpy(), array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_ones_and_full(dtype: str) -> None:
    kind = dtype_of(dtype)
    for shape in [(), (3,), (0,), (2, 3)]:
        assert_close(gt.zeros(shape, dtype=kind), np.zeros(shape), dtype)
        assert_close(gt.ones(shape, dtype=kind), np.ones(shape), dtype)
        assert_close(gt.full(shape, 1, dtype=kind), np.ones(shape), dtype)
        assert tuple(gt.empty(shape, dtype=kind).shape) == shape


def test_sizes_are_given_one_by_one_or_together() -> None:
    for make in (gt.zeros, gt.ones, gt.empty, gt.rand, gt.randn):
        assert tuple(make(2, 3).shape) == tuple(make((2, 3)).shape) == tuple(make([2, 3]).shape) == (2, 3)
        assert name_of(make(2).dtype) == "float32"
        assert make(2, requires_grad=True).requires_grad


@pytest.mark.parametrize(("value", "dtype"), [(1, "int64"), (1.5, "float32"), (True, "bool")])
def test_full_takes_the_value_s_dtype(value: object, dtype: str) -> None:
    assert name_of(gt.full((2,), value).dtype) == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_like(dtype: str) -> None:
    t = to_gt(np.ones((2, 3)), dtype)
    assert_close(gt.zeros_like(t), np.zeros((2, 3)), dtype)
    assert_close(gt.ones_like(t), np.ones((2, 3)), dtype)
    assert_close(gt.full_like(t, 1), np.ones((2, 3)), dtype)
    assert tuple(gt.empty_like(t).shape) == (2, 3)
    assert name_of(gt.zeros_like(t, dtype=gt.int8).dtype) == "int8"
    if dtype in FLOATS:
        assert name_of(gt.rand_like(t).dtype) == name_of(gt.randn_like(t).dtype) == dtype


@pytest.mark.parametrize(
    "arguments",
    [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (0,), (3, 3), (0, 1, 0.25), (1.0, 4.0), (-1, 1, 0.3), (5, -6, -3)],
)
def test_arange(arguments: tuple[float, ...]) -> None:
    wanted = np.arange(*arguments)
    assert_close(gt.arange(*arguments), wanted, "int64" if wanted.dtype == np.int64 else "float32")


def test_arange_of_many() -> None:
    assert_close(gt.arange(100_000), np.arange(100_000), "int64")
    assert_close(gt.arange(0, 10, dtype=gt.float64), np.arange(10.0), "float64")


@pytest.mark.parametrize(
    ("start", "end", "steps"), [(0, 1, 5), (-1, 1, 100), (3, 3, 4), (5, -5, 11), (0, 1, 1), (0, 1, 0)]
)
def test_linspace(start: float, end: float, steps: int) -> None:
    assert_close(gt.linspace(start, end, steps), np.linspace(start, end, steps), "float32")
    exact = gt.linspace(start, end, steps, dtype=gt.float64).numpy()
    assert list(exact[:1]) == [start][:steps]
    if steps > 1:
        assert exact[-1] == end


def test_whole_numbers_lie_between_whole_numbers() -> None:
    assert gt.linspace(4.3, -3, 5, dtype=gt.int32).tolist() == [4, 2, 0, -1, -3]
    assert gt.linspace(-4.3, 3, 8, dtype=gt.int64).tolist() == list(range(-4, 4))
    assert gt.logspace(0, 1.2, 2, dtype=gt.int64).tolist() == [1, 10]


def test_eye() -> None:
    assert_close(gt.eye(3), np.eye(3), "float32")
    assert_close(gt.eye(2, 4), np.eye(2, 4), "float32")
    assert_close(gt.eye(0), np.eye(0), "float32")
    assert_close(gt.eye(3, dtype=gt.int64), np.eye(3), "int64")


# Chance -----------------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_numbers_again() -> None:
    def draws() -> list[object]:
        gt.manual_seed(5)
        return [gt.rand(3).tolist(), gt.randn(2, 2).tolist(), gt.randint(0, 100, (4,)).tolist()]

    first = draws()
    assert draws() == first
    gt.manual_seed(6)
    assert gt.rand(3).tolist() != first[0]


def test_a_seed_gives_the_same_numbers_in_another_process() -> None:
    program = "import gt; gt.manual_seed(5); print(gt.rand(3).tolist(), gt.randn(5).tolist())"
    gt.manual_seed(5)
    assert output_of(program).strip() == f"{gt.rand(3).tolist()} {gt.randn(5).tolist()}"


def test_without_a_seed_every_session_draws_its_own() -> None:
    program = "import gt; print(gt.rand(4).tolist())"
    assert output_of(program) != output_of(program)


def test_each_draw_differs() -> None:
    assert gt.rand(8).tolist() != gt.rand(8).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_rand_is_uniform(dtype: str) -> None:
    gt.manual_seed(1)
    x = to_numpy(gt.rand(200_000, dtype=dtype_of(dtype)))
    assert x.min() >= 0
    assert x.max() < 1 or dtype in ("float16", "bfloat16")  # Rounding may give 1.
    assert x.max() <= 1
    # The bounds are six standard deviations, for the mean and for the fraction in each tenth.
    assert abs(x.mean() - 0.5) < 6 * np.sqrt(1 / 12 / x.size) + 2e-3 * (dtype in ("float16", "bfloat16"))
    if dtype in ("float32", "float64"):
        counts, _ = np.histogram(x, bins=10, range=(0, 1))
        assert np.abs(counts / x.size - 0.1).max() < 6 * np.sqrt(0.09 / x.size)
        assert len(np.unique(x)) > 0.98 * x.size


@pytest.mark.parametrize("dtype", FLOATS)
def test_randn_is_normal(dtype: str) -> None:
    gt.manual_seed(2)
    x = to_numpy(gt.randn(400, 500, dtype=dtype_of(dtype))).ravel()
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 6 / np.sqrt(x.size)
    assert abs(x.std() - 1) < 6 / np.sqrt(2 * x.size) + 3e-3 * (dtype in ("float16", "bfloat16"))
    for z, below in [(-2, 0.02275), (-1, 0.15866), (0, 0.5), (1, 0.84134), (2, 0.97725)]:
        assert abs((x < z).mean() - below) < 0.01
    assert abs(np.corrcoef(x[0::2], x[1::2])[0, 1]) < 6 / np.sqrt(x.size / 2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_randint_covers_its_range_evenly(dtype: str) -> None:
    gt.manual_seed(3)
    low = 0 if dtype == "uint8" else -3
    x = to_numpy(gt.randint(low, 7, (70_000,), dtype=dtype_of(dtype)))
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == list(range(low, 7))
    assert np.abs(counts * len(values) / x.size - 1).max() < 0.1


def test_randint_takes_one_bound_or_two() -> None:
    assert name_of(gt.randint(5, (3,)).dtype) == "int64"
    assert set(gt.randint(2, 3, (4,)).tolist()) == {2}
    with pytest.raises(RuntimeError, match="expects 'from' to be less than 'to'"):
        gt.randint(3, 3, (1,))


def _philox(seed: int, stream: int, blocks: int) -> np.ndarray:
    """Philox4x32-10 of Salmon et al. 2011, in NumPy: the words of the first blocks."""
    block = np.arange(blocks, dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c = [block & mask, block >> shift, np.full_like(block, stream & 0xFFFFFFFF), np.full_like(block, stream >> 32)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> shift) ^ c[1] ^ np.uint64(k[0]),
            p1 & mask,
            (p0 >> shift) ^ c[3] ^ np.uint64(k[1]),
            p0 & mask,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1).ravel()


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3])
def test_rand_is_philox_keyed_by_seed_and_instruction(seed: int) -> None:
    gt.manual_seed(seed)
    for stream in range(3):
        wanted = (_philox(seed, stream, 250) >> np.uint64(8)) / 2.0**24
        np.testing.assert_array_equal(gt.rand(1000).numpy(), wanted.astype(np.float32))


def test_memory_may_be_laid_out_at_will() -> None:
    spaced = gt.empty_strided((2, 3), (1, 4), dtype=gt.float64, requires_grad=True)
    assert (spaced.stride(), spaced.dtype, spaced.is_leaf, spaced.requires_grad) == ((1, 4), gt.float64, True, True)
    assert gt.ones(1, dtype=gt.int32).new_empty_strided((2,), (3,)).dtype == gt.int32
    assert gt.empty_strided((2, 0), (5, 5)).shape == (2, 0)
    last = gt.empty_permuted((2, 3, 4), (0, 2, 1))
    assert (last.shape, last.stride()) == ((2, 3, 4), (12, 1, 3))
    with pytest.raises(RuntimeError, match="Duplicate dim not allowed"):
        gt.empty_permuted((2, 2), (0, 0))


def test_whole_numbers_like_another_tensor() -> None:
    drawn = gt.randint_like(gt.ones(100, dtype=gt.float64), 3, 5)
    assert drawn.dtype == gt.float64
    assert set(drawn.tolist()) == {3, 4}
    assert gt.randint_like(gt.ones(100), high=2, dtype=gt.int64).max().item() == 1
    with pytest.raises(TypeError, match="one or two bounds"):
        gt.randint_like(gt.ones(1))


def test_type_converts_to_a_dtype_its_name_or_a_class_of_tensors() -> None:
    for kind in (gt.float32, "gt.FloatTensor", gt.FloatTensor):
        assert gt.tensor([1, 2]).type(kind).dtype == gt.float32
    assert gt.tensor([1.5]).type(gt.LongTensor).type() == "gt.LongTensor"
    with pytest.raises(TypeError, match=r"argument 'dtype' must be gt\.dtype, not _TypedTensor"):
        gt.zeros(2, dtype=gt.FloatTensor)


def test_long_lines_are_those_of_numpy_to_the_last_number() -> None:
    for count in (0, 1, 511, 513, 100_003):
        np.testing.assert_array_equal(gt.arange(count).numpy(), np.arange(count))
        np.testing.assert_array_equal(gt.arange(7, 7 - 3 * count, -3).numpy(), np.arange(7, 7 - 3 * count, -3))
        np.testing.assert_array_equal(
            gt.arange(0, count / 4, 0.25, dtype=gt.float64).numpy(), np.arange(count, dtype=np.float64) / 4
        )
        np.testing.assert_array_equal(gt.arange(count, dtype=gt.int16).numpy(), np.arange(count).astype(np.int16))
