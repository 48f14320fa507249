"""Views share another tensor's elements, and writes to them go through, as in PyTorch and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt


def base() -> gt.Tensor:
    return gt.arange(12, dtype=gt.float32).reshape(3, 4).clone()


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1],
        lambda t: t[1:, ::2],
        lambda t: t[:, 1:3],
        lambda t: t.T,
        lambda t: t.T[1],
        lambda t: t[0][1:],
        lambda t: t.reshape(12),
        lambda t: t.reshape(2, 6)[1],
        lambda t: t[None, :, 2],
        lambda t: t[..., -1],
    ],
)
def test_writing_to_a_view_writes_to_its_base(view: Any) -> None:
    t, array = base(), np.arange(12, dtype=np.float32).reshape(3, 4)
    v, w = view(t), view(array)
    v += 100
    w += 100
    assert_close(t, array)
    assert_close(v, w)
    v.zero_()
    w[...] = 0
    assert_close(t, array)
    v[...] = 7
    w[...] = 7
    assert_close(t, array)


def test_writing_to_a_base_is_seen_in_its_views() -> None:
    t = base()
    row, column, turned = t[1], t[:, 0], t.T
    t += 1
    t[1, 0] = -1
    assert row.tolist() == [-1, 6, 7, 8]
    assert column.tolist() == [1, -1, 9]
    assert turned.tolist() == t.T.tolist()


def test_a_temporary_view_writes_too() -> None:
    t = base()
    t[0].zero_()
    t[1].fill_(5)
    t[2].copy_(gt.ones(4))
    t[:, 1].mul_(2)
    t[0, 0].add_(9)
    assert t.tolist() == [[9, 0, 0, 0], [5, 10, 5, 5], [1, 2, 1, 1]]
    t[1] += 1
    t[:, 0] *= 0
    assert t.tolist() == [[0, 0, 0, 0], [0, 11, 6, 6], [0, 2, 1, 1]]


def test_views_of_one_base_see_each_other() -> None:
    t = base()
    left, right = t[:, :3], t[:, 1:]
    left.zero_()
    right += 1
    assert t.tolist() == [[0, 1, 1, 4], [0, 1, 1, 8], [0, 1, 1, 12]]
    assert left.tolist() == [[0, 1, 1]] * 3


def test_view_refuses_shapes_that_need_a_copy() -> None:
    t = base()
    assert t.is_contiguous()
    assert not t.T.is_contiguous()
    assert t.view(2, 6).tolist() == t.reshape(2, 6).tolist()
    assert t[:2].view(8).tolist() == list(range(8))
    with pytest.raises(RuntimeError, match="view size is not compatible with input tensor's size and stride"):
        t.T.view(12)
    flat = t.T.reshape(12)  # A copy, since a view is not possible.
    flat.zero_()
    assert t.sum().item() == 66
    assert t.T.contiguous().view(12).tolist() == t.T.reshape(12).tolist()


def test_strides_are_pytorch_s() -> None:
    t = base()
    assert t.stride() == (4, 1)
    assert t.T.stride() == (1, 4)
    assert t[:, ::2].stride() == (4, 2)
    assert t.T.stride(1) == t.stride(-2) == 4


def test_a_view_keeps_its_base_alive() -> None:
    view = base()[1]
    view += 1
    assert view.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("copy", [lambda t: t.clone(), lambda t: t + 0, lambda t: t.to(gt.float64)])
def test_copies_are_apart(copy: Any) -> None:
    t = base()
    c = copy(t)
    c.zero_()
    assert t.sum().item() == 66
    t.fill_(1)
    assert c.sum().item() == 0


def test_iteration_split_and_chunk_give_views() -> None:
    t = base()
    for row in t:
        row += 1
    for part in t.split(2, dim=1):
        part *= 2
    t.chunk(3)[0].zero_()
    assert t.tolist() == [[0, 0, 0, 0], [10, 12, 14, 16], [18, 20, 22, 24]]


def test_any_sequence_of_views_and_writes_is_numpy_s() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        array = rng.integers(0, 50, (4, 6)).astype(np.float64)
        t = gt.tensor(array)
        arrays, tensors = [array], [t]
        for _ in range(14):
            i = int(rng.integers(0, len(arrays)))
            a, v = arrays[i], tensors[i]
            choice = rng.integers(0, 5)
            if choice == 0 and a.ndim > 1:
                arrays.append(a.T)
                tensors.append(v.T)
            elif choice <= 2 and a.ndim:
                axis = int(rng.integers(0, a.ndim))
                size = a.shape[axis]
                start, stop = sorted(int(x) for x in rng.integers(0, size + 1, 2))
                part: Any = slice(start, stop, int(rng.choice([1, 2, 3])))
                if size and rng.random() < 0.3:
                    part = int(rng.integers(-size, size))
                index = (*(slice(None),) * axis, part)
                if a[index].ndim:  # NumPy's scalars are not views.
                    arrays.append(a[index])
                    tensors.append(v[index])
            elif choice == 3:
                number = float(rng.integers(1, 9))
                a += number
                v += number
            elif a.shape[:1] > (0,):
                values = rng.integers(0, 9, a.shape[1:]).astype(np.float64)
                a[0] = values
                v[0] = gt.tensor(values)
            for one, other in zip(tensors, arrays, strict=True):
                np.testing.assert_array_equal(to_numpy(one), other, err_msg=f"seed {seed}")


# With gradients ---------------------------------------------------------------------------------------------------


def test_a_view_passes_gradients_to_its_base() -> None:
    x = gt.ones(3, 4, requires_grad=True)
    y = x * 2
    row = y[1]
    row *= 3
    y.sum().backward()
    assert x.grad.tolist() == [[2] * 4, [6] * 4, [2] * 4]


def test_a_value_written_through_a_view_gets_its_gradient() -> None:
    x = gt.zeros(3, requires_grad=True)
    source = gt.ones(2, requires_grad=True)
    y = x * 1
    y[1:].copy_(source * 5)
    (y * gt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [1, 0, 0]
    assert source.grad.tolist() == [10, 15]


def test_a_view_that_was_changed_through_its_base_has_the_new_gradient() -> None:
    x = gt.ones(4, requires_grad=True)
    y = x * 2
    head = y[:2]
    y *= 3
    head.sum().backward()
    assert head.tolist() == [6, 6]
    assert x.grad.tolist() == [6, 6, 0, 0]


def test_a_view_of_a_leaf_is_changed_under_no_grad_alone() -> None:
    w = gt.zeros(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        w[0] += 1
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        w[0].zero_()
    with gt.no_grad():
        w[0] += 1
        w[1].fill_(5)
        w.T[1] *= 2
    assert w.tolist() == [[1, 2], [5, 10], [0, 0]]
    assert w.is_leaf
    assert w.requires_grad
    w.data[2] = 3
    w.detach()[0].zero_()
    assert w.tolist() == [[0, 0], [5, 10], [3, 3]]


def test_a_detached_tensor_that_got_a_graph_still_shares_with_its_views() -> None:
    a = gt.ones(3, requires_grad=True)
    d = a.detach()
    d.mul_(a * 3)
    assert d.requires_grad
    assert a.is_leaf
    v = d[:2]
    d.add_(1)
    assert v.tolist() == [4, 4]
    v[0] = 9
    assert a.tolist() == d.tolist() == [9, 4, 4]


def test_results_are_contiguous() -> None:
    assert (base().T + 1).is_contiguous()
    assert (base().T + 1).view(12).shape == (12,)


def test_repeated_elements_are_not_written() -> None:
    wide = gt.zeros(3, 1).expand(3, 4)
    with pytest.raises(RuntimeError, match="single memory location"):
        wide += 1
    with pytest.raises(RuntimeError, match="single memory location"):
        wide[0] = gt.ones(4)
    assert wide.sum().item() == 0


def test_an_expanded_view_is_writable_where_elements_are_distinct() -> None:
    t = gt.zeros(3)
    wide = t.expand(2, 3)
    wide[0] = 1
    wide[1][gt.tensor([0, 2])] = 5
    wide[0, 1:] += gt.tensor([1.0, 2.0])
    assert t.tolist() == [5, 2, 7]
    assert wide.tolist() == [[5, 2, 7]] * 2
    x = gt.ones(3, requires_grad=True)
    y = x * 2
    y.expand(2, 3)[1].mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6, 6]


@pytest.mark.parametrize("dtype", [gt.float32, gt.int64])
@pytest.mark.parametrize(
    ("write", "row", "column"),
    [
        (lambda t: t.masked_fill_(t == 2, 7), [1, 7, 3], [1, 7]),
        (lambda t: t.index_fill_(1, gt.tensor([0, 2]), 7), [7, 2, 7], [7, 7]),
        (lambda t: t.index_put_((gt.tensor([0]),), gt.tensor(7).to(t.dtype)), [7, 7, 7], [7, 2]),
        (lambda t: t.index_put_((gt.tensor([0]),), gt.tensor(7).to(t.dtype), accumulate=True), [8, 9, 10], [22, 2]),
        (lambda t: t.__setitem__(t > 1, 7), [1, 7, 7], [1, 7]),
        (lambda t: t.__setitem__(gt.tensor([1]), 7), [7, 7, 7], [1, 7]),
        (lambda t: t.fill_diagonal_(7), [7, 7, 3], [7, 7]),
        (lambda t: t.tril_(), [1, 0, 0], [0, 0]),
    ],
    ids=["masked_fill_", "index_fill_", "index_put_", "accumulate", "mask", "index", "fill_diagonal_", "tril_"],
)
def test_writing_some_places_of_repeated_elements(
    write: Callable[[gt.Tensor], Any], row: list[int], column: list[int], dtype: gt.dtype
) -> None:
    x = gt.tensor([[1, 2, 3]], dtype=dtype)
    write(x.expand(2, 3))
    assert x.tolist() == [row]
    x = gt.tensor([[1], [2]], dtype=dtype)
    write(x.expand(2, 3))
    assert x.flatten().tolist() == column


def test_writing_a_zero_of_another_sign_and_nan_to_repeated_elements() -> None:
    x = gt.tensor([-0.0, float("nan")])
    x.expand(2, 2).masked_fill_(gt.tensor([[True, False], [False, False]]), 0.0)
    assert (1 / x[0]).item() == float("inf")
    assert x[1].isnan()
    x.expand(2, 2)[gt.tensor([1]), 0] = float("nan")
    assert x.isnan().all()


def test_the_bits_of_repeated_elements_are_written() -> None:
    x = gt.tensor([[1.0], [2.0]])
    mask = gt.tensor([[False, True], [False, False]])
    x.expand(2, 2).view(gt.int32)[mask] = 0x40400000
    assert x.tolist() == [[3], [2]]
    x.view(gt.int32).expand(2, 2).view(gt.float32).masked_fill_(mask.T, -0.0)
    assert x[0].item() == 3
    assert (1 / x[1]).item() == -float("inf")
    bits = x.view(gt.int32)
    bits.zero_()
    bits.expand(2, 3).index_put_((gt.tensor([0, 0]),), gt.tensor(1, dtype=gt.int32), accumulate=True)
    assert bits.tolist() == [[6], [0]]


def test_part_of_overlapping_windows_is_written() -> None:
    x = gt.arange(1, 5)
    x.unfold(0, 3, 1).index_fill_(0, gt.tensor([0]), 9)
    assert x.tolist() == [9, 9, 9, 4]
    x.unfold(0, 3, 1)[gt.tensor([1])] = 5
    assert x.tolist() == [9, 5, 5, 5]


def test_a_diagonal_is_a_view() -> None:
    for offset in range(-4, 5):
        for turned in (False, True):
            t, array = base(), np.arange(12, dtype=np.float32).reshape(3, 4)
            t2, array2 = (t.T, array.T) if turned else (t, array)
            diagonal = t2.diagonal(offset)
            assert_close(diagonal, array2.diagonal(offset))
            diagonal += 100
            np.fill_diagonal(array2[max(-offset, 0) :, max(offset, 0) :], array2.diagonal(offset) + 100)
            assert_close(t, array)
    batch = gt.arange(24).reshape(2, 3, 4)
    assert batch.diagonal(1, 0, 2).tolist() == np.arange(24).reshape(2, 3, 4).diagonal(1, 0, 2).tolist()
    assert batch.diagonal(0, 1, 2).stride() == (12, 5)
    with pytest.raises(RuntimeError, match="identical 1, -2"):
        batch.diagonal(0, 1, -2)


def test_a_tensor_becomes_its_own_view_in_place() -> None:
    t = gt.arange(6.0).reshape(2, 3)
    other = t.view(6)
    assert t.unsqueeze_(0) is t
    assert t.shape == (1, 2, 3)
    assert t.squeeze_().transpose_(0, 1).shape == (3, 2)
    t[0, 1] = 10
    assert other.tolist() == [0, 1, 2, 10, 4, 5]
    assert t.t_().swapaxes_(0, 1).stride() == (1, 3)
    assert t.t_().as_strided_((2, 2), (3, 1)).tolist() == [[0, 1], [10, 4]]
    leaf = gt.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.t_()
    (leaf * 2).t_().unsqueeze_(0)[0, 0].sum().backward()
    assert leaf.grad.tolist() == [[2, 0, 0], [2, 0, 0]]


def test_a_memory_format_says_where_there_is_a_copy_and_what_the_strides_are() -> None:
    images = gt.arange(24.0).reshape(1, 2, 3, 4)
    last = images.to(memory_format=gt.channels_last)
    assert last.stride() == (24, 1, 8, 2)
    assert last.is_contiguous(memory_format=gt.channels_last)
    assert not last.is_contiguous()
    assert last.tolist() == images.tolist()
    last.zero_()
    assert images[0, 1, 2, 3] == 23
    assert last.contiguous(memory_format=gt.channels_last) is last.float(memory_format=gt.channels_last) is last
    assert last.contiguous().stride() == images.stride()
    assert images.clone(memory_format=gt.channels_last).stride() == last.stride()
    assert not images[0].is_contiguous(memory_format=gt.channels_last)
    volumes = gt.zeros(2, 3, 1, 4, 5).contiguous(memory_format=gt.channels_last_3d)
    assert volumes.is_contiguous(memory_format=gt.channels_last_3d)
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        images[0].to(memory_format=gt.channels_last)
    leaf = gt.ones(1, 2, 1, 2, requires_grad=True)
    (leaf.to(memory_format=gt.channels_last) * 3).sum().backward()
    assert leaf.grad.tolist() == [[[[3, 3]], [[3, 3]]]]


def test_resize_keeps_the_first_elements_in_the_same_memory() -> None:
    t = gt.arange(6)
    other = t.view(2, 3)
    assert t.resize_(2, 2) is t
    t[1, 1] = 10
    assert other.tolist() == [[0, 1, 2], [10, 4, 5]]
    assert gt.empty(0).resize_((2, 2)).shape == gt.empty(0).resize_as_(gt.ones(2, 2)).shape == (2, 2)
    with pytest.raises(NotImplementedError, match=r"there are only 4 elements"):
        t.resize_(7)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        gt.ones(2, requires_grad=True).resize_(1)


def test_as_strided_scatter() -> None:
    x, part = gt.zeros(2, 3, requires_grad=True), gt.tensor([1.0, 2.0], requires_grad=True)
    result = gt.as_strided_scatter(x, part, (2,), (3,), 1)
    assert result.tolist() == [[0, 1, 0], [0, 2, 0]]
    result.sum().backward()
    assert x.grad.tolist() == [[1, 0, 1], [1, 0, 1]]
    assert part.grad.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (gt.float32, gt.int32), (gt.uint32, gt.float32), (gt.uint64, gt.float64), (gt.float16, gt.bfloat16),
        (gt.int16, gt.uint16), (gt.int8, gt.uint8),
    ],
)  # fmt: skip
def test_a_view_of_a_dtype_of_the_same_size_shows_the_same_bits(one: gt.dtype, other: gt.dtype) -> None:
    x = gt.tensor([[1, 2, 3], [4, 5, 6]]).to(one)
    copied, bits = x.clone(), x.view(other)
    assert bits.dtype is other
    assert (bits.shape, bits.stride(), bits.storage_offset()) == (x.shape, x.stride(), 0)
    assert bits.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert gt.equal(bits.view(one), x)
    # Writes to the one show in the other.
    x[0, 1] = 6
    assert gt.equal(bits.view(one), x)
    bits.T[1] = bits[:, 0].clone()
    assert x[:, 1].tolist() == x[:, 0].tolist()
    x.view(other)[1:].copy_(copied.view(other)[:1])
    assert x.tolist() == [[1, 1, 3], [1, 2, 3]]
    assert copied.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_bits_of_large_tensors_are_written_through_views() -> None:
    x = gt.zeros(512, 1024)
    bits = x.view(gt.int32)
    bits[3, 4:6] = 0x3F800000
    assert x[3, 3:7].tolist() == [0, 1, 1, 0]
    bits += x.int()
    assert x.view(gt.int32)[3, 5].item() == 0x3F800001
    leaf = gt.ones(2, requires_grad=True)
    assert not leaf.view(gt.int32).requires_grad
    (leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    "name", ["uint8", "int16", "float16", "bfloat16", "float64", "int64", "uint16", "uint64", "complex64", "complex128"]
)
def test_bytes_read_as_a_dtype_of_another_size_are_the_same_memory(name: str) -> None:
    dtype = getattr(gt, name)
    x = gt.zeros(3, 8)
    seen = x.view(dtype)
    assert seen.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert seen.shape == (3, 32 // dtype.itemsize)
    # Every byte of the last element is written, and no other.
    seen.view(gt.uint8)[2, -dtype.itemsize :] = 1
    assert x.view(gt.uint8).sum(1).tolist() == [0, 0, dtype.itemsize]
    assert gt.equal(x.view(dtype).view(gt.uint8), seen.view(gt.uint8))
    # A write to the base shows in the view.
    x[2] = 0
    x[0, 0] = 1.0
    assert seen.view(gt.float32).tolist() == [[1.0] + 7 * [0.0], 8 * [0.0], 8 * [0.0]]
    assert not gt.ones(8, requires_grad=True).view(dtype).requires_grad


def test_parts_and_distances_of_bytes_read_as_another_dtype() -> None:
    x = gt.arange(24, dtype=gt.int32).reshape(4, 6)
    part = x[1::2, 2:].view(gt.int64)
    assert (part.shape, part.stride(), part.storage_offset()) == ((2, 2), (6, 1), 4)
    part[1, 0] = 7 + (9 << 32)
    assert x[3].tolist() == [18, 19, 7, 9, 22, 23]
    # Elements that do not begin at a multiple of their size, where no layout says so.
    assert x.flatten()[1:21].clone().view(gt.int64)[0].item() == 1 + (2 << 32)
    bits = gt.ones(2, 3, dtype=gt.complex64)[:, ::2].view(gt.float64)
    assert (bits.shape, bits.stride()) == ((2, 2), (3, 2))
    large = gt.zeros(512, 1024)
    large.view(gt.uint8)[100, 4:8] = gt.tensor([0, 0, 128, 63], dtype=gt.uint8)
    assert large[100, :3].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (lambda x: x.T.view(gt.int16), r"self.stride\(-1\) must be 1 to view Float as Short .*, but got 8"),
        (lambda x: x[:, 1:5].view(gt.float64), r"self.storage_offset\(\) must be divisible by 2 .*, but got 1"),
        (lambda x: x[:, ::2].view(gt.float64), r"self.stride\(-1\) must be 1 to view Float as Double .*, but got 2"),
        (lambda x: x[:, :7].view(gt.float64), r"self.size\(-1\) must be divisible by 2 .*, but got 7"),
        (
            lambda x: x.flatten()[:21].view(3, 7)[:, :4].view(gt.float64),
            r"self.stride\(0\) must be divisible by 2 .* 7",
        ),
        (lambda x: x[0, 0].view(gt.int16), r"self.dim\(\) cannot be 0"),
    ],
)
def test_bytes_that_are_no_elements_of_another_dtype(part: Callable[[gt.Tensor], gt.Tensor], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        part(gt.zeros(3, 8))


def test_a_gradient_flows_to_what_is_written_to_bits() -> None:
    x = gt.zeros(2, 2, dtype=gt.int32)
    seen = x.view(gt.float32)
    factor = gt.tensor(3.0, requires_grad=True)
    seen[0] = factor * 2
    assert (seen.requires_grad, x.requires_grad) == (True, False)
    seen.sum().backward()
    assert factor.grad.item() == 4
    assert x.view(gt.float32).tolist() == [[6, 6], [0, 0]]


def test_a_tensor_with_more_axes_than_a_part_of_it_is_not_assigned_to_the_part() -> None:
    column = gt.tensor([1.5, 0.75]).reshape(2, 1)
    with pytest.raises(RuntimeError, match=r"shape|size"):
        column[:, -1] = column
    column[:, :] = column[None]
    assert column.tolist() == [[1.5], [0.75]]
