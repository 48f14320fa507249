"""A tensor's place on the tape, its gradient, hooks and storage are PyTorch's, and so are its errors."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from support import output_of

import gt


def leaf(*shape: int) -> gt.Tensor:
    return gt.ones(*shape, requires_grad=True)


SHAPES = {
    "t_": ((), (3, 2)),
    "transpose_": ((0, 1), (3, 2)),
    "swapaxes_": ((0, 1), (3, 2)),
    "swapdims_": ((0, 1), (3, 2)),
    "squeeze_": ((), (2, 3)),
    "unsqueeze_": ((0,), (1, 2, 3)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_leaf_that_changes_its_shape_without_recording_stays_a_leaf(name: str) -> None:
    arguments, shape = SHAPES[name]
    p = leaf(2, 3)
    with gt.no_grad():
        assert getattr(p, name)(*arguments) is p
    assert p.requires_grad
    assert p.is_leaf
    (p * 2)[0].sum().backward()
    assert p.grad.shape == shape
    assert p.grad.sum().item() == 2 * p[0].numel()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        getattr(p, name)(*arguments)


def test_a_turned_leaf_shares_elements_with_its_views() -> None:
    p = leaf(2, 3)
    with gt.no_grad():
        p.t_()
        p[0].mul_(5)
    assert p.tolist() == [[5.0, 5.0], [1.0, 1.0], [1.0, 1.0]]
    row = p[0]
    (row * row).sum().backward()
    assert p.grad.tolist() == [[10.0, 10.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_computed_tensor_that_changes_its_shape_keeps_its_history() -> None:
    p = leaf(2, 3)
    q = p * 3
    q.t_()
    (q * q).sum().backward()
    assert q.shape == (3, 2)
    assert p.grad.tolist() == [[18.0] * 3] * 2


def test_a_leaf_keeps_its_gradient_when_it_requires_none_any_more() -> None:
    p = leaf(2)
    (p * 2).sum().backward()
    p.requires_grad_(False)
    assert p.grad.tolist() == [2.0, 2.0]
    p.add_(1)
    assert p.grad.tolist() == [2.0, 2.0]
    p.requires_grad_(True)
    p.sum().backward()
    assert p.grad.tolist() == [3.0, 3.0]


def test_no_gradient_reaches_a_leaf_that_requires_none_any_more() -> None:
    p = leaf(2)
    y = (p * 2).sum()
    p.requires_grad_(False)
    y.backward()
    assert p.grad is None


def test_any_tensor_may_hold_a_gradient() -> None:
    x = gt.ones(2)
    x.grad = gt.tensor([3.0, 4.0])
    assert x.grad.tolist() == [3.0, 4.0]
    assert not x.requires_grad
    whole = gt.ones(2, dtype=gt.int64)
    whole.grad = gt.ones(2, dtype=gt.int64)
    assert whole.grad.dtype == gt.int64
    with pytest.raises(RuntimeError, match="assigned grad has data of a different size"):
        x.grad = gt.ones(3)


def test_retain_grad_does_nothing_to_a_leaf() -> None:
    p = leaf(2)
    p.retain_grad()
    (p * p).sum().backward()
    assert not p.retains_grad
    assert p.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("write", [lambda q: q.mul_(3), lambda q: q[:].mul_(3), lambda q: q.__imul__(3)])
def test_a_tensor_retains_its_gradient_after_an_in_place_operation(write) -> None:
    p = leaf(2)
    q = p * 2
    q.retain_grad()
    write(q)
    assert q.retains_grad
    (q * q).sum().backward()
    assert q.grad.tolist() == [12.0, 12.0]
    assert p.grad.tolist() == [72.0, 72.0]


OVERWRITES = {
    "zero_": lambda q: q.zero_(),
    "fill_": lambda q: q.fill_(3),
    "copy_": lambda q: q.copy_(gt.zeros(2)),
    "eq_": lambda q: q.eq_(2),
    "lt_": lambda q: q.lt_(5),
    "uniform_": lambda q: q.uniform_(),
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_an_overwritten_tensor_stays_on_the_tape_with_a_gradient_of_zeros(name: str) -> None:
    p = leaf(2)
    q = p * 2
    OVERWRITES[name](q)
    assert q.requires_grad
    assert not q.is_leaf
    (q * q).sum().backward()
    assert p.grad.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        OVERWRITES[name](p)


def test_a_view_of_what_is_overwritten_has_its_gradient() -> None:
    p = leaf(4)
    q = p * 2
    half = q[:2]
    q.zero_()
    (half + 1).sum().backward()
    assert p.grad.tolist() == [0.0] * 4
    p.grad = None
    q = p * 2
    q[:2].fill_(7)
    (q * 3).sum().backward()
    assert p.grad.tolist() == [0.0, 0.0, 6.0, 6.0]


def test_a_copied_tensor_gets_the_gradient_and_the_overwritten_one_zeros() -> None:
    p, r = leaf(2), leaf(2)
    q = r * 1
    q.copy_(p * 2)
    (q * q).sum().backward()
    assert p.grad.tolist() == [8.0, 8.0]
    assert r.grad.tolist() == [0.0, 0.0]


def test_logical_operations_in_place_leave_the_graph_as_it_is() -> None:
    p = leaf(2)
    p.logical_not_()
    assert p.tolist() == [0.0, 0.0]
    assert p.requires_grad


HOOKS = {
    "size": (lambda g: g.sum(), RuntimeError, "hook '<lambda>' has changed the size of value"),
    "type": (
        lambda g: g.double(),
        RuntimeError,
        r"has changed the type of value \(was gt.FloatTensor got gt.DoubleTensor",
    ),
    "int": (lambda _: 3, TypeError, "expected Variable, but hook returned 'int'"),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("of_leaf", [False, True])
def test_a_hook_cannot_change_what_a_gradient_is(name: str, of_leaf: bool) -> None:
    hook, kind, message = HOOKS[name]
    p = leaf(3)
    q = p * 2
    (p if of_leaf else q).register_hook(hook)
    with pytest.raises(kind, match=message):
        q.sum().backward()


def test_data_takes_over_a_storage() -> None:
    x, new = leaf(2), gt.tensor([3.0, 4.0])
    part, old = x.detach()[:1], x.detach()
    x.data = new
    assert x.requires_grad
    assert x.tolist() == [3.0, 4.0]
    with gt.no_grad():
        x[1] = 7
    new[0] = 9
    assert x.tolist() == new.tolist() == [9.0, 7.0]
    assert (part.tolist(), old.tolist()) == ([1.0], [1.0, 1.0])


def test_data_may_change_shape_and_dtype() -> None:
    x = leaf(2)
    x.data = gt.zeros(3, 3, dtype=gt.float64)
    x[0].sum().backward()
    assert x.grad.dtype == gt.float64
    assert x.grad.tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3]
    with pytest.raises(RuntimeError, match="data set to a tensor that requires gradients must be floating point"):
        x.data = gt.zeros(2, dtype=gt.int64)
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        x.data = 3


def test_data_of_a_gradient_is_that_of_the_next_reading() -> None:
    p = leaf(2)
    p.sum().backward()
    p.grad.data = gt.tensor([5.0, 6.0])
    assert p.grad.tolist() == [5.0, 6.0]


def test_a_copy_shares_the_elements() -> None:
    base = gt.zeros(3)
    view = base[:2]
    view.note = "kept"
    copied = copy.copy(view)
    copied[0] = 7
    assert base.tolist() == [7.0, 0.0, 0.0]
    assert copied.note == "kept"
    p = gt.nn.Parameter(gt.ones(2))
    other = copy.copy(p)
    with gt.no_grad():
        other[0] = 4
    assert isinstance(other, gt.nn.Parameter)
    assert p.tolist() == [4.0, 1.0]
    assert copy.copy(p * 2).is_leaf


def test_flatten_of_one_axis_is_the_tensor_itself() -> None:
    x = leaf(3)
    assert x.flatten() is x
    assert gt.flatten(x) is x
    assert gt.zeros(2, 3).flatten(1, 1).shape == (2, 3)


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.movedim(0, 0), lambda x: x.transpose(0, 0)])
def test_a_view_that_changes_nothing_is_a_tensor_of_its_own(view) -> None:
    x = leaf(3)
    y = view(x)
    assert not y.is_leaf
    plain = gt.ones(3)
    view(plain).requires_grad_()
    assert not plain.requires_grad


def test_an_expanded_tensor_can_be_filled() -> None:
    x = gt.zeros(2, 1)
    wide = x.expand(2, 3)
    wide[0].fill_(4)
    assert x.tolist() == [[4.0], [0.0]]
    wide[:] = 5
    assert wide.tolist() == [[5.0] * 3] * 2
    assert x.zero_().tolist() == [[0.0], [0.0]]
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        wide.add_(1)
    with pytest.raises(RuntimeError, match="fill_ only supports 0-dimension value tensor but got tensor with 1 dim"):
        x.fill_(gt.ones(1))


def test_storage_offsets_are_those_of_pytorch() -> None:
    x = gt.arange(24).reshape(2, 3, 4)
    for view, offset in [(x, 0), (x[1], 12), (x[1, 2:], 20), (x[:, 1, 1::2], 5), (x.permute(2, 0, 1)[3], 3),
                         (x.diagonal(1, 0, 1), 4), (x.unfold(2, 2, 1)[0, 0, 1], 1), (x[1].detach(), 12),
                         (x[1].clone(), 0), (x.as_strided((2, 2), (1, 1), 3), 3), (x[1].as_strided((2,), (1,), 13), 13),
                         (x.expand(5, 2, 3, 4)[4, 1], 12), (x[[1]], 0)]:  # fmt: skip
        assert view.storage_offset() == offset
    assert x[1].as_strided((2,), (1,), 13).tolist() == [13, 14]


SECOND = {
    "deg2rad": lambda x: x.deg2rad(),
    "remainder": lambda x: gt.remainder(x, 2.0),
    "fmod": lambda x: gt.fmod(x, 2.0),
    "tril": lambda x: x.reshape(1, 2).tril(),
    "triu": lambda x: x.reshape(1, 2).triu(),
    "addcmul": lambda x: gt.addcmul(x, gt.ones(2), gt.ones(2)),
}


@pytest.mark.parametrize("name", SECOND)
def test_what_saves_nothing_can_be_walked_twice(name: str) -> None:
    x = gt.tensor([1.25, 2.5], requires_grad=True)
    y = SECOND[name](x)
    y.sum().backward()
    once = x.grad.clone()
    y.backward(gt.ones_like(y))
    np.testing.assert_allclose(x.grad.numpy(), 2 * once.numpy())


@pytest.mark.parametrize("function", [lambda x: x * 3, lambda x: x / 3, lambda x: x.exp(), lambda x: x * x])
def test_what_saves_a_tensor_cannot_be_walked_twice(function) -> None:
    y = function(leaf(2))
    y.backward(gt.ones(2))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward(gt.ones(2))


def test_classes_out_of_range_are_errors() -> None:
    for index, classes in (([3], 2), ([-1], 2), ([0], 0), ([-1], -1)):
        with pytest.raises(RuntimeError):
            gt.nn.functional.one_hot(gt.tensor(index), classes).tolist()
    with pytest.raises(RuntimeError, match="only applicable to index tensor of type LongTensor"):
        gt.nn.functional.one_hot(gt.tensor([1.0]))
    assert gt.nn.functional.one_hot(gt.tensor([[1], [0]]), 3).tolist() == [[[0, 1, 0]], [[1, 0, 0]]]


def test_sums_of_nothing_and_mixed_dtypes() -> None:
    assert gt.logsumexp(gt.zeros(3, 0), 1).tolist() == [-np.inf] * 3
    assert gt.logsumexp(gt.zeros(0), 0).item() == -np.inf
    assert gt.searchsorted(gt.tensor([1.0, 2.0, 3.0]), gt.tensor([2])).tolist() == [1]
    assert gt.bucketize(gt.tensor([2]), gt.tensor([1.5, 2.5])).tolist() == [1]
    with pytest.raises(NotImplementedError, match="Subtraction"):
        gt.ones(2, dtype=gt.bool) - gt.ones(2, dtype=gt.bool)


@pytest.mark.parametrize("name", ["gelu", "softplus", "logsigmoid", "hardshrink", "softshrink"])
def test_activations_write_to_out(name: str) -> None:
    function = getattr(gt.nn.functional, name)
    x, out = gt.tensor([1.0, -2.0]), gt.empty(2)
    assert function(x, out=out) is out
    assert out.tolist() == function(x).tolist()
    assert gt.nn.functional.linear(x, gt.ones(2, 2), out=out).tolist() == [-1.0, -1.0]


def test_bytes_are_read_as_another_dtype() -> None:
    x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    array = x.numpy()
    for name in ("int8", "uint8", "int16", "int32", "int64", "float16", "float64"):
        seen = x.view(getattr(gt, name))
        assert seen.shape == array.view(name).shape
        np.testing.assert_array_equal(seen.numpy(), array.view(name))
    assert x.view(gt.float32) is x
    assert gt.tensor([True, False]).view(gt.uint8).tolist() == [1, 0]
    assert gt.tensor([1.0]).view(gt.bfloat16).tolist() == [0.0, 1.0]
    with pytest.raises(RuntimeError, match="cannot be 0 to view Float as Double"):
        gt.tensor(1.0).view(gt.float64)
    with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by 2 to view Int as Long .*, but got 3"):
        gt.arange(3, dtype=gt.int32).view(gt.int64)


def test_dtypes_of_results_are_those_of_pytorch() -> None:
    assert gt.ones(2, dtype=gt.uint8).any().dtype == gt.uint8
    assert gt.ones(2, dtype=gt.uint8).all(0).dtype == gt.uint8
    assert gt.ones(2, dtype=gt.int8).any().dtype == gt.bool
    assert gt.hypot(gt.tensor([3.0]), gt.tensor([4])).tolist() == [5.0]
    assert gt.hypot(gt.tensor([3]), gt.tensor([4.0])).tolist() == [5.0]
    with pytest.raises(RuntimeError, match="expected dtype"):
        gt.lerp(gt.ones(1), gt.ones(1, dtype=gt.int64), 0.5)


# Names of GT's own -------------------------------------------------------------------------------------------------


def test_from_numpy_may_require_a_gradient() -> None:
    x = gt.from_numpy(np.ones(2, np.float32), requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        gt.from_numpy(np.ones(2, np.int64), requires_grad=True)


def test_a_parameter_can_be_stepped_outside_no_grad() -> None:
    p = leaf(2)
    (p * 2).sum().backward()
    p -= 0.5 * p.grad
    p += p.grad
    assert p.tolist() == [2.0, 2.0]
    assert p.is_leaf
    assert p.requires_grad
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        p -= p * 2
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        p *= 2


def test_a_program_for_pytorch_gets_its_error_instead() -> None:
    program = (
        "import gt.torch; gt.torch.install(); import torch\n"
        "p = torch.ones(2, requires_grad=True)\n"
        "try: p -= 1\n"
        "except RuntimeError as error: print(error)\n"
    )
    assert "a leaf Variable that requires grad is being used in an in-place operation" in output_of(program)


def test_transpose_without_axes_exchanges_the_last_two() -> None:
    assert gt.tensor([[1, 2, 3], [4, 5, 6]]).transpose().tolist() == [[1, 4], [2, 5], [3, 6]]
    assert gt.zeros(2, 3, 4).transpose().shape == (2, 4, 3)
    with pytest.raises(TypeError):
        gt.zeros(2, 3).transpose(0)


def test_worker_stats_name_each_worker() -> None:
    x = gt.ones(1000)
    stats = gt.debug.get_worker_stats()
    assert stats
    for worker in stats.values():
        assert worker["kind"]
        assert "collectives" in worker
    assert sum(worker["session_bytes_peak"] for worker in stats.values()) >= x.nbytes


# Memory ------------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum of bools": (gt.bool, lambda x: x.sum()),
    "sum of bytes along an axis": (gt.uint8, lambda x: x.sum(0)),
    "product of int8": (gt.int8, lambda x: x.prod()),
    "count of nonzero bools": (gt.bool, lambda x: x.count_nonzero()),
    "sum of float32 in float64": (gt.float32, lambda x: x.sum(dtype=gt.float64)),
    "mean of bytes in float32": (gt.uint8, lambda x: x.mean(dtype=gt.float32)),
    "sum of float16 in float64": (gt.float16, lambda x: x.sum(1, dtype=gt.float64)),
}


def held(key: str) -> int:
    """The bytes that the session holds, or held at most, on all workers."""
    return sum(worker[key] for worker in gt.debug.get_worker_stats().values())


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_in_another_dtype_makes_no_copy(name: str) -> None:
    dtype, reduce = REDUCTIONS[name]
    x = (gt.arange(1 << 20).reshape(1024, 1024) % 2).to(dtype)
    for worker in gt.debug.get_worker_stats():
        gt._gt.reset_peak(worker)
    before = held("session_bytes")
    found = reduce(x)
    assert held("session_bytes_peak") - before < x.nbytes / 2
    expected = {"product of int8": 0.0, "mean of bytes in float32": 0.5}.get(name, 2.0**19)
    assert found.sum().item() == expected


@pytest.mark.parametrize("name", ["sum", "mean", "prod"])
def test_gradients_flow_through_a_reduction_in_another_dtype(name: str) -> None:
    x = gt.tensor([2.0, 4.0], dtype=gt.bfloat16, requires_grad=True)
    getattr(x, name)(dtype=gt.float32).backward()
    assert x.grad.dtype == gt.bfloat16
    assert x.grad.tolist() == {"sum": [1.0, 1.0], "mean": [0.5, 0.5], "prod": [4.0, 2.0]}[name]


def test_a_tensor_with_enough_axes_is_returned_as_it_is() -> None:
    x = gt.zeros(1, 2, 3)
    assert gt.atleast_1d(x) is x
    assert gt.atleast_2d(x) is x
    assert gt.atleast_3d(x) is x
    assert gt.atleast_2d(x[0, 0]) is not x[0, 0]


def test_a_retained_gradient_is_replaced_by_a_sum_outside_of_the_tape() -> None:
    x = gt.tensor([2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    gt.autograd.grad((y * y).sum(), x, create_graph=True)
    assert y.grad is not None
    assert y.grad.requires_grad
    (y * y).sum().backward()
    assert y.grad.tolist() == [24]
    assert not y.grad.requires_grad
