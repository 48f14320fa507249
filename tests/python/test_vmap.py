"""`vmap` computes a batch by one call of the function; the results are those of one element after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gt
from gt import func, nn
from gt.nn import functional

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((3, 4, 5))
IMAGES = RNG.standard_normal((3, 2, 4, 6, 6))
SQUARES = RNG.standard_normal((3, 5, 5))
INDICES = RNG.integers(0, 4, (3, 6))
# Every function gets the elements of X, and of Y if it takes two arguments.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: x * 2 + y / (1 + x * x),
    "broadcast": lambda x, y: x[0] + y[:, :1] + gt.arange(4.0).double()[:, None],
    "where": lambda x, y: gt.where(x > 0, x, y),
    "cast": lambda x: x.float().double(),
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "max": lambda x: x.max(1),
    "argmax of all": lambda x: x.argmax(),
    "var": lambda x: x.var(0),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(1),
    "any": lambda x: (x > 1).any(0),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(0).values,
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(2, 1),
    "reshape": lambda x: x.reshape(2, 10),
    "transpose": lambda x: x.T,
    "expand": lambda x: x[:, None].expand(4, 2, 5),
    "flip": lambda x: x.flip(0),
    "slices": lambda x: x[1:3, ::2],
    "one element": lambda x: x[2, 3],
    "written": lambda x, y: x.clone().index_fill_(0, gt.tensor([1]), 3.0) + y,
    "cat": lambda x, y: gt.cat([x, y, gt.ones(1, 5).double()]),
    "stack": lambda x, y: gt.stack([x, y], 1),
    "pad": lambda x: functional.pad(x, (1, 2), value=3.0),
    "triangle": lambda x: x.tril(),
    "diagonal": lambda x: gt.diag_embed(x).sum(1),
    "gather": lambda x: x.gather(1, gt.tensor([[0, 4], [1, 1], [2, 3], [0, 0]])),
    "rows by index": lambda x: x[gt.tensor([3, 0, 3])],
    "rows by own index": lambda x: x[x[:, 0].argsort()],
    "scatter": lambda x: gt.zeros(4, 5).double().scatter_add(0, gt.zeros(4, 5).long(), x),
    "searchsorted": lambda x: gt.searchsorted(gt.tensor([-1.0, 0.0, 1.0]).double(), x),
    "one hot": lambda x: functional.one_hot(x.argmax(1), 5),
    "matmul": lambda x, y: x @ y.T,
    "matrix and vector": lambda x: x @ x[0],
    "shared matrix and vector": lambda x: gt.eye(5).double() @ x[0],
    "shared vector and matrix": lambda x: gt.ones(4).double() @ x,
    "shared left": lambda x: gt.ones(2, 4).double() @ x,
    "dot": lambda x, y: gt.dot(x[0], y[0]),
    "outer": lambda x, y: gt.outer(x[0], y[1]),
    "einsum": lambda x, y: gt.einsum("ij,kj->ik", x, y),
    "batched matmul": lambda x, y: gt.bmm(x[:, None], y[:, :, None]),
    "softmax": lambda x: x.softmax(0) + x.log_softmax(1),
    "layer norm": lambda x: functional.layer_norm(x, (5,), gt.arange(5.0).double(), gt.ones(5).double()),
    "layer norm by own weight": lambda x, y: functional.layer_norm(x, (5,), y[0], y[1]),
    "rms norm by own weight": lambda x, y: functional.rms_norm(x, (5,), y[0]),
    "linear": lambda x, y: functional.linear(x, y, y[:, 0]),
    "gelu": lambda x: functional.gelu(x) + functional.silu(x) + gt.tanh(x),
    "cross entropy": lambda x: functional.cross_entropy(x, gt.tensor([0, 1, 4, 2])),
    "weighted cross entropy": lambda x, y: functional.cross_entropy(
        x, gt.tensor([0, 1, -100, 2]), y[0].detach().abs(), label_smoothing=0.1, reduction="mean"
    ),
    "each cross entropy": lambda x: functional.cross_entropy(x, gt.tensor([0, 1, 4, 2]), reduction="none"),
    "cross entropy of own classes": lambda x, y: functional.cross_entropy(x, y.argmax(1), reduction="sum"),
    "mse": lambda x, y: functional.mse_loss(x, y),
    "attention": lambda x, y: functional.scaled_dot_product_attention(x[None], y[None], x[None], is_causal=False),
    "complex": lambda x, y: gt.complex(x, y).exp().abs(),
    "complex product": lambda x, y: (gt.complex(x, y) @ gt.complex(y, x).mT).real,
    "fft": lambda x: gt.fft.rfft(x).imag,
    "bits": lambda x: x.view(gt.int64) & 255,
    "unfold": lambda x: x.unfold(1, 3, 1).sum(-1),
    "det": lambda x: gt.linalg.det(x @ x.T),
    "inverse": lambda x: gt.linalg.inv(x @ x.T + gt.eye(4).double()),
}
# Linear algebra looks at elements to raise its errors.
LOOKS_AT_ELEMENTS = {"det", "inverse"}


def leaves_of(result: Any) -> list[gt.Tensor]:
    return [result] if isinstance(result, gt.Tensor) else list(result)


def same(found: gt.Tensor, expected: gt.Tensor) -> None:
    assert found.dtype is expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-11)


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    calls: list[int] = []

    def call(*args: Any) -> Any:
        calls.append(1)
        return function(*args)

    return call, calls


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_is_computed_at_once(name: str) -> None:
    function = FUNCTIONS[name]
    operands = [gt.tensor(X), gt.tensor(Y)][: function.__code__.co_argcount]
    call, calls = counted(function)
    found = leaves_of(func.vmap(call)(*operands))
    if name not in LOOKS_AT_ELEMENTS:
        assert len(calls) == 1
    each = [leaves_of(function(*(operand[i] for operand in operands))) for i in range(3)]
    for got, wanted in zip(found, zip(*each, strict=True), strict=True):
        same(got, gt.stack(list(wanted)))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "arg" not in name and name not in LOOKS_AT_ELEMENTS])
def test_gradients_of_each_element(name: str) -> None:
    function = FUNCTIONS[name]
    operands = [gt.tensor(X), gt.tensor(Y)][: function.__code__.co_argcount]

    def scalar(*args: Any) -> gt.Tensor:
        result = leaves_of(function(*args))[0]
        weight = gt.linspace(-1.0, 2.0, result.numel()).double().reshape(result.shape)
        return (result.double() * weight).sum()

    if not scalar(*(operand[0].requires_grad_() for operand in operands)).requires_grad:
        pytest.skip("no gradient flows through it")
    argnums = tuple(range(len(operands)))
    found = func.vmap(func.grad(scalar, argnums))(*operands)
    for n, got in enumerate(found):
        same(got, gt.stack([func.grad(scalar, argnums)(*(o[i] for o in operands))[n] for i in range(3)]))
    # The same outside: what the batch shares gets the sum.
    outside = [operand.clone().requires_grad_() for operand in operands]
    func.vmap(scalar)(*outside).sum().backward()
    for got, leaf in zip(found, outside, strict=True):
        same(gt.zeros_like(leaf) if leaf.grad is None else leaf.grad, got)


@pytest.mark.parametrize("shared", [True, False], ids=["one weight", "own weights"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(shared: bool, groups: int) -> None:
    images = gt.tensor(IMAGES)
    weights = gt.tensor(RNG.standard_normal((3, 4, 4 // groups, 3, 3)))
    bias = gt.tensor(RNG.standard_normal((3, 4)))

    def loss(image: gt.Tensor, weight: gt.Tensor, bias: gt.Tensor) -> gt.Tensor:
        made = functional.conv2d(image, weight, bias, padding=1, groups=groups)
        return (functional.max_pool2d(made, 2) ** 2).sum() + functional.avg_pool2d(made, 3, 1).sin().sum()

    dims = (0, None, None) if shared else (0, 0, 0)
    given = (images, weights[0], bias[0]) if shared else (images, weights, bias)
    call, calls = counted(loss)
    found = func.vmap(func.grad(call, (0, 1, 2)), in_dims=dims)(*given)
    assert len(calls) == 1
    for i in range(3):
        one = (images[i], weights[0 if shared else i], bias[0 if shared else i])
        for got, wanted in zip(found, func.grad(loss, (0, 1, 2))(*one), strict=True):
            same(got[i], wanted)


def test_gradients_per_sample_of_a_network() -> None:
    gt.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 9)).double()
    tokens = gt.tensor(RNG.integers(0, 9, (4, 6)))
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters: Any, row: gt.Tensor) -> gt.Tensor:
        return functional.cross_entropy(func.functional_call(net, parameters, (row[:-1],)), row[1:])

    call, calls = counted(loss)
    found = func.vmap(func.grad(call), in_dims=(None, 0))(parameters, tokens)
    assert len(calls) == 1
    for i in range(4):
        for name, wanted in func.grad(loss)(parameters, tokens[i]).items():
            same(found[name][i], wanted)


def test_calls_nest() -> None:
    x, y = gt.tensor(X[0]), gt.tensor(Y[0])
    products = func.vmap(func.vmap(lambda a, b: (a * b).sum(), in_dims=(None, 0)), in_dims=(0, None))
    same(products(x, y), x @ y.T)
    same(
        func.vmap(func.vmap(lambda a: a * 2, in_dims=1, out_dims=1), in_dims=1)(gt.tensor(X)).sum(),
        gt.tensor(X).sum() * 2,
    )
    slopes = func.vmap(func.vmap(func.grad(lambda a, b: (a * b).sin()), in_dims=(0, None)), in_dims=(None, 0))
    same(slopes(x[0], y[0]), y[0][:, None] * (x[0] * y[0][:, None]).cos())


def test_what_the_batch_shares_gets_the_sum_of_gradients_outside_and_its_own_within() -> None:
    scale = gt.tensor([1.0, 2.0, 3.0]).double().requires_grad_()
    rows = gt.tensor(X[0, :, :3])
    func.vmap(lambda x: (scale * 2 * x).sum())(rows).sum().backward()
    same(scale.grad, rows.sum(0) * 2)

    def penalty(scale: gt.Tensor) -> gt.Tensor:
        each = func.vmap(func.grad(lambda s, x: ((s * x) ** 2).sum()), in_dims=(None, 0))(scale, rows)
        return (each**2).sum()

    # d/ds of the sum of (2 s x^2)^2.
    same(func.grad(penalty)(scale.detach()), (8 * scale * rows**4).sum(0))


def test_jacobians_take_one_backward_pass() -> None:
    passes = []

    class Square(gt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: gt.Tensor) -> gt.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: gt.Tensor) -> gt.Tensor:
            passes.append(1)
            return 2 * grad * ctx.saved_tensors[0]

    x = gt.tensor(X[0, 0])
    same(func.jacrev(Square.apply)(x), gt.diag(2 * x))
    assert len(passes) == 1
    same(gt.autograd.functional.jacobian(Square.apply, x), gt.diag(2 * x))
    assert len(passes) == 2
    same(func.jacrev(Square.apply, chunk_size=2)(x), gt.diag(2 * x))
    assert len(passes) == 5
    same(func.hessian(lambda x: (x**3).sum())(x), gt.diag(6 * x))
    same(gt.autograd.functional.hessian(lambda x: (x**3).sum(), x), gt.diag(6 * x))


def test_random_numbers() -> None:
    def noisy(x: gt.Tensor) -> gt.Tensor:
        return x + gt.rand(4) + functional.dropout(gt.ones(4), 0.5)

    call, calls = counted(noisy)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        func.vmap(call)(gt.zeros(2, 4))
    alike = func.vmap(call, randomness="same")(gt.zeros(2, 4))
    assert gt.equal(alike[0], alike[1])
    other = func.vmap(call, randomness="different")(gt.zeros(2, 4))
    assert not gt.equal(other[0], other[1])
    assert len(calls) == 3
    nested = func.vmap(func.vmap(noisy, randomness="same"), randomness="different")(gt.zeros(2, 3, 4))
    assert gt.equal(nested[0, 0], nested[0, 1])
    assert not gt.equal(nested[0, 0], nested[1, 0])


def test_a_function_that_looks_at_elements_is_called_for_each() -> None:
    def branch(x: gt.Tensor) -> gt.Tensor:
        return x * 2 if x.sum() > 0 else x - float(x[0])

    call, calls = counted(branch)
    x = gt.tensor([[1.0, 2.0], [-3.0, 1.0]])
    assert func.vmap(call)(x).tolist() == [[2, 4], [0, 4]]
    assert len(calls) == 3
    gt.manual_seed(3)
    func.vmap(lambda x: x * gt.rand(()) if x.item() else x, randomness="different")(gt.ones(2))
    after = gt.rand(())
    gt.manual_seed(3)
    gt.rand(())
    gt.rand(())
    assert gt.equal(gt.rand(()), after)


def test_in_place_operations() -> None:
    x = gt.tensor(X[0])
    doubled = func.vmap(lambda row: row.mul_(2))(x)
    assert gt.equal(x, gt.tensor(X[0]) * 2)
    assert gt.equal(doubled, x)

    def filled(row: gt.Tensor) -> gt.Tensor:
        made = gt.zeros(5).double()
        made[1:3] = row[1:3]
        made += 1
        return made

    wanted = gt.ones(4, 5).double()
    wanted[:, 1:3] += x[:, 1:3]
    assert gt.equal(func.vmap(filled)(x), wanted)
    # Each element adds to what was made outside, one after the other.
    total = gt.zeros(5).double()
    func.vmap(lambda row: total.add_(row))(x)
    np.testing.assert_allclose(total.numpy(), x.sum(0).numpy())


def test_a_part_of_the_batch_at_a_time() -> None:
    x = gt.tensor(X[0])
    call, calls = counted(lambda row: (row.sum(), row * 2))
    sums, doubled = func.vmap(call, out_dims=(0, 1), chunk_size=3)(x)
    assert len(calls) == 2
    same(sums, x.sum(1))
    same(doubled, (x * 2).T)


def test_axes_of_results() -> None:
    x = gt.tensor(X)
    same(func.vmap(lambda x: x, in_dims=-1, out_dims=-2)(x), x.permute(0, 2, 1))
    same(func.vmap(lambda _: gt.arange(3.0), out_dims=1)(x), gt.arange(3.0)[:, None].expand(3, 3))
    assert func.vmap(lambda _: gt.arange(3.0), out_dims=None)(x).tolist() == [0, 1, 2]
    assert func.vmap(lambda x: x * 2)(gt.zeros(0, 2)).shape == (0, 2)
    with pytest.raises(ValueError, match="out_dim is None"):
        func.vmap(lambda x: x, out_dims=None)(x)


def test_too_many_axes_are_computed_one_by_one() -> None:
    x = gt.arange(2.0).reshape(2, *(1,) * 7)
    found = func.vmap(lambda x: x[None] + 1 if x.ndim == 7 else x)(x[:, :, 0])
    assert found.shape == (2, *(1,) * 6)
    assert func.vmap(lambda x: (x.reshape(1, 1, 1, 1, 1, 1, 1, 1) * 2).sum())(x).tolist() == [0, 2]


def test_tensors_that_leave_the_call_say_so() -> None:
    kept = []
    func.vmap(lambda x: kept.append(x) or x)(gt.ones(2, 3))
    assert kept[0].shape == (3,)
    with pytest.raises(RuntimeError, match="not known within the function that vmap calls"):
        kept[0].tolist()
