"""Sparse tensors: COO, CSR and CSC give the values and gradients of the dense tensors that they stand for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from support import assert_close

import gt

PLACES = [[2, 0, 1, 0, 2], [1, 2, 0, 2, 3]]
VALUES = [1.0, 2.0, 3.0, 4.0, -5.0]
# The index (0, 2) is named twice.
DENSE = [[0.0, 0.0, 6.0, 0.0], [3.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, -5.0]]


def coo(**options: Any) -> gt.Tensor:
    return gt.sparse_coo_tensor(PLACES, VALUES, (3, 4), **options)


@pytest.fixture(params=["coo", "csr", "csc"])
def matrix(request: pytest.FixtureRequest) -> gt.Tensor:
    return {"coo": coo, "csr": lambda: coo().to_sparse_csr(), "csc": lambda: coo().to_sparse_csc()}[request.param]()


def test_all_layouts_stand_for_the_same_elements(matrix: gt.Tensor) -> None:
    assert matrix.shape == (3, 4)
    assert matrix.dtype == gt.float32
    assert matrix.to_dense().tolist() == DENSE
    assert matrix.t().to_dense().tolist() == gt.tensor(DENSE).T.tolist()
    for layout in (gt.sparse_coo, gt.sparse_csr, gt.sparse_csc):
        other = matrix.to_sparse(layout=layout)
        assert other.layout is layout
        assert other.to_dense().tolist() == DENSE


def test_equal_indices_are_added_in_order() -> None:
    x = coo()
    assert (x._nnz(), x.is_coalesced(), x.is_sparse, x.sparse_dim(), x.dense_dim()) == (5, False, True, 2, 0)
    with pytest.raises(RuntimeError, match=r"please call \.coalesce\(\) first"):
        x.indices()
    x = x.coalesce()
    assert x.indices().tolist() == [[0, 1, 2, 2], [2, 0, 1, 3]]
    assert x.values().tolist() == [6, 3, 1, -5]
    assert x.coalesce() is x


def test_compressed_indices() -> None:
    rows = coo().to_sparse_csr()
    assert rows.crow_indices().tolist() == [0, 1, 2, 4]
    assert rows.col_indices().tolist() == [2, 0, 1, 3]
    columns = coo().to_sparse_csc()
    assert columns.ccol_indices().tolist() == [0, 1, 2, 3, 4]
    assert columns.row_indices().tolist() == [1, 2, 0, 2]
    again = gt.sparse_csr_tensor(rows.crow_indices(), rows.col_indices(), rows.values(), (3, 4))
    assert again.to_dense().tolist() == DENSE
    again = gt.sparse_csc_tensor(columns.ccol_indices(), columns.row_indices(), columns.values(), (3, 4))
    assert again.to_dense().tolist() == DENSE
    with pytest.raises(RuntimeError, match="crow_indices expected a tensor with the layout"):
        columns.crow_indices()


def test_indices_are_converted() -> None:
    starts = gt._convert_indices_from_coo_to_csr(gt.tensor([0, 0, 2, 3]), 5)
    assert starts.tolist() == [0, 2, 2, 3, 4, 4]
    columns = gt.tensor([4, 5, 6, 7])
    assert gt._convert_indices_from_csr_to_coo(starts, columns).tolist() == [[0, 0, 2, 3], [4, 5, 6, 7]]
    turned = gt._convert_indices_from_csr_to_coo(starts, columns, out_int32=True, transpose=True)
    assert turned.tolist() == [[4, 5, 6, 7], [0, 0, 2, 3]]
    assert turned.dtype == gt.int32


def test_elements_of_a_dense_tensor() -> None:
    assert gt.tensor(DENSE).to_sparse().values().tolist() == [6, 3, 1, -5]
    assert gt.tensor(DENSE).to_sparse_csr().to_dense().tolist() == DENSE
    rows = gt.tensor(DENSE).to_sparse(1)
    assert (rows.sparse_dim(), rows.dense_dim(), rows._nnz()) == (1, 1, 3)
    assert rows.to_dense().tolist() == DENSE


def test_products(matrix: gt.Tensor) -> None:
    dense, x, row = gt.tensor(DENSE), gt.randn(4, 2), gt.randn(2, 3)
    for product in (gt.sparse.mm(matrix, x), matrix @ x, gt.mm(matrix, x), matrix.matmul(x)):
        assert_close(product, (dense @ x).numpy(), "float32", 1e-6)
    assert_close(matrix @ x[:, 0], (dense @ x[:, 0]).numpy(), "float32", 1e-6)
    assert_close(row @ matrix, (row @ dense).numpy(), "float32", 1e-6)
    assert_close(gt.sparse.addmm(gt.ones(3, 2), matrix, x, beta=2), (2 + dense @ x).numpy(), "float32", 1e-6)
    assert (matrix @ matrix.t()).to_dense().tolist() == (dense @ dense.T).tolist()
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(3x4 and 3x2\)|\(\(3, 4\) and \(3, 2\)\)"):
        gt.sparse.mm(matrix, gt.ones(3, 2))


def test_reductions_of_products() -> None:
    matrix, x = gt.tensor(DENSE).to_sparse_csr(), gt.tensor([[1.0], [2.0], [3.0], [4.0]])
    assert gt.sparse.mm(matrix, x, "mean").tolist() == [[18], [3], [-9]]
    assert gt.sparse.mm(matrix, x, "amax").tolist() == [[18], [3], [2]]
    assert gt.sparse.mm(matrix, x, "amin").tolist() == [[18], [3], [-20]]


def test_gradients_flow_to_the_named_elements_and_to_dense_operands() -> None:
    matrix, x = coo(requires_grad=True), gt.randn(4, 2, requires_grad=True)
    gt.sparse.mm(matrix, x).square().sum().backward()
    dense, y = gt.tensor(DENSE, requires_grad=True), x.detach().requires_grad_()
    (dense @ y).square().sum().backward()
    assert x.grad is not None
    assert_close(x.grad, y.grad.numpy(), "float32", 1e-5)
    assert matrix.grad.layout is gt.sparse_coo
    expected = dense.grad[tuple(gt.tensor(PLACES))]
    assert_close(matrix.grad._values(), expected.numpy(), "float32", 1e-5)

    values = gt.tensor(VALUES, requires_grad=True)
    (gt.sparse_coo_tensor(PLACES, values, (3, 4)).coalesce().to_dense() * 2).sum().backward()
    assert values.grad.tolist() == [2] * 5


def test_elementwise_functions(matrix: gt.Tensor) -> None:
    dense = gt.tensor(DENSE)
    scale = gt.tensor([[1.0], [2.0], [3.0]])
    for found, expected in (
        (matrix * 2, dense * 2),
        (2 * matrix, dense * 2),
        (matrix / 2, dense / 2),
        (matrix * scale, dense * scale),
        (-matrix, -dense),
        (matrix.abs(), dense.abs()),
        (gt.square(matrix), dense.square()),
        (matrix + matrix.to_sparse(layout=matrix.layout), dense * 2),
        (matrix - matrix * 3, dense * -2),
        (matrix.double(), dense.double()),
    ):
        assert found.layout is matrix.layout
        assert found.to_dense().tolist() == expected.tolist()
    assert (dense + matrix).tolist() == (2 * dense).tolist()


def test_sums(matrix: gt.Tensor) -> None:
    assert gt.sparse.sum(matrix).item() == 5
    assert matrix.sum().item() == 5
    for axis in (0, 1):
        found = gt.sparse.sum(matrix, axis)
        assert found.to_dense().tolist() == gt.tensor(DENSE).sum(axis).tolist()


def test_softmax_of_the_named_elements() -> None:
    matrix = gt.tensor(DENSE).to_sparse()
    expected = gt.tensor(DENSE).masked_fill(gt.tensor(DENSE) == 0, -gt.inf).softmax(1)
    assert_close(gt.sparse.softmax(matrix, 1).to_dense(), expected.numpy(), "float32", 1e-6)


def test_diagonals() -> None:
    found = gt.sparse.spdiags(gt.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), gt.tensor([0, 1]), (3, 3))
    assert found.to_dense().tolist() == [[1, 5, 0], [0, 2, 6], [0, 0, 3]]


def test_what_is_not_there_says_so(matrix: gt.Tensor) -> None:
    for call in (matrix.exp, lambda: gt.cat([matrix, matrix]), matrix.numpy, matrix.tolist, lambda: matrix[0]):
        with pytest.raises(NotImplementedError, match=r"not implemented for a tensor with .* layout.*to_dense\(\)"):
            call()


def test_wrong_indices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        gt.sparse_coo_tensor([[0, 3], [0, 0]], [1.0, 2.0], (3, 4))
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        gt.sparse_coo_tensor([[0, -1], [0, 0]], [1.0, 2.0], (3, 4))
    with pytest.raises(RuntimeError, match="do not name the elements"):
        gt.sparse_coo_tensor([[0], [0]], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="the three must be equal"):
        gt.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2))


def test_copies_and_text(matrix: gt.Tensor) -> None:
    for other in (copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix)), matrix.clone(), matrix.detach()):
        assert other.layout is matrix.layout
        assert other.to_dense().tolist() == DENSE
    assert f"nnz={matrix._nnz()}, layout={matrix.layout!r}" in repr(matrix)
    assert not gt.ones(2).is_sparse


def test_dense_axes_of_elements() -> None:
    x = gt.sparse_coo_tensor([[1, 1]], [[1.0, 2.0], [3.0, 4.0]], (3, 2))
    assert x.to_dense().tolist() == [[0, 0], [4, 6], [0, 0]]
    assert gt.sparse.sum(x, 0).tolist() == [4, 6]
    empty = gt.sparse_coo_tensor(gt.zeros(2, 0), gt.zeros(0), (2, 3))
    assert empty.coalesce().to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert (empty @ gt.ones(3, 1)).tolist() == [[0], [0]]
