"""The tape by PyTorch's rules: leaves, accumulation, retained graphs and gradient modes."""

from __future__ import annotations

import gc
import math
import threading

import pytest
from support import assert_close

import gt


def leaf(*values: float) -> gt.Tensor:
    return gt.tensor(values, requires_grad=True)


def test_a_leaf_collects_its_gradient() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    assert y.requires_grad
    assert not y.is_leaf
    assert y.grad_fn.name() == "SumBackward0"
    assert x.grad_fn is None
    y.backward()
    assert x.grad.tolist() == [2, 4]
    assert not x.grad.requires_grad


def test_gradients_add_up_until_they_are_dropped() -> None:
    x = leaf(1.0, 2.0)
    for expected in ([3, 3], [6, 6]):
        (x * 3).sum().backward()
        assert x.grad.tolist() == expected
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    x.grad.zero_()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_every_path_counts() -> None:
    x = leaf(3.0)
    y = x * x
    (y * y + y * x).sum().backward()  # x⁴ + x³
    assert x.grad.tolist() == [4 * 27 + 3 * 9]


def test_a_gradient_argument_weighs_the_results() -> None:
    x = leaf(1.0, 2.0, 3.0)
    (x * x).backward(gt.tensor([1.0, 0.0, 0.5]))
    assert x.grad.tolist() == [2, 0, 3]
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * x).backward(gt.ones(2))


def test_a_result_with_many_elements_needs_a_gradient_argument() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    leaf(1.0).backward()  # A single element suffices, of any shape.


def test_a_graph_is_walked_once_unless_it_is_kept() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    assert x.grad.tolist() == [4, 8]
    assert (x + 1).tolist() == [2, 3]


def test_tensors_that_require_no_gradient_get_none() -> None:
    x = gt.ones(2)
    y = (x * 2).sum()
    assert not y.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        y.backward()


def test_only_floats_require_gradients() -> None:
    for make in (lambda: gt.tensor([1], requires_grad=True), lambda: gt.tensor([1]).requires_grad_()):
        with pytest.raises(RuntimeError, match="can require gradients"):
            make()
    assert not (leaf(1.0) > 0).requires_grad
    assert not leaf(1.0).long().requires_grad


def test_requires_grad_may_be_switched_on_a_leaf_alone() -> None:
    x = gt.ones(2)
    assert x.requires_grad_() is x
    assert x.requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad
    with pytest.raises(RuntimeError, match="leaf variables"):
        (leaf(1.0) * 2).requires_grad = False


def test_detach_cuts_the_graph() -> None:
    x = leaf(2.0)
    y = x * x
    cut = y.detach()
    assert not cut.requires_grad
    assert cut.is_leaf
    (cut * x).sum().backward()
    assert x.grad.tolist() == [4]


def test_detached_tensors_share_in_place_writes() -> None:
    x = leaf(1.0, 2.0)
    with gt.no_grad():
        x.detach().zero_()
    assert x.tolist() == [0, 0]
    x.data += 5
    assert x.tolist() == [5, 5]
    copied = x.detach().clone()
    with gt.no_grad():
        x += 1
    assert copied.tolist() == [5, 5]


def test_clone_passes_gradients_on() -> None:
    x = leaf(1.0, 2.0)
    y = x.clone()
    assert not y.is_leaf
    y[0] = 0
    (y * 3).sum().backward()
    assert x.grad.tolist() == [0, 3]
    assert x.tolist() == [1, 2]


def test_retain_grad_keeps_intermediate_gradients() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    z = y * 3
    z.sum().backward()
    assert y.grad.tolist() == [3, 3]
    assert z.grad is None


# Modes ------------------------------------------------------------------------------------------------------------


