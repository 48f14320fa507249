"""Invalid input: PyTorch's exception class and message, at the line at fault; the session remains usable.

Errors that only execution finds are raised where the value is fetched, and name the op.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import gt
from gt import distributions as dist
from gt import optim

z = gt.zeros


def _set_itself(x: gt.Tensor) -> None:
    x[:, None] = x


def _leaf() -> gt.Tensor:
    return z(2, requires_grad=True)


CASES: list[tuple[str, Callable[[], object], type[Exception] | tuple[type[Exception], ...], str]] = [
    # Shapes
    ("broadcast", lambda: z(2, 3) + z(4), RuntimeError,
     r"The size of tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1"),
    ("matmul", lambda: z(3, 4) @ z(5, 6), RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(3x4 and 5x6\)"),
    ("matmul of scalars", lambda: z(()) @ z(2), RuntimeError, "both arguments to matmul need to be at least 1D"),
    ("dot", lambda: z(2) @ z(3), RuntimeError, "inconsistent tensor size"),
    ("matrix times vector", lambda: z(2, 3) @ z(4), RuntimeError, "size mismatch"),
    ("batches", lambda: z(2, 3, 4) @ z(3, 4, 5), RuntimeError, r"must match the size of tensor b"),
    ("reshape", lambda: z(2).reshape(3), RuntimeError, r"shape '\[3\]' is invalid for input of size 2"),
    ("reshape by -1", lambda: z(5).view(2, -1), RuntimeError, r"shape '\[2, -1\]' is invalid for input of size 5"),
    ("two -1", lambda: z(4).view(-1, -1), RuntimeError, "only one dimension can be inferred"),
    ("expand", lambda: z(2).expand(3), RuntimeError,
     r"The expanded size of the tensor \(3\) must match the existing size \(2\)"),
    ("cat of nothing", lambda: gt.cat([]), (RuntimeError, ValueError), "expected a non-empty list of Tensors"),
    ("cat of sizes", lambda: gt.cat([z(1, 2), z(1, 3)]), RuntimeError,
     "Sizes of tensors must match except in dimension 0. Expected size 2 but got size 3 for tensor number 1"),
    ("cat of ranks", lambda: gt.cat([z(2), z(2, 2)]), RuntimeError,
     "Tensors must have same number of dimensions: got 1 and 2"),
    ("cat of scalars", lambda: gt.cat([z(()), z(())]), RuntimeError,
     "zero-dimensional tensor .* cannot be concatenated"),
    ("stack", lambda: gt.stack([z(1), z(2)]), RuntimeError, "stack expects each tensor to be equal size"),
    ("split", lambda: z(5).split([2, 2]), RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 5"),
    ("chunk", lambda: z(5).chunk(0), RuntimeError, "chunk expects `chunks` to be greater than 0"),
    ("in place", lambda: z(2).add_(z(3)), RuntimeError, "must match the size of tensor b"),
    ("copy_", lambda: z(2).copy_(z(3)), RuntimeError, "size|shape"),
    ("assignment", lambda: z(4).__setitem__(slice(0, 2), z(3)), RuntimeError, "shape mismatch|must match"),
    ("itself assigned", lambda: _set_itself(z(4, 2, 3).expand(4, 2, 3)), RuntimeError, "shape mismatch|must match"),
    ("too many dimensions", lambda: z([1] * 9), (RuntimeError, ValueError), "at most 8 dimensions"),
    ("negative size", lambda: z(-1), RuntimeError, "negative"),
    ("linear", lambda: gt.nn.Linear(3, 4)(z(2, 5)), RuntimeError,
     r"mat1 and mat2 shapes cannot be multiplied \(2x5 and 3x4\)"),
    # Axes
    ("axis", lambda: z(2).sum(5), IndexError,
     r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 5\)"),
    ("axis of softmax", lambda: z(2).softmax(3), IndexError, "Dimension out of range"),
    ("axis of transpose", lambda: z(2, 3).transpose(0, 3), IndexError, r"range of \[-2, 1\], but got 3"),
    ("axis of squeeze", lambda: z(2, 3).squeeze(-3), IndexError, r"range of \[-2, 1\], but got -3"),
    ("axis twice", lambda: z(2, 2).sum((0, 0)), RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("permute twice", lambda: z(2, 3).permute(0, 0), RuntimeError, "duplicate"),
    ("permute too few", lambda: z(2, 3).permute(0), RuntimeError, "does not match the length"),
    ("axis that is a word", lambda: z(2).sum(dim="a"), TypeError, "int|axis|dim"),
    ("max of nothing", lambda: z(0).max(), RuntimeError, "Expected reduction dim to be specified for input.numel"),
    ("argmax of nothing", lambda: z(0).argmax(), IndexError, "Expected reduction dim to be specified for input.numel"),
    ("amax along nothing", lambda: z(2, 0).amax(1), IndexError, "to have non-zero size"),
    # Indices
    ("index", lambda: z(2)[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    ("negative index", lambda: z(2, 3)[0, -4], IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
    ("too many indices", lambda: z(2)[0, 0], IndexError, "too many indices for tensor of dimension 1"),
    ("index of a scalar", lambda: z(())[0], IndexError, "too many indices|0-dim"),
    ("two ellipses", lambda: z(2)[..., ...], IndexError, "single ellipsis"),
    ("float index", lambda: z(2)[1.5], (IndexError, TypeError), "integers, slices"),
    ("word index", lambda: z(2)["a"], (IndexError, TypeError), "integers, slices"),
    ("slice step", lambda: z(2)[::0], ValueError, "slice step cannot be zero"),
    ("gather's dtype", lambda: z(2).gather(0, z(1)), RuntimeError, "int64"),
    # Dtypes
    ("matmul of dtypes", lambda: z(2, 2) @ z(2, 2, dtype=gt.float64), RuntimeError,
     "expected m1 and m2 to have the same dtype, but got: Float != Double"),
    ("mean of integers", lambda: gt.tensor([1, 2]).mean(), RuntimeError,
     r"mean\(\): could not infer output dtype. Input dtype must be either a floating point or complex .* Got: Long"),
    ("mean into integers", lambda: gt.ones(2, requires_grad=True).mean(dtype=gt.int64), NotImplementedError,
     r"Optional dtype must be either a floating point or complex dtype. Got: Long"),
    ("var of integers", lambda: gt.tensor([1, 2]).var(), RuntimeError, "only support floating point"),
    ("minus of bools", lambda: gt.tensor([True]) - gt.tensor([True]), RuntimeError, "Subtraction, the `-` operator"),
    ("negative bool", lambda: -gt.tensor([True]), RuntimeError,
     "Negation, the `-` operator, on a bool tensor is not supported"),
    ("not of floats", lambda: ~z(2), TypeError,
     r"~ \(operator.invert\) is only implemented on integer and Boolean-type tensors"),
    ("where's condition", lambda: gt.where(z(2), 1.0, 2.0), RuntimeError,
     "where expected condition to be a boolean tensor"),
    ("negative integer power", lambda: gt.tensor([2]) ** -1, RuntimeError,
     "Integers to negative integer powers are not allowed"),
    ("in-place float on integers", lambda: gt.tensor([1]).mul_(0.5), RuntimeError,
     "result type Float can't be cast to the desired output type Long"),
    ("a dtype that is a word", lambda: z(2, dtype="wide"), TypeError, "dtype"),
    ("randn of integers", lambda: gt.randn(2, dtype=gt.int64), (RuntimeError, NotImplementedError),
     "not implemented for 'Long'"),
    # Python objects
    ("a ragged list", lambda: gt.tensor([[1, 2], [3]]), ValueError,
     r"expected sequence of length 2 at dim 1 \(got 1\)"),
    ("a ragged depth", lambda: gt.tensor([[1], 2]), (TypeError, ValueError), ""),
    ("a word", lambda: gt.tensor("a"), (TypeError, ValueError), "str"),
    ("words", lambda: gt.tensor([1, "a"]), (TypeError, ValueError), "str"),
    ("nothing", lambda: gt.tensor(None), (TypeError, RuntimeError), "None"),
    ("a number too large", lambda: gt.tensor([2**70]), (ValueError, RuntimeError, OverflowError), ""),
    ("a list for an array", lambda: gt.from_numpy([1]), TypeError, "list"),
    ("an array of words", lambda: gt.from_numpy(np.array(["a"])), TypeError, "can't convert|support"),
    ("an array of long doubles", lambda: gt.from_numpy(np.ones(1, np.longdouble)), TypeError, "can't convert|support"),
    ("plus a word", lambda: z(2) + "a", TypeError, "unsupported operand type|str"),
    ("plus nothing", lambda: None + z(2), TypeError, "unsupported operand type|None"),
    ("exp of a number", lambda: gt.exp(5.0), TypeError, "Tensor"),
    ("relu of a word", lambda: gt.relu("a"), TypeError, "Tensor|str"),
    ("an attribute", lambda: z(2).nothing, AttributeError, "Tensor' object has no attribute 'nothing'"),
    # One element
    ("item of many", lambda: z(2, 3).item(), RuntimeError, "a Tensor with 6 elements cannot be converted to Scalar"),
    ("item of none", lambda: z(0).item(), RuntimeError, "a Tensor with 0 elements cannot be converted to Scalar"),
    ("float of many", lambda: float(z(2)), (ValueError, RuntimeError), "converted to"),
    ("int of many", lambda: int(z(2)), (ValueError, RuntimeError), "converted to"),
    ("bool of many", lambda: bool(z(2)), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
    ("len of a scalar", lambda: len(z(())), TypeError, r"len\(\) of a 0-d tensor"),
    ("loop over a scalar", lambda: list(z(())), TypeError, "iteration over a 0-d tensor"),
    ("index by a float", lambda: [1, 2][gt.tensor(1.0)], TypeError, "integer"),
    # Creation
    ("arange without a step", lambda: gt.arange(1, 2, 0), RuntimeError, "step must be nonzero"),
    ("arange the wrong way", lambda: gt.arange(5, 1), RuntimeError,
     "upper bound and lower bound inconsistent with step sign"),
    ("eye", lambda: gt.eye(-1), RuntimeError, "n must be greater or equal to 0, got -1"),
    ("linspace", lambda: gt.linspace(0, 1, -1), RuntimeError, "number of steps must be non-negative"),
    ("linspace from several numbers", lambda: gt.linspace(z(2), 1, 3), RuntimeError,
     r"'start' \(position 1\) must be Number or a tensor of one such element, not a tensor of gt.float32 with "
     r"shape \[2\]"),
    ("narrow by a mask", lambda: gt.narrow(z(2), 0, gt.tensor(True), 1), RuntimeError,
     r"'start' \(position 3\) must be int or a tensor of one such element, not a tensor of gt.bool with shape \[\]"),
    # Autograd
    ("backward of many", lambda: (_leaf() * 2).backward(), RuntimeError,
     "grad can be implicitly created only for scalar outputs"),
    ("backward of no graph", lambda: z(()).backward(), RuntimeError,
     "does not require grad and does not have a grad_fn"),
    ("numpy of a graph", lambda: _leaf().numpy(), RuntimeError,
     r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\).numpy\(\) instead."),
    ("in place on a leaf", lambda: _leaf().add_(1), RuntimeError, "a leaf Variable that requires grad"),
    ("retain_grad", lambda: z(2).retain_grad(), RuntimeError,
     "can't retain_grad on Tensor that has requires_grad=False"),
    # Distributions
    ("a parameter by name", lambda: dist.Normal("0", 1.0), ValueError, "Number or gt.Tensor, but got str"),
    ("a list of probabilities", lambda: dist.Categorical([0.5, 0.5]), TypeError,
     "`probs` parameter must be a Tensor, but got list: use gt.tensor"),
    ("a number as concentration", lambda: dist.Dirichlet(1.0), TypeError, "`concentration` .* but got float"),
    ("a number of samples", lambda: dist.Normal(0.0, 1.0).sample(3), TypeError,
     r"sample_shape must be a sequence of sizes, such as \(5,\), but got 3"),
    ("a number of categories", lambda: dist.Categorical(gt.ones(2)).sample(3), TypeError, "sample_shape must be"),
    ("the density of a number", lambda: dist.Normal(0.0, 1.0).log_prob(0.3), ValueError, "Tensor, but got float"),
    ("gradients of counts", lambda: dist.Poisson(1.0).rsample(), NotImplementedError,
     "Poisson'> does not implement rsample"),
    ("the CDF of counts", lambda: dist.Poisson(1.0).cdf(z(1)), NotImplementedError, "does not implement cdf"),
    ("a slope of many to one", lambda: dist.transforms.AbsTransform().log_abs_det_jacobian(z(1), z(1)),
     NotImplementedError, "AbsTransform does not implement log_abs_det_jacobian"),
    # Optimizers
    ("a module", lambda: optim.SGD(gt.nn.Linear(2, 2)), TypeError, r"but got Linear: pass its parameters\(\)"),
    ("a learning rate in quotes", lambda: optim.SGD([_leaf()], lr="0.1"), TypeError,
     "SGD: lr must be a number, but got '0.1'"),
    ("one beta", lambda: optim.Adam([_leaf()], betas=0.9), TypeError, "betas must be two numbers, but got 0.9"),
    ("one epsilon", lambda: optim.Adafactor([_leaf()], eps=1e-3), TypeError, "eps must be two numbers, but got 0.001"),
    ("a seed in quotes", lambda: gt.manual_seed("7"), TypeError, r"manual_seed\(\) takes an int, but got str"),
]  # fmt: skip


@pytest.mark.parametrize(("provoke", "kind", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_error_says_what_is_wrong_and_leaves_the_session_alone(
    provoke: Callable[[], object], kind: type[Exception], message: str
) -> None:
    bystander = gt.ones(2)
    with pytest.raises(kind) as caught:
        provoke()
    assert re.search(message, str(caught.value)), str(caught.value)
    assert str(caught.value)
    assert (bystander + 1).tolist() == [2, 2]


# Found by execution ----------------------------------------------------------------------------------------------


def test_integer_division_by_zero_is_found_when_it_runs() -> None:
    for result in (gt.tensor([1, 2]) // gt.tensor([1, 0]), gt.tensor([1]) % gt.tensor([0]), gt.tensor([5]) // 0):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            result.tolist()


def test_results_of_a_poisoned_tensor_are_poisoned() -> None:
    failed = gt.tensor([1]) // gt.tensor([0])
    for derived in (failed + 1, gt.cat([failed, failed]).sum(), failed.reshape(1, 1)):
        with pytest.raises(RuntimeError, match=r"floor_divide \(instruction #\d+\): ZeroDivisionError"):
            derived.tolist()
    # The tensor stays poisoned, and others are unaffected.
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        failed.tolist()
    assert gt.ones(2).sum().item() == 2


def test_an_index_out_of_range_is_an_error_of_either_class() -> None:
    for result in (gt.ones(2).gather(0, gt.tensor([5])), gt.zeros(2).scatter(0, gt.tensor([5]), 1.0)):
        with pytest.raises(gt.OutOfRangeError, match="index 5 is out of bounds for dimension 0 with size 2") as caught:
            result.tolist()
        assert isinstance(caught.value, IndexError)
        assert isinstance(caught.value, RuntimeError)


def test_an_index_error_names_the_call_and_the_index_as_it_was_given() -> None:
    rows, x = gt.tensor([0, -4]), gt.zeros(3, 2)
    put, added = gt.zeros(3, 2), gt.zeros(3, 2)
    put.index_put_((rows,), gt.ones(2))
    added.index_put_((rows,), gt.ones(2), accumulate=True)
    for name, result in (("index", x[rows]), ("index", x[:, rows]), ("index_put", put), ("index_put_add", added)):
        with pytest.raises(IndexError, match=rf"^{name} \(instruction #\d+\): .*index -4 is out of bounds"):
            result.tolist()


def test_an_error_that_is_never_fetched_harms_nothing() -> None:
    for _ in range(100):
        gt.tensor([1]) // gt.tensor([0])
    gt.synchronize()
    assert gt.ones(2).sum().item() == 2


def test_more_memory_than_there_is() -> None:
    held = gt.ones(1000)
    with pytest.raises(gt.OutOfMemoryError, match=r"out of memory: .* asked for"):
        gt.zeros(1 << 45).sum().item()
    assert isinstance(gt.OutOfMemoryError("x"), RuntimeError)
    assert held.sum().item() == 1000
    # Memory runs out over many tensors that are all alive.
    assert gt.zeros(1 << 20).sum().item() == 0


def test_more_elements_than_can_be_counted() -> None:
    with pytest.raises((RuntimeError, ValueError, OverflowError)):
        gt.zeros(1 << 40, 1 << 40)
    with pytest.raises((RuntimeError, ValueError, OverflowError), match=r"large|overflow|Overflow"):
        gt.zeros(1 << 70)
    assert gt.ones(1).item() == 1


def test_a_session_that_was_closed() -> None:
    old = gt.ones(2)
    gt.disconnect()
    with pytest.raises(gt.DisconnectedError, match="the session is closed"):
        old.tolist()
    with pytest.raises(gt.DisconnectedError):
        old + 1
    # The next tensor opens another session; tensors of both cannot be mixed.
    new = gt.ones(2)
    assert new.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="session"):
        new + old
    assert (new + 1).tolist() == [2, 2]
