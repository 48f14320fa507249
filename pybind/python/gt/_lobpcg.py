"""`lobpcg`: a few extreme eigenpairs of a large symmetric matrix, of which products alone are needed.

LOBPCG is Knyazev 2001, "Toward the Optimal Preconditioned Eigensolver"; the orthogonal basis and the criterion of
convergence are those of Duersch, Shao, Yang and Gu 2018, "A Robust and Efficient Implementation of LOBPCG", and
`_svqb` is Stathopoulos and Wu 2002, "A Block Orthogonalization Procedure with Constant Synchronization Requirements".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._functions import linalg
from gt._gt import Tensor
from gt.autograd.function import Function

__all__ = ["LOBPCG", "lobpcg"]

__getattr__ = _absent.getter(__name__)

# The relative distance of neighbouring numbers, of which the default tolerance is the square root, as PyTorch has it.
_PRECISIONS = {gt.float32: 1.2e-7, gt.float64: 2.23e-16}


def _times(matrix: Any, x: Tensor) -> Tensor:
    """A dense or sparse matrix, or the identity if it is `None`, times a dense one."""
    return x if matrix is None else matrix @ x


def _eigenpairs(matrix: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of a small symmetric matrix, the requested ones first."""
    values, vectors = linalg.eigh(matrix)
    return (values.flip(-1), vectors.flip(-1)) if largest else (values, vectors)


