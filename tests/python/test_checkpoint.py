"""`checkpoint` recomputes activations in the backward pass with the same gradients; gradients of functions."""

from __future__ import annotations

from support import assert_close

import gt
from gt import func, nn
from gt.utils.checkpoint import checkpoint, checkpoint_sequential


def grads_of(module: nn.Module, x: gt.Tensor, run: object) -> list[gt.Tensor]:
    module.zero_grad()
    x.grad = None
    run(x).sum().backward()
    return [x.grad, *(p.grad for p in module.parameters())]


def test_gradients_flow_to_arguments_and_to_parameters() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = gt.randn(5, 3, requires_grad=True)
    wanted = [grad.clone() for grad in grads_of(net, x, net)]
    for run in (lambda x: checkpoint(net, x, use_reentrant=False), lambda x: checkpoint_sequential(net, 2, x)):
        for found, grad in zip(grads_of(net, x, run), wanted, strict=True):
            assert_close(found, grad.numpy())
    # Parameters get gradients even if the argument requires none.
    checkpoint(net, x.detach()).sum().backward()
    assert net[0].weight.grad is not None
    (slope,) = gt.autograd.grad(checkpoint(net, x).sum(), x, create_graph=True)
    slope.sum().backward()


def test_the_tape_keeps_no_intermediate_results() -> None:
    x = gt.ones(3, requires_grad=True)

    def deep(t: gt.Tensor) -> gt.Tensor:
        for _ in range(20):
            t = t.sin()
        return t

    before = len(gt.debug.get_tape())
    y = checkpoint(deep, x)
    assert len(gt.debug.get_tape()) - before <= 2
    assert y.grad_fn.name() == "CheckpointBackward"


def test_the_same_numbers_are_drawn_again() -> None:
    x = gt.ones(1000, requires_grad=True)
    y = checkpoint(lambda t: nn.functional.dropout(t, 0.5), x)
    after = gt.rand(1)
    gt.manual_seed(gt.initial_seed())
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert after.numel() == 1


def test_gradients_of_functions() -> None:
    x = gt.tensor([1.0, 2.0])
    assert func.grad(lambda t: (t**3).sum())(x).tolist() == [3, 12]
    assert func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)[0].tolist() == [2, 3]
    assert func.grad(func.grad(lambda t: t**3))(gt.tensor(2.0)).item() == 12
    found, (value, aux) = func.grad_and_value(lambda t: (t.sum(), "more"), has_aux=True)(x)
    assert (found.tolist(), value.item(), aux) == ([1, 1], 3, "more")
    assert func.jacrev(lambda t: t * t)(x).tolist() == [[2, 0], [0, 4]]
    assert func.hessian(lambda t: (t**3).sum())(x).tolist() == [[6, 0], [0, 12]]
    value, product = func.vjp(lambda t: t * t, x)
    assert (value.tolist(), product(gt.ones(2))[0].tolist()) == ([1, 4], [2, 4])


def test_a_module_with_other_parameters() -> None:
    layer = nn.Linear(2, 1)
    own = layer.weight
    weight = gt.ones(1, 2, requires_grad=True)
    result = func.functional_call(layer, {"weight": weight, "bias": gt.zeros(1)}, gt.tensor([[1.0, 2.0]]))
    assert result.tolist() == [[3]]
    result.backward()
    assert weight.grad.tolist() == [[1, 2]]
    assert layer.weight is own