def test_no_grad_is_a_context_and_a_decorator() -> None:
    x = leaf(1.0)
    with gt.no_grad():
        assert not gt.is_grad_enabled()
        assert not (x * 2).requires_grad
        with gt.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @gt.no_grad()
    def called(y: gt.Tensor) -> gt.Tensor:
        """A function that doubles its argument."""
        return y * 2

    @gt.no_grad
    def bare(y: gt.Tensor) -> gt.Tensor:
        return y * 2

    assert not called(x).requires_grad
    assert not bare(x).requires_grad
    assert called.__name__ == "called"
    assert called.__doc__ == "A function that doubles its argument."
    assert gt.is_grad_enabled()


def test_a_mode_ends_with_an_exception_too() -> None:
    with pytest.raises(ZeroDivisionError), gt.no_grad():
        1 / 0  # noqa: B018
    assert gt.is_grad_enabled()

    @gt.no_grad()
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert gt.is_grad_enabled()


def test_one_mode_object_may_be_entered_again() -> None:
    mode = gt.no_grad()
    with mode, mode:
        assert not gt.is_grad_enabled()
    with mode:
        assert not gt.is_grad_enabled()
    assert gt.is_grad_enabled()


def test_set_grad_enabled_is_a_call_and_a_context() -> None:
    with gt.set_grad_enabled(False):
        assert not gt.is_grad_enabled()
    assert gt.is_grad_enabled()
    gt.set_grad_enabled(False)
    assert not gt.is_grad_enabled()
    gt.set_grad_enabled(True)
    assert gt.is_grad_enabled()


def test_the_mode_is_the_thread_s() -> None:
    seen = []
    with gt.no_grad():
        thread = threading.Thread(target=lambda: seen.append(gt.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# In place ---------------------------------------------------------------------------------------------------------


def test_a_leaf_that_is_trained_is_not_changed_in_place_while_recording() -> None:
    x = leaf(1.0, 2.0)
    for change in (lambda: x.add_(1), lambda: x.zero_(), lambda: x.__setitem__(0, 5.0)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            change()
    assert x.tolist() == [1, 2]


def test_results_may_be_changed_in_place_and_gradients_stay_right() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    y *= x  # x²
    y += 1
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


STALE = "one of the variables needed for gradient computation has been modified by an inplace operation"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a.zero_(), id="method"),
        pytest.param(lambda a: a.__iadd__(1), id="operator"),
        pytest.param(lambda a: a.__setitem__(0, 5.0), id="index"),
        pytest.param(lambda a: a[1:].mul_(2), id="view"),
        pytest.param(lambda a: a.detach().add_(1), id="detached"),
    ],
)
def test_a_saved_tensor_cannot_be_changed_in_place(change) -> None:
    x = leaf(3.0, 4.0)
    a = x * 1
    b = a * a
    change(a)
    with pytest.raises(RuntimeError, match=STALE):
        b.sum().backward()


def test_the_error_names_the_changed_tensor() -> None:
    a = leaf(3.0).exp()
    a.add_(1)
    assert a._version == 1
    with pytest.raises(RuntimeError, match=r"FloatTensor \[1\]\], which is output 0 of ExpBackward0, is at version 1"):
        a.sum().backward()


def test_a_view_that_a_gradient_needs_is_not_changed_through_its_base() -> None:
    a = leaf(3.0, 4.0) * 1
    b = a[0] ** 2
    a[1] = 0.0
    with pytest.raises(RuntimeError, match=STALE):
        b.backward()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a.clone().zero_(), id="copy"),
        pytest.param(lambda a: a.data.zero_(), id="data"),  # PyTorch does not check this either.
        pytest.param(lambda a: a + 1, id="nothing"),
    ],
)
def test_a_tensor_that_is_not_saved_may_be_changed_in_place(change) -> None:
    x = leaf(3.0)
    a = x * 1
    b = a * a
    change(a)
    b.sum().backward()
    assert x.grad.tolist() == [6]