class LOBPCG:
    """The state of one run of `lobpcg`, which a `tracker` receives at each step.

    Attributes:
        iparams: The integers among the parameters, as `m`, `n`, `k` and `niter`.
        fparams: The floats among the parameters, as `tol`.
        bparams: The bools among the parameters, as `largest`.
        ivars: The integers that steps change: `istep` and `converged_count`.
        fvars: The floats that steps change: norms, and the errors of the basis.
        bvars: The bools that steps change; a tracker that sets `force_stop` ends the run.
        tvars: The tensors that steps change: `rerr`, the relative error of each pair.
        A: The matrix, and `B` and `iK`, as they were given.
        E: The approximate eigenvalues.
        X: The approximate eigenvectors.
        S: The basis of the subspace in which the next ones are sought.
        R: The residuals `A X - B X E`.
    """

    def __init__(
        self,
        A: Tensor,
        B: Tensor | None,
        X: Tensor,
        iK: Tensor | None,
        iparams: dict[str, int],
        fparams: dict[str, float],
        bparams: dict[str, bool],
        method: str,
        tracker: Callable[[LOBPCG], Any] | None,
    ) -> None:
        self.A, self.B, self.iK, self.method, self.tracker = A, B, iK, method, tracker
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        self.X = self.S = self.R = X
        self.E = X.new_zeros(X.shape[1])
        self.ivars: dict[str, int] = {"istep": 0, "converged_count": 0}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {}
        self.tvars: dict[str, Tensor] = {}

    def run(self) -> None:
        """Iterates until `k` pairs have converged, `niter` steps are done, or the tracker sets `force_stop`."""
        self._start()
        self._finish_step()
        while not self._is_done():
            self._step()
            self._finish_step()

    def _finish_step(self) -> None:
        self.ivars["istep"] += 1
        if self.tracker is not None:
            self.tracker(self)

    def _is_done(self) -> bool:
        is_converged = self.ivars["converged_count"] >= self.iparams["k"]
        return is_converged or self.ivars["istep"] == self.iparams["niter"] or self.bvars.get("force_stop", False)

    def _start(self) -> None:
        """The first approximation: the best one in the space of the given vectors."""
        norm = float(linalg.vector_norm(self.X))
        if norm == 0:
            raise ValueError("lobpcg: the first approximation X is 0, which has no direction")
        self.fvars["X_norm"] = norm
        self.fvars["A_norm"] = float(linalg.vector_norm(_times(self.A, self.X))) / norm
        self.fvars["B_norm"] = float(linalg.vector_norm(_times(self.B, self.X))) / norm
        self.E, self.X = self._ritz(self.X)
        self._find_residuals()
        self._extend(self.X)

    def _step(self) -> None:
        """The best approximation in the space of the last one, the last direction and the residuals."""
        converged, count = self.ivars["converged_count"], self.iparams["n"]
        open_count = count - converged
        space = self.S[:, converged:]
        if self.method == "ortho":
            values, rotation = _eigenpairs(space.mT @ _times(self.A, space), self.bparams["largest"])
            found = space @ rotation[:, :open_count]
            rest = linalg.qr(rotation[:open_count, open_count:].mT)[0]
            direction = space @ (rotation[:, open_count:] @ rest)
        else:
            transform = self._orthonormalizing(space)
            values, rotation = _eigenpairs(self._projected(space, transform), self.bparams["largest"])
            weights = (transform @ rotation)[:, :open_count]
            found, direction = space @ weights, space[:, open_count:] @ weights[open_count:]
        self.X = gt.cat([self.X[:, :converged], found], 1)
        self.E = gt.cat([self.E[:converged], values[:open_count]])
        self._find_residuals()
        self._extend(gt.cat([self.X, direction], 1))

    def _find_residuals(self) -> None:
        """The residuals, and how many of the first pairs have converged: none that follows one that has not."""
        self.R = _times(self.A, self.X) - _times(self.B, self.X) * self.E
        sizes = self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"]
        errors = linalg.vector_norm(self.R, dim=0) / (linalg.vector_norm(self.X, dim=0) * sizes)
        self.tvars["rerr"] = errors
        known = [bool(error < self.fparams["tol"]) for error in errors.tolist()]
        count = known.index(False) if False in known else len(known)
        self.ivars["converged_count"] = max(count, self.ivars["converged_count"])

    def _extend(self, basis: Tensor) -> None:
        """Makes the next basis: a given one, and the preconditioned residuals that have not converged."""
        converged, count = self.ivars["converged_count"], self.iparams["n"]
        added = _times(self.iK, self.R[:, converged:])
        if self.method == "ortho":
            self.S = gt.cat([basis, self._orthogonal_to(basis, added)], 1)
            return
        # The space of the next step must not have those again that have converged.
        found, rest = basis[:, :converged], gt.cat([basis[:, count:], added], 1)
        rest = rest - found @ (found.mT @ _times(self.B, rest))
        self.S = gt.cat([basis[:, :count], rest], 1)

    def _ritz(self, space: Tensor) -> tuple[Tensor, Tensor]:
        """The Ritz values and vectors of a space, by the procedure of Rayleigh and Ritz."""
        transform = self._orthonormalizing(space)
        values, rotation = _eigenpairs(self._projected(space, transform), self.bparams["largest"])
        return values, space @ (transform @ rotation)

    def _projected(self, space: Tensor, transform: Tensor) -> Tensor:
        return transform.mT @ (space.mT @ _times(self.A, space)) @ transform

    def _orthonormalizing(self, space: Tensor) -> Tensor:
        """The upper triangular matrix by which the columns become orthonormal in the product of `B`.

        Raises:
            LinAlgError: The columns depend on each other.
        """
        gram = space.mT @ _times(self.B, space)
        scale = gram.diagonal().rsqrt()
        factor = linalg.cholesky(gram * scale * scale.unsqueeze(1), upper=True)
        return linalg.solve_triangular(factor, scale.diag_embed(), upper=True, left=False)

    def _svqb(self, columns: Tensor, drop: bool, tolerance: float) -> Tensor:
        """Columns orthonormalized by the eigenvectors of their Gram matrix; `drop` omits those that add nothing."""
        gram = columns.mT @ _times(self.B, columns)
        nonzero = gram.diagonal() != 0
        if not bool(nonzero.all()):
            places = nonzero.nonzero().squeeze(1)
            columns, gram = columns[:, places], gram[places][:, places]
        if columns.shape[1] == 0:
            return columns
        scale = gram.diagonal().rsqrt()
        values, vectors = linalg.eigh(gram * scale * scale.unsqueeze(1))
        least = tolerance * values.abs().max()
        if drop:
            places = (values > least).nonzero().squeeze(1)
            values, vectors = values[places], vectors[:, places]
        else:
            values = values.maximum(least)
        return (columns * scale) @ (vectors * values.rsqrt())

    def _orthogonal_to(self, basis: Tensor, columns: Tensor) -> Tensor:
        """Orthonormal columns for the part of given ones that a basis does not span, in the product of `B`."""
        i, f, use_drop = self.iparams, self.fparams, self.bparams["ortho_use_drop"]
        basis_norm = float(linalg.vector_norm(_times(self.B, basis)))
        for outer in range(i["ortho_i_max"]):
            columns = columns - basis @ (basis.mT @ _times(self.B, columns))
            for inner in range(i["ortho_j_max"]):
                is_first = use_drop and inner == 0
                tolerance = f["ortho_tol_drop"] if is_first else f["ortho_tol_replace"]
                columns = self._svqb(columns, use_drop and not is_first, tolerance)
                if columns.shape[1] == 0:
                    return columns
                product = _times(self.B, columns)
                gram = columns.mT @ product
                size = float(linalg.vector_norm(product) * linalg.vector_norm(columns))
                error = float(linalg.vector_norm(gram - gt.eye(gram.shape[0], dtype=gram.dtype))) / size
                self.fvars[f"ortho_UBUmI_rerr[{outer}, {inner}]"] = error
                if error < f["ortho_tol"]:
                    break
            size = basis_norm * float(linalg.vector_norm(columns))
            error = float(linalg.vector_norm(basis.mT @ _times(self.B, columns))) / size
            self.fvars[f"ortho_VBU_rerr[{outer}]"] = error
            if error < f["ortho_tol"]:
                break
            if i["m"] < columns.shape[1] + basis.shape[1]:
                raise ValueError(
                    f"Overdetermined shape of U: #B-cols(={i['m']}) >= #U-cols(={columns.shape[1]}) + "
                    f"#V-cols(={basis.shape[1]}) must hold"
                )
        return columns


