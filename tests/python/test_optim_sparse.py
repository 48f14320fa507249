"""`SparseAdam`, and sparse gradients that a program assigns."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt

SparseAdam = gt.optim.SparseAdam


def gradient() -> Any:
    """A gradient of shape (4, 2) that names row 0 twice, and row 2."""
    return gt.sparse_coo_tensor([[0, 2, 0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (4, 2))


def reference(p: np.ndarray, grads: list[np.ndarray], lr: float, eps: float) -> np.ndarray:
    """Adam on rows of which the gradient is not 0."""
    mean, square = np.zeros_like(p), np.zeros_like(p)
    for step, grad in enumerate(grads, 1):
        named = (grad != 0).any(-1, keepdims=True)
        mean = np.where(named, 0.9 * mean + 0.1 * grad, mean)
        square = np.where(named, 0.999 * square + 0.001 * grad**2, square)
        size = lr * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        p = np.where(named, p - size * mean / (np.sqrt(square) + eps), p)
    return p


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_moves_what_its_gradients_name(maximize: bool) -> None:
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal((6, 3)), []
    p = gt.nn.Parameter(gt.tensor(start))
    optimizer = SparseAdam([p], lr=0.1, eps=1e-3, maximize=maximize)
    for _ in range(5):
        rows, values = rng.integers(0, 6, (1, 4)), rng.standard_normal((4, 3))
        grads.append(np.zeros((6, 3)))
        np.add.at(grads[-1], rows[0], -values if maximize else values)
        p.grad = gt.sparse_coo_tensor(rows, values, (6, 3))
        optimizer.step()
    assert_close(p.detach(), reference(start, grads, 0.1, 1e-3), "float64", 1e-12)


def test_sparse_adam_has_pytorch_s_state() -> None:
    p = gt.nn.Parameter(gt.ones(4, 2))
    optimizer = SparseAdam([p], lr=0.1)
    p.grad = gradient()
    optimizer.step()
    saved = optimizer.state_dict()
    # PyTorch 2.15's numbers; its step is a number, too, unlike Adam's.
    assert type(saved["state"][0]["step"]) is int
    assert saved["state"][0]["step"] == 1
    assert_close(saved["state"][0]["exp_avg"], [[0.6, 0.8], [0, 0], [0.3, 0.4], [0, 0]], "float32", 1e-6)
    assert_close(saved["state"][0]["exp_avg_sq"][::2], [[0.036, 0.064], [0.009, 0.016]], "float32", 1e-6)
    assert saved["param_groups"] == [{"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "maximize": False, "params": [0]}]
    file = io.BytesIO()
    gt.save(saved, file)
    other = SparseAdam([p])
    file.seek(0)
    other.load_state_dict(gt.load(file))
    p.grad = gt.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (4, 2))
    other.step()
    assert_close(p.detach(), [[0.9, 0.8243], [0.9256, 1], [0.9, 0.9], [1, 1]], "float32", 1e-4)
    p.grad = gt.sparse_coo_tensor(gt.zeros(2, 0), gt.zeros(0), (4, 2))
    other.step()
    assert other.state_dict()["state"][0]["step"] == 3


def test_sparse_adam_refuses_what_pytorch_s_refuses() -> None:
    p = gt.nn.Parameter(gt.ones(4, 2))
    for options, message in (
        ({"lr": 0.0}, "Invalid learning rate: 0.0"),
        ({"eps": 0.0}, "Invalid epsilon value: 0.0"),
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"betas": (0.5, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            SparseAdam([p], **options)
    with pytest.raises(ValueError, match=r"Sparse params at indices \[\[0, 1\]\]"):
        SparseAdam([p, gt.ones(2, 2).to_sparse()])
    with pytest.raises(ValueError, match=r"Complex params at indices \[\[1, 0\]\]"):
        SparseAdam([{"params": [p]}, {"params": [gt.ones(2, dtype=gt.complex64)]}])
    optimizer = SparseAdam([p])
    p.grad = gt.ones(4, 2)
    with pytest.raises(RuntimeError, match="does not support dense gradients, please consider Adam instead"):
        optimizer.step()


def test_a_sparse_gradient_is_the_one_assigned() -> None:
    p, other = gt.nn.Parameter(gt.ones(4, 2)), gt.nn.Parameter(gt.ones(4, 2))
    given = gradient()
    p.grad = given
    assert p.grad is given
    assert other.grad is None
    assert_close(copy.deepcopy(p).grad.to_dense(), given.to_dense().numpy())
    # The sum with a dense gradient is dense.
    (3 * p).sum().backward()
    assert_close(p.grad, given.to_dense().numpy() + 3)
    p.grad = given
    SparseAdam([p]).zero_grad(set_to_none=False)
    assert p.grad.is_sparse
    assert p.grad._nnz() == 0
    p.grad = gt.ones(4, 2)
    assert not p.grad.is_sparse
    p.grad = given
    p.grad = None
    assert p.grad is None
    for wrong, message in (
        (gt.ones(4, 2).to_sparse_csr(), "data of a different type"),
        (gt.ones(4, 3).to_sparse(), "different size or type"),
        (gt.ones(4, 2).double().to_sparse(), "different size or type"),
    ):
        with pytest.raises(RuntimeError, match=message):
            p.grad = wrong


def test_an_optimizer_for_dense_gradients_refuses_a_sparse_one() -> None:
    p = gt.nn.Parameter(gt.ones(4, 2))
    p.grad = gradient()
    with pytest.raises(
        RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam instead"
    ):
        gt.optim.Adam([p]).step()