@pytest.mark.parametrize("name", ["exp_", "relu_", "sin_", "sigmoid_", "square_", "abs_"])
def test_an_in_place_operation_may_save_what_it_replaces(name: str) -> None:
    x, y = leaf(0.5, 2.0), leaf(0.5, 2.0)
    changed = x * 1
    getattr(changed, name)()
    changed.sum().backward()
    getattr(y, name.removesuffix("_"))().sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_training_steps_between_two_passes_over_one_graph_are_noticed() -> None:
    w, x = leaf(2.0), leaf(3.0)
    loss = (w * x) ** 2
    loss.backward(retain_graph=True)
    with gt.no_grad():
        w -= 0.1 * w.grad
    with pytest.raises(RuntimeError, match=STALE):
        loss.backward()


def test_gradient_descent_by_hand() -> None:
    x = gt.tensor([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    y = gt.tensor([3.0, 5.0, 7.0])
    param = gt.zeros(2, requires_grad=True)
    lr = 0.1
    for _ in range(500):
        loss = ((x @ param - y) ** 2).mean()
        loss.backward()
        with gt.no_grad():
            param -= lr * param.grad
        param.grad = None
        assert param.is_leaf
        assert param.requires_grad
    assert_close(param, [1.0, 2.0], tolerance=1e-3)


# The whole graph --------------------------------------------------------------------------------------------------


def test_second_derivatives() -> None:
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    assert first.tolist() == [12]
    x.grad = None
    first.sum().backward()
    assert x.grad.tolist() == [12]


def test_autograd_grad_collects_nowhere() -> None:
    x, y = leaf(2.0), leaf(5.0)
    dx, dy = gt.autograd.grad((x * y).sum(), (x, y))
    assert (dx.tolist(), dy.tolist()) == ([5], [2])
    assert x.grad is None
    (d1,) = gt.autograd.grad((x**3).sum(), x, create_graph=True)
    (d2,) = gt.autograd.grad(d1.sum(), x)
    assert d2.tolist() == [12]
    with pytest.raises(RuntimeError, match="allow_unused"):
        gt.autograd.grad((x * 2).sum(), y)
    assert gt.autograd.grad((x * 2).sum(), y, allow_unused=True) == (None,)


def test_a_deep_graph_neither_overflows_nor_leaks() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = y + 1
    y.sum().backward()
    assert x.grad.tolist() == [1]
    del y
    gc.collect()
    assert len([node for node in gt.debug.get_tape() if node["op"] == "add"]) < 100


def test_gradients_come_in_the_leaf_s_dtype_and_shape() -> None:
    x = gt.ones(3, dtype=gt.float16, requires_grad=True)
    y = gt.ones(2, 3, dtype=gt.float32, requires_grad=True)
    (x * y).sum().backward()
    assert_close(x.grad, [2, 2, 2], "float16")
    assert_close(y.grad, [[1, 1, 1], [1, 1, 1]], "float32")


def test_a_user_s_gradient_must_fit() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises((RuntimeError, TypeError)):
        x.grad = gt.ones(3)
    with pytest.raises(TypeError):
        x.grad = 5
    x.grad = gt.ones(2)
    assert x.grad.tolist() == [1, 1]


def test_floor_division_has_no_derivative() -> None:
    x = gt.tensor([5.0, 7.0], requires_grad=True)
    for quotient in (x // 2, gt.floor_divide(9.0, x), x.floor_divide(x)):
        assert quotient.requires_grad
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
            quotient.sum().backward()
    # A quotient that is rounded by name is constant between its steps, as is the one in a remainder.
    gt.div(x, gt.tensor(2.0, requires_grad=True), rounding_mode="floor").sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0]
    (slope,) = gt.autograd.grad(gt.remainder(9.0, x).sum(), x, create_graph=True)
    assert slope.tolist() == [-1, -1]
    assert gt.autograd.grad((slope * x).sum(), x)[0].tolist() == [-1, -1]


def test_a_quotient_of_a_number_does_not_keep_the_tensor() -> None:
    for number in (1, 2.0, -3):
        x = gt.tensor([1.0, 2.0], requires_grad=True)
        quotient = number / x
        total = quotient.sum()
        with gt.no_grad():
            x.add_(1)
        quotient.mul_(5)
        (slope,) = gt.autograd.grad(total, x, create_graph=True)
        assert_close(slope, [-number, -number / 4])
        (second,) = gt.autograd.grad(slope.sum(), x)
        assert_close(second, [2 * number, number / 4])
    for number, slope in ((0.0, -0.0), (math.inf, -math.inf), (-math.inf, math.inf)):
        x = gt.tensor([2.0], requires_grad=True)
        (number / x).sum().backward()
        assert x.grad.item() == slope
    assert (3 / gt.tensor([2, 4])).tolist() == [1.5, 0.75]


def test_a_view_requires_a_gradient_after_its_base_does() -> None:
    x = gt.ones(3)
    early = x[:2]
    x.requires_grad_()
    with gt.no_grad():
        unrecorded = x[1:]
    assert early.requires_grad
    assert unrecorded.requires_grad
    assert early.grad_fn is None
    assert not x.detach()[:2].requires_grad
    assert not x.detach().requires_grad
    (early.sum() + x.sum()).backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_data_of_another_shape_leaves_gradients_of_what_was_computed_before() -> None:
    x = gt.ones(3, requires_grad=True)
    before = x[:2] * 3
    x.data = gt.zeros(5)
    before.sum().backward()
    assert x.grad.tolist() == [3, 3, 0]
    x.grad = None
    (x[1:] * 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 2, 2, 2]
    y = x.sum()
    y.data = gt.zeros(2)
    x.grad = None
    (y * 3).sum().backward()
    assert x.grad.tolist() == [6] * 5
    y = x * 1
    y.data = gt.zeros(2)
    with pytest.raises(RuntimeError, match=r"returned an invalid gradient at index 0 - got \[2\] .* \[5\]"):
        (y * 2).sum().backward()


def test_a_leaf_that_is_written_to_all_of_a_view_stays_another_tensor() -> None:
    leaf = gt.ones(2, requires_grad=True)
    for view in (lambda t: t.swapaxes(0, 0), lambda t: t[:], lambda t: t.view(2)):
        x = gt.zeros(2)
        view(x)[...] = leaf
        assert not x.is_leaf
        (x * 3).sum().backward()
        assert leaf.grad.tolist() == [3, 3]
        assert x.grad is None
        leaf.grad = None


def test_copysign_does_not_keep_the_signs() -> None:
    x, signs = gt.tensor([1.0, -2.0, 0.0], requires_grad=True), gt.tensor([-1.0, -1.0, -1.0])
    result = gt.copysign(x, signs)
    signs.fill_(1)
    result.sum().backward()
    assert x.grad.tolist() == [-1, 1, 0]


def test_hypot_does_not_keep_an_operand_without_a_gradient() -> None:
    x, y = gt.tensor([3.0], requires_grad=True), gt.tensor([4.0])
    for result in (gt.hypot(x, y), gt.hypot(y, x)):
        y.fill_(0)
        result.sum().backward()
        y.fill_(4)
    assert_close(x.grad, [1.2])


def test_a_part_without_elements_that_requires_a_gradient_makes_its_base_require_one() -> None:
    leaf = gt.ones(1, requires_grad=True)
    x = gt.zeros(2, 2)
    x[None][1:, 1:] = leaf
    assert x.requires_grad
    x.sum().backward()
    assert leaf.grad.tolist() == [0]


def test_a_retained_gradient_is_apart_from_the_one_that_is_returned() -> None:
    x = gt.tensor([3.0, 4.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    returned = gt.autograd.grad((y * y).sum(), y, create_graph=True)[0].detach()
    returned.clamp_(1, -1.5)
    assert returned.tolist() == [-1.5, -1.5]
    assert y.grad.tolist() == [12.0, 16.0]
    assert y.grad.requires_grad
