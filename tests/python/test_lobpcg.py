"""`lobpcg` against SciPy's decompositions of whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from support import assert_close

import gt

SIZE = 30
RNG = np.random.default_rng(0)
ROTATION = np.linalg.qr(RNG.standard_normal((SIZE, SIZE)))[0]
MATRIX = ROTATION @ np.diag(np.arange(1.0, SIZE + 1) ** 1.5) @ ROTATION.T
MATRIX = (MATRIX + MATRIX.T) / 2
FACTOR = RNG.standard_normal((SIZE, SIZE))
METRIC = FACTOR @ FACTOR.T + SIZE * np.eye(SIZE)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    gt.manual_seed(0)


def check(found: tuple[gt.Tensor, gt.Tensor], metric: np.ndarray | None, count: int, largest: bool, dtype: str) -> None:
    """Compares eigenvalues with SciPy's, and checks that the vectors belong to them and are orthonormal."""
    values, vectors = (t.numpy().astype(np.float64) for t in found)
    known = scipy.linalg.eigh(MATRIX, metric, eigvals_only=True)
    precision = {"float64": 1e-10, "float32": 1e-4}[dtype]
    np.testing.assert_allclose(values, known[::-1][:count] if largest else known[:count], rtol=precision)
    product = vectors if metric is None else metric @ vectors
    residuals = np.linalg.norm(MATRIX @ vectors - product * values, axis=0)
    sizes = np.linalg.norm(MATRIX, 2) * np.linalg.norm(vectors, axis=0) + np.abs(values) * np.linalg.norm(
        product, axis=0
    )
    assert (residuals < {"float64": 3e-8, "float32": 1e-3}[dtype] * sizes).all()
    np.testing.assert_allclose(vectors.T @ product, np.eye(count), atol=precision)


@pytest.mark.parametrize("method", ["ortho", "basic"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("metric", [None, METRIC], ids=["A", "A and B"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_extreme_eigenpairs(method: str, largest: bool, metric: Any, dtype: str) -> None:
    a, b = (None if array is None else gt.tensor(array.astype(dtype)) for array in (MATRIX, metric))
    check(gt.lobpcg(a, k=3, B=b, largest=largest, method=method), metric, 3, largest, dtype)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n": 4},
        {"X": RNG.standard_normal((SIZE, 3))},
        {"k": None, "X": RNG.standard_normal((SIZE, 2))},
        {"iK": np.linalg.inv(MATRIX), "largest": False},
        {"iK": np.linalg.inv(MATRIX), "largest": False, "method": "basic"},
        {"niter": -1},
        {"ortho_bparams": {"ortho_use_drop": True}, "ortho_iparams": {"ortho_i_max": 4}, "ortho_fparams": {}},
    ],
    ids=lambda options: " ".join(options) or "none",
)
def test_options(options: dict[str, Any]) -> None:
    given = {name: gt.tensor(v) if isinstance(v, np.ndarray) else v for name, v in {"k": 2, **options}.items()}
    check(gt.lobpcg(gt.tensor(MATRIX), **given), None, 2, options.get("largest", True), "float64")


def test_sparse_matrices_and_batches() -> None:
    a = gt.tensor(MATRIX)
    check(gt.lobpcg(a.to_sparse(), k=2), None, 2, True, "float64")
    values, vectors = gt.lobpcg(gt.stack([a, 2 * a]).unsqueeze(1), k=2)
    assert (values.shape, vectors.shape) == ((2, 1, 2), (2, 1, SIZE, 2))
    check((values[0, 0], vectors[0, 0]), None, 2, True, "float64")
    assert_close(values[1], 2 * values[0].numpy(), tolerance=1e-9)


def test_a_tracker_sees_each_step_and_may_stop() -> None:
    steps = []

    def track(run: Any) -> None:
        steps.append((run.ivars["istep"], run.X.shape, run.E.shape, run.R.shape, run.tvars["rerr"].shape))
        run.bvars["force_stop"] = len(steps) == 3

    gt.lobpcg(gt.tensor(MATRIX), k=2, tracker=track)
    assert steps == [(i, (SIZE, 2), (2,), (SIZE, 2), (2,)) for i in (1, 2, 3)]
    counts: list[int] = []
    gt.lobpcg(gt.tensor(MATRIX), k=2, niter=4, tracker=lambda run: counts.append(run.ivars["converged_count"]))
    assert counts == [0] * 4


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_gradient_is_that_of_a_whole_decomposition(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    shift = rng.standard_normal((*batch, SIZE, SIZE)) / 10
    by_values, by_vectors = (gt.tensor(rng.standard_normal((*batch, *shape))) for shape in ((3,), (SIZE, 3)))
    grads = []
    for decompose in (lambda a: gt.lobpcg(a, k=3, tol=1e-13), lambda a: gt.linalg.eigh((a + a.mT) / 2)):
        a = gt.tensor(MATRIX + shift + shift.swapaxes(-1, -2), requires_grad=True)
        values, vectors = decompose(a)
        if values.shape[-1] > 3:
            values, vectors = values[..., -3:].flip(-1), vectors[..., -3:].flip(-1)
        signs = vectors.detach()[..., :1, :].sign()
        ((values * by_values).sum() + (vectors * signs * by_vectors).sum()).backward()
        grads.append(a.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-8)


def test_what_is_refused() -> None:
    a = gt.tensor(MATRIX)
    for error, message, call in (
        (AssertionError, "A must be square", lambda: gt.lobpcg(a[1:])),
        (AssertionError, "A and B must have same shape", lambda: gt.lobpcg(a, B=a[1:])),
        (AssertionError, "X shape mismatch", lambda: gt.lobpcg(a, X=a[1:, :2])),
        (ValueError, r"number of A rows \(=5\)", lambda: gt.lobpcg(a[:5, :5], k=2)),
        (ValueError, "method must be", lambda: gt.lobpcg(a, method="lanczos")),
        (ValueError, "X is 0", lambda: gt.lobpcg(a, X=gt.zeros(SIZE, 1).double())),
        (NotImplementedError, "float32 or float64", lambda: gt.lobpcg(a.half())),
        (ValueError, "sparse input", lambda: gt.lobpcg(a.to_sparse().requires_grad_())),
        (ValueError, "B != I", lambda: gt.lobpcg(a, B=gt.tensor(METRIC, requires_grad=True))[0].sum().backward()),
        (gt.linalg.LinAlgError, "cholesky", lambda: gt.lobpcg(a, X=gt.ones(SIZE, 2).double(), method="basic")),
    ):
        with pytest.raises(error, match=message):
            call()
