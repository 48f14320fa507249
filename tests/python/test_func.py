"""`gt.func`: derivatives, `vmap` and functional modules, also nested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gt
from gt import func, nn

RNG = np.random.default_rng(0)
ARRAYS = {"A": RNG.standard_normal((4, 3)), "B": RNG.standard_normal((4, 3)), "W": RNG.standard_normal((3, 3))}
A, B, W = (gt.Tensor(),) * 3


@pytest.fixture(autouse=True, scope="module")
def _tensors() -> None:
    # Made when the tests run, since other modules may end the session that exists at import.
    globals().update({name: gt.tensor(array) for name, array in ARRAYS.items()})


def same(found: gt.Tensor, expected: gt.Tensor) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_vmap_is_the_function_for_each_of_a_batch() -> None:
    same(gt.vmap(gt.dot)(A, B), (A * B).sum(1))
    same(func.vmap(lambda x, w: w @ x, in_dims=(0, None))(A, W), A @ W.T)
    same(func.vmap(lambda x: x.sum(), in_dims=1)(A), A.sum(0))
    double, total = func.vmap(lambda x: (x * 2, x.sum()), out_dims=(1, 0))(A)
    same(double, A.T * 2)
    same(total, A.sum(1))
    outer = func.vmap(func.vmap(lambda x, y: x * y, in_dims=(None, 0)), in_dims=(0, None))
    same(outer(A[:, 0], B[:, 0]), gt.outer(A[:, 0], B[:, 0]))


def test_vmap_takes_and_gives_trees() -> None:
    given = {"a": A, "b": (W[0],)}
    found = func.vmap(lambda d: {"out": d["a"] * d["b"][0]}, in_dims=({"a": 0, "b": (None,)},))(given)
    same(found["out"], A * W[0])
    same(func.vmap(lambda x, scale: x * scale)(A, scale=gt.arange(4.0).double()), A * gt.arange(4.0)[:, None])


def test_vmap_of_derivatives() -> None:
    def loss(w: gt.Tensor, x: gt.Tensor) -> gt.Tensor:
        return ((w @ x) ** 2).sum()

    each = func.vmap(func.grad(loss), in_dims=(None, 0))(W, A)
    same(each, gt.stack([2 * gt.outer(W @ x, x) for x in A]))
    same(func.vmap(func.jacrev(lambda x: W @ x))(A), W.expand(4, 3, 3))
    same(func.vmap(func.hessian(lambda x: (x**3).sum()))(A), gt.diag_embed(6 * A))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: func.vmap(lambda x, y: x + y)(A, W), "same size in the mapped dimension"),
        (lambda: func.vmap(lambda x: x.shape[0])(A), "must only return Tensors"),
        (lambda: func.vmap(lambda x: x, in_dims=3)(A), "dimensionality 2"),
        (lambda: func.vmap(lambda x: x, in_dims=(0, 0))(A), "does not fit"),
        (lambda: func.vmap(lambda x: x, in_dims=None)(A), "at least one"),
        (lambda: func.vmap(lambda x: x)(3), "non-Tensor"),
    ],
)
def test_wrong_batches_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_derivatives_by_trees_and_several_arguments() -> None:
    found = func.grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": A, "b": [B]})
    same(found["a"], B)
    same(found["b"][0], A)
    (by_a, by_b), value = func.grad_and_value(lambda a, b: (a * b).sum(), argnums=(0, 1))(A, B)
    same(by_a, B)
    same(by_b, A)
    same(value, (A * B).sum())
    found = func.jacrev(lambda a, b: {"product": a * b}, argnums=(0, 1))(A[0], B[0])
    same(found["product"][1], gt.diag(A[0]))
    value, slope = func.jvp(lambda a, b: a * b, (A, B), (B, A))
    same(value, A * B)
    same(slope, A * A + B * B)
    (value, _), product = func.vjp(lambda a: (a * a, a.sum()), A)
    same(product((A, gt.tensor(2.0).double()))[0], 2 * A * A + 2)
    same(func.jacfwd(lambda x: W @ x.sin())(A[0]), W * A[0].cos())
    with pytest.raises(RuntimeError, match="scalar"):
        func.grad(lambda x: x)(A)
    with pytest.raises(RuntimeError, match="argnum"):
        func.grad(lambda x: x.sum(), argnums=1)(A)


def test_derivatives_nest_to_any_order() -> None:
    same(func.grad(lambda x: func.grad(lambda y: (y**3).sum())(x).sum())(A), 6 * A)
    same(func.jacrev(func.jacrev(lambda x: x**3))(A[0])[0, 0, 0], 6 * A[0, 0])
    assert not func.grad(lambda x: (x**2).sum())(A).requires_grad
    # A leaf that the function closes over still gets its gradient.
    scale = gt.tensor([2.0, 3.0, 1.0]).double().requires_grad_()
    func.grad(lambda x: (x**2 * scale).sum())(A[0]).sum().backward()
    same(scale.grad, 2 * A[0])


def test_several_modules_at_once() -> None:
    models = [nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)) for _ in range(3)]
    x = A.float()
    parameters, buffers = func.stack_module_state(models)
    assert parameters["0.weight"].shape == (3, 2, 3)
    assert parameters["0.weight"].requires_grad

    def call(state: Any, others: Any, x: gt.Tensor) -> gt.Tensor:
        return func.functional_call(models[0], (state, others), (x,))

    found = func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    for one, model in zip(found, models, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="same class"):
        func.stack_module_state([nn.Linear(1, 1), nn.Tanh()])


def test_tied_parameters_are_given_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: gt.Tensor) -> gt.Tensor:
            return self.two(self.one(x))

    x, weight = gt.ones(1, 2), gt.ones(2, 2)
    assert func.functional_call(Tied(), {"one.weight": weight}, x).tolist() == [[4, 4]]
    assert func.functional_call(Tied(), {"one.weight": weight}, x, tie_weights=False).tolist() != [[4, 4]]
    with pytest.raises(ValueError, match="tied"):
        func.functional_call(Tied(), {"one.weight": weight, "two.weight": weight * 2}, x)
    with pytest.raises(RuntimeError, match="bias"):
        func.functional_call(nn.Linear(2, 2), {"weight": weight}, x, strict=True)


def test_linearize_gives_products_with_one_jacobian() -> None:
    x, y = gt.tensor([1.0, 2.0]), gt.tensor(3.0)
    value, product = gt.func.linearize(lambda x, y: {"z": x * x * y}, x, y)
    assert value["z"].tolist() == [3, 12]
    # d(x^2 y) = 2 x y dx + x^2 dy
    assert product(gt.tensor([1.0, 0.0]), gt.tensor(0.0))["z"].tolist() == [6, 0]
    assert product(gt.tensor([1.0, 1.0]), gt.tensor(1.0))["z"].tolist() == [7, 16]
