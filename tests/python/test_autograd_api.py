"""Hooks, `autograd.grad` and `backward` in full, functions with gradients of their own, and checks of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import gt
from gt import _gt, autograd
from gt.autograd.function import once_differentiable


def leaf(*values: float) -> gt.Tensor:
    return gt.tensor(values, dtype=gt.float64, requires_grad=True)


# grad and backward ----------------------------------------------------------------------------------------------


def test_grad_weighs_its_outputs_and_adds_them_up() -> None:
    x = leaf(1.0, 2.0)
    (found,) = autograd.grad((x * 2, x.sum()), x, (gt.tensor([1.0, 10.0], dtype=gt.float64), None))
    assert found.tolist() == [3, 21]
    assert x.grad is None


def test_grad_stops_at_intermediate_inputs() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * 3
    assert autograd.grad(z, y, retain_graph=True)[0].tolist() == [3]
    # The graph before y was not visited, so it was not freed.
    y.backward()
    assert x.grad.tolist() == [4]


def test_an_input_that_was_not_used() -> None:
    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        autograd.grad(x * 2, (x, y))
    assert autograd.grad(x * 2, (x, y), allow_unused=True)[1] is None
    assert autograd.grad(x * 2, (x, y), materialize_grads=True)[1].tolist() == [0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        autograd.grad(x * 2, gt.ones(1))


def test_gradients_of_several_seeds_at_once() -> None:
    x = leaf(1.0, 2.0)
    (found,) = autograd.grad(x * x, x, gt.eye(2, dtype=gt.float64), is_grads_batched=True)
    assert found.tolist() == [[2, 0], [0, 4]]


def test_older_arguments_of_gradients() -> None:
    x = leaf(3.0)
    assert autograd.grad(x * x, x, gt.ones(1, dtype=gt.float64), only_inputs=True)[0].tolist() == [6]
    with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
        autograd.grad(x * x, x, gt.ones(1, dtype=gt.float64), only_inputs=False)
    with pytest.warns(FutureWarning, match="Use `grad_tensors` instead"):
        autograd.backward(x * x, grad_variables=gt.ones(1, dtype=gt.float64))
    assert x.grad.tolist() == [6]


def test_backward_of_several_tensors_into_some_leaves() -> None:
    x, y = leaf(1.0), leaf(2.0)
    autograd.backward((x * y, x.sum()), (gt.ones(1, dtype=gt.float64), None), inputs=[x])
    assert x.grad.tolist() == [3]
    assert y.grad is None
    (x * y).backward(inputs=y)
    assert y.grad.tolist() == [1]
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        autograd.backward((x * y, x), (None,))
    with pytest.raises(RuntimeError, match="element 1 of tensors does not require grad"):
        autograd.backward((x.sum(), gt.ones(1)))


# Hooks ----------------------------------------------------------------------------------------------------------


def test_a_hook_sees_the_gradient_and_may_replace_it() -> None:
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    handle = y.register_hook(lambda grad: grad * 10)
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert (seen, y.grad.tolist(), x.grad.tolist()) == ([[1.0]], [10], [20])
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [22]


@pytest.mark.parametrize("part", [0, slice(1), [0], ...], ids=str)
def test_hooks_of_a_view_outlive_writes_to_data(part: Any) -> None:
    y = gt.ones(3, requires_grad=True) * 2
    view, seen = y[:2], []
    view.register_hook(lambda grad: seen.append(grad.tolist()))
    view.retain_grad()
    y.data[part] = 5.0
    (view * view).sum().backward()
    assert seen == [(2 * y[:2]).tolist()]
    assert view.grad.tolist() == seen[0]


def test_an_exception_of_a_hook_ends_the_backward_pass() -> None:
    def refuse(_: gt.Tensor) -> None:
        raise ValueError("enough")

    x = leaf(1.0)
    x.register_hook(refuse)
    with pytest.raises(ValueError, match="enough"):
        (x * 2).backward()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
        gt.ones(1).register_hook(print)


def test_a_leaf_tells_when_it_has_collected_a_gradient() -> None:
    x = leaf(1.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    (x * 2).backward()
    (x * 3).backward()
    assert seen == [(True, [2]), (True, [5])]
    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf tensors"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_the_graph_can_be_read_from_grad_fn() -> None:
    x = leaf(1.0)
    y = (x * 2).exp()
    assert y.grad_fn == y.grad_fn
    (before, number), *_ = y.grad_fn.next_functions
    assert (before.name(), number) == ("MulBackward0", 0)
    assert before.next_functions[0][0].name() == "AccumulateGrad"


# Function -------------------------------------------------------------------------------------------------------


class Exp(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: gt.Tensor) -> gt.Tensor:
        (result,) = ctx.saved_tensors
        return grad * result


class Scale(autograd.Function):
    """Returns `x * factor` twice; the second result is not differentiable."""

    @staticmethod
    def forward(x: gt.Tensor, factor: float) -> tuple[gt.Tensor, gt.Tensor, str]:
        return x * factor, x * factor, "no tensor"

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.factor = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: gt.Tensor, _fixed: Any, _text: Any) -> tuple[gt.Tensor, None]:
        return grad * ctx.factor, None


def test_a_function_has_the_gradient_it_says() -> None:
    x = leaf(0.5, 1.0)
    y = Exp.apply(x)
    assert y.grad_fn.name() == "ExpBackward"
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert not Exp.apply(x.detach()).requires_grad
    assert autograd.gradcheck(Exp.apply, leaf(0.5, 1.0))
    assert autograd.gradgradcheck(Exp.apply, leaf(0.5, 1.0))


def test_a_function_of_several_inputs_and_results() -> None:
    x = leaf(3.0)
    y, fixed, text = Scale.apply(x, 4.0)
    assert (y.requires_grad, fixed.requires_grad, text) == (True, False, "no tensor")
    y.backward()
    assert x.grad.tolist() == [4]


def test_a_function_s_saved_tensors_are_freed_and_checked() -> None:
    x = leaf(1.0)
    y = Exp.apply(x)
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()

    class Square(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad * 2 * ctx.saved_tensors[0]

    a = x * 1
    z = Square.apply(a)
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_function_that_says_too_little_or_too_much() -> None:
    class Wrong(autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: gt.Tensor, y: gt.Tensor) -> gt.Tensor:
            return x + y

        @staticmethod
        def backward(_ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad

    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        Wrong.apply(leaf(1.0), leaf(1.0)).backward()

    class Misshapen(Wrong):
        @staticmethod
        def backward(_ctx: Any, grad: gt.Tensor) -> tuple[gt.Tensor, gt.Tensor]:
            return gt.ones(3), grad

    with pytest.raises(RuntimeError, match="returned an invalid gradient at index 0"):
        Misshapen.apply(leaf(1.0, 2.0), leaf(1.0, 2.0)).sum().backward()


def test_a_function_may_change_its_input() -> None:
    class Double(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(_ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad * 2

    x = leaf(3.0)
    y = x * 1
    assert Double.apply(y) is y
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([6], [2])


def test_once_differentiable_means_it() -> None:
    class Cube(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad * 3 * ctx.saved_tensors[0] ** 2

    x = leaf(2.0)
    (slope,) = autograd.grad(Cube.apply(x), x, gt.ones(1, dtype=gt.float64, requires_grad=True), create_graph=True)
    assert slope.tolist() == [12]
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        slope.backward()


# Whole derivatives, and checks ------------------------------------------------------------------------------------


def test_jacobian_and_hessian() -> None:
    x = gt.tensor([1.0, 2.0])
    assert autograd.functional.jacobian(lambda a: a * a, x).tolist() == [[2, 0], [0, 4]]
    assert autograd.functional.hessian(lambda a: (a**3).sum(), x).tolist() == [[6, 0], [0, 12]]
    by_x, by_y = autograd.functional.jacobian(lambda a, b: (a * b).sum(), (x, x + 1))
    assert (by_x.tolist(), by_y.tolist()) == ([2, 3], [1, 2])
    mixed = autograd.functional.hessian(lambda a, b: (a * b).sum(), (x, x + 1))
    assert mixed[0][1].tolist() == [[1, 0], [0, 1]]
    assert mixed[0][0].tolist() == [[0, 0], [0, 0]]


def test_products_with_derivatives() -> None:
    x, v = gt.tensor([1.0, 2.0]), gt.tensor([1.0, 10.0])
    value, left = autograd.functional.vjp(lambda a: a.prod() * a, x, v)
    _, right = autograd.functional.jvp(lambda a: a.prod() * a, x, v)
    # The Jacobian of (x²y, xy²) at (1, 2) is [[4, 1], [4, 4]].
    assert (value.tolist(), left.tolist(), right.tolist()) == ([2, 4], [44, 41], [14, 44])
    assert autograd.functional.hvp(lambda a: (a**3).sum(), x, v)[1].tolist() == [6, 120]


def test_gradcheck_of_complex_numbers_perturbs_both_parts() -> None:
    class Turned(autograd.Function):
        @staticmethod
        def forward(_ctx: Any, z: gt.Tensor) -> gt.Tensor:
            return z * 1j

        @staticmethod
        def backward(_ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad * 1j  # its conjugate would be right

    z = gt.tensor([1 + 2j, -0.5j], dtype=gt.complex128, requires_grad=True)
    w = gt.tensor([0.5, 2 - 1j], dtype=gt.complex128, requires_grad=True)
    assert autograd.gradcheck(lambda z: z.exp() * z.conj(), z)
    assert autograd.gradgradcheck(lambda z, w: z.exp() * w, (z, w))
    assert not autograd.gradcheck(Turned.apply, z, raise_exception=False)


def test_gradcheck_finds_a_wrong_gradient() -> None:
    class Wrong(Exp):
        @staticmethod
        def backward(_ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            return grad * 2

    assert autograd.gradcheck(lambda a, b: a.sin() * b, (leaf(1.0, 2.0), leaf(3.0, 4.0)))
    with pytest.raises(autograd.GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        autograd.gradcheck(Wrong.apply, leaf(1.0))
    assert not autograd.gradcheck(Wrong.apply, leaf(1.0), raise_exception=False)


def test_anomaly_detection_names_the_operation_and_its_line() -> None:
    x = leaf(-1.0)
    with autograd.detect_anomaly():
        root = x.sqrt()
        with pytest.raises(RuntimeError, match=r"Function 'SqrtBackward0' returned nan.*test_autograd_api\.py:\d+"):
            root.sum().backward()
    x.sqrt().sum().backward()
    assert math.isnan(x.grad.item())


def test_old_names_of_tensors_and_modes() -> None:
    x = gt.autograd.Variable(gt.ones(2), requires_grad=True)
    assert x.requires_grad
    assert isinstance(x, gt.autograd.Variable)
    assert not isinstance(1.0, gt.autograd.Variable)
    assert gt.autograd.grad_mode.no_grad is gt.no_grad
    with gt.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="checkpoint"):
        gt.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


def test_functions_of_networks_are_in_the_package_too() -> None:
    x = gt.rand(1, 2, 5, 5)
    weight = gt.rand(3, 2, 2, 2)
    assert gt.equal(gt.conv2d(x, weight), gt.nn.functional.conv2d(x, weight))
    assert gt.layer_norm(x, (5,)).shape == x.shape
    assert gt.pixel_shuffle(gt.rand(1, 4, 2, 2), 2).shape == (1, 1, 4, 4)


def test_a_function_s_gradient_under_another_name() -> None:
    class Twice(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:  # noqa: ARG004
            return x * 2

        @staticmethod
        def vjp(ctx: Any, grad: gt.Tensor) -> gt.Tensor:  # noqa: ARG004
            return grad * 2

    x = leaf(1.0)
    Twice.apply(x).backward(gt.ones(1, dtype=gt.float64))
    assert x.grad.tolist() == [2]


@pytest.mark.parametrize(
    "compute",
    [
        lambda y: y * 2,
        lambda y: y.tril(),
        lambda y: y[y > 2],
        lambda y: y[0] + 1,
        lambda y: y.view(6).exp(),
        lambda y: gt.cat([y, y]),
        lambda y: y.sum(),
        lambda y: y * y,
    ],
)
def test_what_is_computed_from_a_view_that_was_taken_without_recording(
    compute: Callable[[gt.Tensor], gt.Tensor],
) -> None:
    x = gt.arange(6.0).requires_grad_()
    with gt.no_grad():
        y = x.reshape(2, 3)
    y.retain_grad()
    assert y.requires_grad
    z = compute(y)
    assert z.requires_grad
    # As in PyTorch, no gradient arrives at the view or its base.
    z.sum().backward()
    assert (x.grad, y.grad) == (None, None)
    with gt.no_grad():
        assert not compute(y).requires_grad
    y.requires_grad_()
    assert not compute(y.detach()).requires_grad


def test_a_view_cannot_be_detached_in_place() -> None:
    x = gt.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        x[:2].detach_()
    assert not x.detach_().requires_grad
    assert not x.detach().detach_().requires_grad


def test_a_retained_gradient_outlives_a_new_shape() -> None:
    x = gt.ones(2, 3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.t_()
    (y * gt.arange(6.0).reshape(3, 2)).sum().backward()
    # As in PyTorch, it is the gradient of the tensor that `retain_grad` was called on.
    assert y.retains_grad
    assert y.grad.tolist() == [[0, 2, 4], [1, 3, 5]]
    y.grad = None
    assert y.grad is None


@pytest.mark.parametrize("reshape", ["t_()", "unsqueeze_(0)", "transpose_(0, 1)"])
def test_a_view_that_gets_another_shape_without_recording_forgets_its_hooks(reshape: str) -> None:
    x = gt.ones(1, 3, requires_grad=True)
    view = x[...]
    view.register_hook(lambda grad: grad * 10)
    view.retain_grad()
    with gt.no_grad():
        exec(f"view.{reshape}", {"view": view})
    view.sum().backward()
    assert x.grad.tolist() == [[1, 1, 1]]
    assert view.grad.shape == view.shape


def test_hooks_of_a_view_do_not_see_the_gradient_of_what_is_written_to_it() -> None:
    x = gt.ones(2, requires_grad=True)
    y = x * 1
    view, seen = y[:], []
    view.register_hook(lambda grad: seen.append(grad.tolist()))
    before = view * 3
    view.mul_(2)
    view.sum().backward(retain_graph=True)
    assert (seen, x.grad.tolist()) == ([], [2, 2])
    before.sum().backward()
    assert seen == [[3, 3]]


@pytest.mark.parametrize(
    "write", ["view.fill_(w)", "view[[1, 0]] = 3.0", "view[:1] = 3.0", "view.T.mul_(w)", "y.mul_(2)"]
)
def test_a_view_retains_no_gradient_of_what_is_written_to_it(write: str) -> None:
    w = gt.tensor(2.0, requires_grad=True)
    y = w * gt.ones(2)
    view = y[:]
    view.retain_grad()
    exec(write, {"view": view, "y": y, "w": w})
    y.sum().backward(retain_graph=True)
    assert view.grad is None
    view.sum().backward()
    assert view.grad.tolist() == [1, 1]


def test_a_view_of_a_view_has_its_gradient_from_the_base_after_a_write() -> None:
    for write in ("inner[...] = inner", "inner[...] = 1.0", "view.t_()"):
        x = gt.tensor(2.0, requires_grad=True)
        view = x.view(1)
        view.retain_grad()
        inner = view.movedim(0, 0)
        with gt.no_grad():
            exec(write, {"inner": inner, "view": view})
        inner.sum().backward()
        assert (view.grad, x.grad.item()) == (None, 1)


def test_what_was_computed_of_a_view_keeps_its_gradient_when_the_view_gets_another_shape() -> None:
    view = gt.tensor(2.0, requires_grad=True).expand(2)
    view.retain_grad()
    double = view * 2
    with gt.no_grad():
        view.unsqueeze_(0)
    double.sum().backward()
    assert view.grad.tolist() == [2, 2]


def test_the_gradient_of_what_was_filled_is_a_number() -> None:
    x = gt.tensor(2.0, requires_grad=True)
    y = x * 3
    y[...] = 1.0
    (grad,) = gt.autograd.grad(y * y, x, create_graph=True)
    assert (grad.item(), grad.requires_grad) == (0, False)


def test_a_new_shape_counts_as_a_version() -> None:
    x = gt.ones(1, 2)
    view = x[:]
    for count, reshape in enumerate(("t_()", "unsqueeze_(0)", "squeeze_()", "transpose_(0, 0)"), 1):
        exec(f"view.{reshape}", {"view": view})
        assert (view._version, x._version) == (count, count)


def test_a_view_of_data_takes_part_in_what_is_written_to_it() -> None:
    x, w = gt.zeros(2, 2), gt.tensor(3.0, requires_grad=True)
    data = x.data
    view, other = data.flatten(), data[0]
    view.fill_(w)
    assert not view.is_leaf
    other.sum().backward()
    assert (w.grad.tolist(), x.tolist(), x.requires_grad) == (2, [[3, 3], [3, 3]], False)


def test_a_hook_on_a_view_that_shows_its_base_s_requires_grad() -> None:
    x = gt.ones(2)
    view, seen = x.view(2, 1), []
    x.requires_grad_()
    handle = view.register_hook(seen.append)
    (view.sum() + x.sum()).backward()
    handle.remove()
    assert (seen, x.grad.tolist()) == ([], [1, 1])
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        x.detach().register_hook(seen.append)
    for copy in (view.clone(), view.contiguous().clone()):
        assert copy.requires_grad


@pytest.mark.parametrize(
    "copy",
    [
        lambda part: part.clone(),
        lambda part: part.to(gt.float32, copy=True),
        lambda part: part.new_tensor(part),
        lambda part: part.repeat(1),
        lambda part: part.expand(2, 3).clone()[0],
    ],
)
def test_a_copy_of_a_view_outlives_writes_to_the_base(copy: Callable[[gt.Tensor], gt.Tensor]) -> None:
    buffer, weights = gt.ones(4, 3), gt.ones(3, requires_grad=True)
    loss = (copy(buffer[0]) * weights).sum()
    saved = (buffer[0] * weights).sum()
    buffer[1] = 3.0
    loss.backward()
    assert weights.grad.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_a_view_of_bits_that_requires_a_gradient_shows_it_in_its_own_views() -> None:
    bits = gt.zeros(2, 2, dtype=gt.int64)
    numbers = bits.view(gt.float64)
    part = numbers[0]
    numbers.requires_grad_()
    assert part.requires_grad
    assert not bits.requires_grad
    assert not bits[0].requires_grad


def test_an_index_out_of_range_is_the_first_error_of_a_write() -> None:
    x = gt.zeros(0, 4, requires_grad=True)
    with pytest.raises(IndexError, match="out of bounds"):
        x[0, 1] = -1
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x[:, 1] = -1


@pytest.mark.parametrize("reduction", [gt.sum, gt.prod, gt.nansum, gt.cumsum, gt.cumprod])
def test_a_result_of_integers_has_no_gradient(reduction: Callable[..., gt.Tensor]) -> None:
    x = gt.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Autograd not support dtype: Short"):
        reduction(x, 0, dtype=gt.int16)
    assert reduction(x.detach(), 0, dtype=gt.int16).dtype == gt.int16


@pytest.mark.parametrize("write", ["y *= y", "y /= y", "y.mul_(y)", "y.pow_(y)", "y.div_(y)"])
def test_a_gradient_through_an_operand_that_its_operation_wrote(write: str) -> None:
    x = gt.tensor([2.0, 3.0], requires_grad=True)
    scope = {"y": x * 1}
    exec(write, scope)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scope["y"].sum().backward()
    # These save nothing of the operand, or the operand is another tensor.
    for harmless in ("y += y", "y -= y * 2", "y *= y.clone()"):
        scope["y"] = x * 1
        exec(harmless, scope)
        scope["y"].sum().backward()


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.tril().unfold(0, 2, 1).sum(0),
        lambda x: gt.nn.functional.interpolate(x[None], scale_factor=2),
        lambda x: gt.nn.functional.interpolate(x[None], size=5, mode="linear"),
        lambda x: gt.nn.functional.adaptive_avg_pool1d(x[None], 2),
    ],
)
def test_positions_that_a_function_computes_itself_are_kept_for_a_second_pass(
    compute: Callable[[gt.Tensor], gt.Tensor],
) -> None:
    x = gt.arange(6.0).reshape(2, 3).requires_grad_()
    y = compute(x)
    y.backward(gt.ones_like(y))
    once = x.grad.clone()
    y.backward(gt.ones_like(y))
    assert gt.equal(x.grad, once * 2)
    # Positions that the caller gives are saved and released, and so are values that are computed of elements.
    factor = gt.linalg.cholesky(x @ x.T + gt.eye(2))
    factor.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        factor.sum().backward()
    z = x[gt.tensor([0, 1])]
    z.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        z.sum().backward()


def test_a_step_of_a_custom_function_leaves_nothing_on_the_tape() -> None:
    class Twice(gt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
            result = 2 * x
            ctx.save_for_backward(x, result)
            return result

        @staticmethod
        def backward(ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            x, result = ctx.saved_tensors
            return grad * result / x

    x = gt.ones(3, requires_grad=True)
    before = len(_gt.tape())
    for _ in range(5):
        Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [10, 10, 10]
    assert len(_gt.tape()) == before
