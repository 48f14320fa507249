"""`out=`: functions that write their result to a given tensor."""

from __future__ import annotations

import numpy as np
import pytest

import gt


def test_the_result_is_the_tensor_that_was_given():
    out = gt.zeros(3)
    assert gt.add(gt.ones(3), 2, out=out) is out
    assert out.tolist() == [3, 3, 3]


def test_views_of_the_output_see_the_result():
    base = gt.zeros(2, 3)
    gt.exp(gt.zeros(3), out=base[1])
    assert base.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_it_may_have_a_wider_dtype_but_no_narrower_kind():
    out = gt.zeros(2, dtype=gt.float64)
    gt.mul(gt.tensor([1, 2]), 3, out=out)
    assert out.dtype == gt.float64
    assert out.tolist() == [3, 6]
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        gt.sqrt(gt.ones(2), out=gt.zeros(2, dtype=gt.int64))


def test_one_of_another_size_takes_the_size_of_the_result():
    out = gt.empty(0, dtype=gt.float64)
    gt.cat([gt.ones(2), gt.zeros(1)], out=out)
    assert out.dtype == gt.float64
    assert out.tolist() == [1, 1, 0]


def test_several_results_go_to_as_many_tensors():
    values, indices = gt.empty(2), gt.empty(2, dtype=gt.int64)
    result = gt.max(gt.tensor([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices))
    assert result.values is values
    assert values.tolist() == [5, 7]
    assert indices.tolist() == [1, 0]
    norm = gt.empty(())
    assert gt.norm(gt.tensor([3.0, 4.0]), 2, out=norm) is gt.norm(gt.tensor([3.0, 4.0]), out=norm) is norm
    assert norm.item() == 5


def test_new_tensors_take_the_dtype_of_the_one_that_is_given():
    out = gt.empty(0, dtype=gt.float64)
    assert gt.arange(3, out=out) is out
    assert out.dtype == gt.float64
    assert out.tolist() == [0, 1, 2]
    assert gt.linspace(0, 3, 4, out=gt.empty(4, dtype=gt.int64)).tolist() == [0, 1, 2, 3]
    assert gt.logspace(0, 2, 3, out=gt.empty(3)).tolist() == [1, 10, 100]
    assert gt.eye(2, out=out).tolist() == [[1, 0], [0, 1]]
    assert gt.full((2,), 7, out=out).tolist() == gt.randint(7, 8, (2,), out=out).tolist() == [7, 7]
    with pytest.raises(RuntimeError, match="the dtype asked for is not that of `out`"):
        gt.zeros(3, dtype=gt.float32, out=out)


def test_some_functions_refuse_another_dtype():
    with pytest.raises(RuntimeError, match="Expected the dtype for input and out to match"):
        gt.gather(gt.ones(2), 0, gt.tensor([1]), out=gt.zeros(1, dtype=gt.float64))
    with pytest.raises(RuntimeError, match="Expected the dtype for input and out to match"):
        gt.multinomial(gt.ones(2), 1, out=gt.zeros(1))


def test_linear_algebra_writes_to_it_too():
    matrix, out = gt.tensor([[4.0, 0], [0, 9]]), gt.empty(2, 2)
    assert gt.linalg.inv(matrix, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.linalg.inv(matrix.numpy()), rtol=1e-6)
    assert gt.linalg.cholesky(matrix, out=out).tolist() == [[2, 0], [0, 3]]
    values, vectors = gt.empty(2), gt.empty(2, 2)
    assert gt.linalg.eigh(matrix, out=(values, vectors)).eigenvalues is values
    assert values.tolist() == [4, 9]


def test_it_is_nothing_for_autograd():
    leaf, out = gt.ones(1, requires_grad=True), gt.zeros(1)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        gt.exp(leaf, out=out)
    with gt.no_grad():
        assert gt.t_copy(leaf, out=out).tolist() == [1]


def test_functions_refuse_numbers_where_pytorch_takes_tensors():
    with pytest.raises(TypeError, match=r"eq\(\): argument 'input' \(position 1\) must be Tensor, not int"):
        gt.eq(2, gt.ones(2))
    with pytest.raises(TypeError, match=r"maximum\(\): argument 'other' \(position 2\) must be Tensor, not float"):
        gt.maximum(gt.ones(2), 1.0)
    with pytest.raises(TypeError, match=r"igamma\(\): argument 'other' \(position 2\) must be Tensor, not int"):
        gt.igamma(gt.ones(2), 2)
    assert gt.sub(2, gt.ones(1)).tolist() == [1]