class _WithGradient(Function):
    """Eigenpairs with the gradient of the matrix, which is dense."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor | None, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        values, vectors = _pairs(A.detach(), B=None if B is None else B.detach(), **options)
        ctx.has_B = B is not None
        ctx.save_for_backward(A, values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.has_B:
            raise ValueError("lobpcg.backward does not support backward with B != I yet.")
        A, values, vectors = ctx.saved_tensors
        # A pair (d, u) changes with A by d' = u^T A' u and u' = (d - A)^+ A' u. Without the part along u, the
        # pseudoinverse is an inverse once u has another eigenvalue than 0.
        columns = vectors.mT.unsqueeze(-1)
        along = columns @ columns.mT
        size = values.abs().amax() + 1
        shifted = values[..., None, None] * gt.eye(A.shape[-1], dtype=A.dtype) - A.unsqueeze(-3) + size * along
        given = grads[1].mT.unsqueeze(-1)
        moved = linalg.solve(shifted, given - along @ given).squeeze(-1).mT
        return (vectors * grads[0].unsqueeze(-2) + moved) @ vectors.mT, None, None


def _pairs(
    A: Tensor,
    k: int | None,
    B: Tensor | None,
    X: Tensor | None,
    n: int | None,
    iK: Tensor | None,
    niter: int | None,
    tol: float | None,
    largest: bool | None,
    method: str | None,
    tracker: Callable[[LOBPCG], Any] | None,
    parameters: tuple[dict[str, int], dict[str, float], dict[str, bool]],
) -> tuple[Tensor, Tensor]:
    if A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"A must be square, got shape {A.shape}")
    if B is not None and tuple(A.shape) != tuple(B.shape):
        raise AssertionError(f"A and B must have same shape, got {A.shape} vs {B.shape}")
    if A.dtype not in _PRECISIONS:
        raise NotImplementedError(f"lobpcg: A must be float32 or float64, but it is {A.dtype}")
    if method not in (None, "ortho", "basic"):
        raise ValueError(f"lobpcg: method must be 'ortho' or 'basic', but it is {method!r}")
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    if m < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of "
            f"requested eigenpairs (={n})"
        )
    tol = _PRECISIONS[A.dtype] ** 0.5 if tol is None else tol
    defaults = {"ortho_tol": tol, "ortho_tol_drop": tol, "ortho_tol_replace": tol}
    given_i, given_f, given_b = parameters
    niter = 1000 if niter is None else niter
    iparams = {"m": m, "n": n, "k": k, "niter": niter, "ortho_i_max": 3, "ortho_j_max": 3, **given_i}
    fparams = {"tol": tol, **defaults, **given_f}
    bparams = {"largest": largest is not False, "ortho_use_drop": False, **given_b}

    def one(A: Tensor, B: Tensor | None, X: Tensor | None) -> tuple[Tensor, Tensor]:
        X = gt.randn(m, n, dtype=A.dtype) if X is None else X
        if tuple(X.shape) != (m, n):
            raise AssertionError(f"X shape mismatch: got {X.shape}, expected {(m, n)}")
        run = LOBPCG(A, B, X, iK, iparams, fparams, bparams, method or "ortho", tracker)
        run.run()
        return run.E[:k], run.X[:, :k]

    if A.ndim == 2:
        return one(A, B, X)
    batch = tuple(A.shape[:-2])
    several = [None if t is None else t.reshape(-1, *t.shape[-2:]) for t in (A, B, X)]
    found = []
    for i in range(several[0].shape[0]):  # type: ignore[union-attr]
        iparams["batch_index"] = i
        found.append(one(*(None if t is None else t[i] for t in several)))  # type: ignore[arg-type]
    if not found:
        return A.new_empty((*batch, k)), A.new_empty((*batch, m, k))
    values, vectors = (gt.stack(parts) for parts in zip(*found, strict=True))
    return values.reshape(*batch, k), vectors.reshape(*batch, m, k)


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable[[LOBPCG], Any] | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The largest or smallest eigenvalues of a symmetric matrix, and their eigenvectors: `A x = e B x`.

    It multiplies by `A` alone, which may be sparse, and needs no decomposition of it. The gradient of `A` is symmetric;
    there is none for sparse matrices or with `B`.

    Args:
        A: Symmetric matrices of shape (..., m, m) in float32 or float64; a sparse one has no batch.
        k: The number of pairs; the columns of `X` by default, or 1.
        B: Symmetric positive definite matrices of the shape of `A`; the identity by default.
        X: The first approximation of the eigenvectors, of shape (..., m, n); random by default.
        n: The number of vectors that are improved together, of which the first `k` are returned; `k` by default.
        iK: The preconditioner, of shape (m, m): an approximation of the inverse of `A`.
        niter: The largest number of steps, 1000 by default; -1 sets no limit.
        tol: The relative residual at which a pair has converged; the root of the dtype's precision by default.
        largest: Whether the largest eigenvalues are wanted, as by default, or the smallest.
        method: `"ortho"`, the default, with an orthogonal basis; or `"basic"`, Knyazev's, which may fail.
        tracker: Called with the `LOBPCG` object after each step.
        ortho_iparams: `ortho_i_max` and `ortho_j_max`, the limits of steps that make the basis orthogonal.
        ortho_fparams: Their tolerances `ortho_tol`, `ortho_tol_drop` and `ortho_tol_replace`.
        ortho_bparams: `ortho_use_drop`: whether the basis leaves out vectors that add nothing.

    Returns:
        The eigenvalues, of shape (..., k), and the eigenvectors, of shape (..., m, k).

    Raises:
        ValueError: m is smaller than 3 n.

    Example:
        >>> values, vectors = gt.lobpcg(gt.arange(1.0, 13.0).diag(), k=2)
        >>> values
        tensor([12.0000, 11.0000])
    """
    parameters = (ortho_iparams or {}, ortho_fparams or {}, ortho_bparams or {})
    options = {
        "k": k, "X": X, "n": n, "iK": iK, "niter": niter, "tol": tol, "largest": largest, "method": method,
        "tracker": tracker, "parameters": parameters,
    }  # fmt: skip
    if not (A.requires_grad or (B is not None and B.requires_grad)):
        return _pairs(A, B=B, **options)
    if A.layout is not gt.strided or (B is not None and B.layout is not gt.strided):
        raise ValueError("lobpcg.backward does not support sparse input yet. Note that lobpcg.forward does though.")
    symmetric = [None if t is None else (t + t.mT) / 2 for t in (A, B)]
    result: tuple[Tensor, Tensor] = _WithGradient.apply(*symmetric, options)
    return result
