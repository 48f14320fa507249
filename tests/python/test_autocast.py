"""`autocast` computes products in less precision and losses in float32, as PyTorch's does on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import gt
from gt import nn
from gt.nn import functional as F  # noqa: N812

LAYER = nn.Linear(3, 3)


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a @ b,
        lambda a, b: a.matmul(b),
        lambda a, b: gt.matmul(a, b),
        lambda a, b: gt.mm(a, b),
        lambda a, b: gt.bmm(a[None], b[None]),
        lambda a, b: gt.addmm(a, a, b),
        lambda a, b: gt.baddbmm(a[None], a[None], b[None]),
        lambda a, b: gt.einsum("ij,jk->ik", a, b),
        lambda a, b: F.linear(a, b, b[0]),
        lambda a, b: F.scaled_dot_product_attention(a[None], b[None], b[None]),
        lambda a, _: LAYER(a),
        lambda a, b: F.conv1d(a[None], b[..., None]),
        lambda a, b: F.conv_transpose1d(a[None], b[..., None]),
    ],
)
def test_products_are_computed_in_bfloat16(product: Callable[[gt.Tensor, gt.Tensor], gt.Tensor]) -> None:
    a, b = gt.rand(3, 3), gt.rand(3, 3, requires_grad=True)
    with gt.autocast("cpu", dtype=gt.bfloat16):
        result = product(a, b)
        assert result.dtype == gt.bfloat16
    assert product(a, b).dtype == gt.float32
    # Parameters and their gradients keep their dtype.
    result.float().sum().backward()
    assert b.grad is None or b.grad.dtype == gt.float32
    assert gt.allclose(result.float(), product(a, b), atol=0.1)


def test_ops_other_than_products_keep_their_dtype() -> None:
    a = gt.rand(3, 3)
    with gt.autocast("cpu"):
        for result in (a + a, a.exp(), a.softmax(0), F.layer_norm(a, (3,)), a.sum(), a * 2):
            assert result.dtype == gt.float32
        assert (a @ a).softmax(0).dtype == gt.bfloat16
        assert (a.double() @ a.double()).dtype == gt.float64
        assert (a.long() @ a.long()).dtype == gt.int64


def test_losses_are_computed_in_float32() -> None:
    scores, target = gt.rand(4, 3).bfloat16(), gt.tensor([0, 1, 2, 0])
    with gt.autocast("cpu"):
        assert F.cross_entropy(scores, target).dtype == gt.float32
        assert F.mse_loss(scores, scores).dtype == gt.float32
    assert F.cross_entropy(scores, target).dtype == gt.bfloat16


def test_it_is_entered_left_and_nested() -> None:
    a = gt.rand(2, 2)

    @gt.autocast("cpu", dtype=gt.float16)
    def product() -> gt.Tensor:
        return a @ a

    assert product().dtype == gt.float16
    with gt.autocast("cpu") as context:
        assert context.fast_dtype == gt.bfloat16
        assert gt.is_autocast_enabled("cpu")
        assert gt.get_autocast_dtype("cpu") == gt.bfloat16
        with gt.amp.autocast("cpu", enabled=False):
            assert (a @ a).dtype == gt.float32
        assert product().dtype == gt.float16
        assert (a @ a).dtype == gt.bfloat16
        other: list[gt.Tensor] = []
        thread = threading.Thread(target=lambda: other.append(a @ a))
        thread.start()
        thread.join()
        assert other[0].dtype == gt.float32
    assert not gt.is_autocast_enabled("cpu")


def test_a_device_that_is_not_there_changes_nothing() -> None:
    if gt.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.warns(UserWarning, match="CUDA is not available"), gt.autocast("cuda"):
        assert (gt.rand(2, 2) @ gt.rand(2, 2)).dtype == gt.float32
    with pytest.warns(UserWarning, match="CUDA is not available"):
        gt.cuda.amp.autocast()


def test_unknown_dtypes_and_devices_are_refused() -> None:
    with pytest.warns(UserWarning, match="target dtype is not supported"), gt.autocast("cpu", dtype=gt.float32):
        assert not gt.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'gpu'"):
        gt.autocast("gpu")


def test_a_scaler_skips_steps_that_are_not_finite() -> None:
    p = nn.Parameter(gt.tensor([1.0]))
    optimizer = gt.optim.SGD([p], lr=0.5)
    scaler = gt.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scaler.scale(p.sum()).backward()
    assert p.grad.tolist() == [8.0]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [1.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5]
    p.grad = gt.tensor([float("inf")])
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5]
    assert scaler.get_scale() == 4.0
    for _ in range(2):
        p.grad = gt.tensor([0.0])
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 8.0
    other = gt.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0


def test_a_scaler_for_a_device_that_is_not_there_has_no_effect() -> None:
    if gt.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = gt.cuda.amp.GradScaler()
    p = nn.Parameter(gt.tensor([1.0]))
    scaler.scale(p.sum()).backward()
    scaler.step(gt.optim.SGD([p], lr=0.5))
    scaler.update()
    assert p.tolist() == [0.5]
    assert scaler.state_dict() == {}


def test_compiling_changes_nothing() -> None:
    model = nn.Linear(1, 1)
    assert gt.compile(model) is model
    assert gt.compile(model, mode="max-autotune", fullgraph=True) is model

    @gt.compile
    def f(x: int) -> int:
        return x

    @gt.compile(dynamic=True)
    def g(x: int) -> int:
        return x

    @gt.jit.script
    def h(x: int) -> int:
        return x

    assert f(1) == g(1) == h(1) == gt.jit.trace(f, 1)(1) == 1
    with pytest.raises(NotImplementedError, match="state_dict"):
        gt.jit.save(model, "model.pt")
