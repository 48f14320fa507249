"""PyTorch's former signatures, in which a number precedes tensors: programs written before PyTorch 1.5 call them."""

from __future__ import annotations

import warnings

import pytest

import gt


@pytest.fixture(autouse=True)
def _quiet() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def test_add_and_sub_take_alpha_before_the_tensor() -> None:
    x, y = gt.tensor([1.0, 2.0]), gt.tensor([10.0, 20.0])
    assert x.add(0.5, y).tolist() == gt.add(x, 0.5, y).tolist() == [6.0, 12.0]
    assert x.sub(2, y).tolist() == gt.sub(x, 2, y).tolist() == [-19.0, -38.0]
    x.add_(-0.1, y)
    assert x.tolist() == [0.0, 0.0]


def test_addcmul_and_addcdiv_take_value_before_the_tensors() -> None:
    x, y, z = gt.tensor([1.0]), gt.tensor([6.0]), gt.tensor([3.0])
    assert x.addcmul(2, y, z).tolist() == gt.addcmul(x, 2, y, z).tolist() == [37.0]
    assert x.addcdiv(2, y, z).tolist() == gt.addcdiv(x, 2, y, z).tolist() == [5.0]
    assert x.addcdiv_(2, y, z) is x
    assert x.tolist() == [5.0]


def test_products_take_beta_and_alpha_before_the_tensors() -> None:
    x, a = gt.ones(2, 2), gt.ones(2, 2)
    assert x.addmm(2, a, a).tolist() == gt.addmm(2, x, a, a).tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert x.addmm(2, 3, a, a).tolist() == gt.addmm(2, x, 3, a, a).tolist() == [[8.0, 8.0], [8.0, 8.0]]
    assert x[0].addmv(2, 3, a, a[0]).tolist() == [8.0, 8.0]
    assert x.addr(2, a[0], a[0]).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_tensors_behind_a_number_may_have_names() -> None:
    x, y, a = gt.tensor([1.0, 2.0]), gt.tensor([10.0, 20.0]), gt.ones(2, 2)
    assert x.add(2, other=y).tolist() == gt.add(x, 2, other=y).tolist() == [21.0, 42.0]
    assert x.sub(2, other=3).tolist() == [-5.0, -4.0]
    assert x.clone().add_(2, other=y).tolist() == [21.0, 42.0]
    assert x.addcmul(2, y, tensor2=y).tolist() == x.addcmul(2, tensor1=y, tensor2=y).tolist() == [201.0, 802.0]
    assert gt.addmm(2, a, 3, mat1=a, mat2=a).tolist() == [[8.0, 8.0], [8.0, 8.0]]
    assert x.addmv(2, a, vec=y).tolist() == [32.0, 34.0]


def test_gradients_flow_through_a_former_signature() -> None:
    x, y = gt.ones(2, requires_grad=True), gt.ones(2, requires_grad=True)
    x.add(3, y).sum().backward()
    assert y.grad.tolist() == [3.0, 3.0]


def test_a_former_signature_warns_and_names_the_present_one() -> None:
    with pytest.warns(UserWarning, match="alpha=2"):
        gt.ones(1).add(2, gt.ones(1))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.add(x, 2),
        lambda x: x.add(x, x),
        lambda x: gt.addmm(x, 2, x, x),
        lambda x: x.add(2, 3, other=x),
    ],
)
def test_what_fits_no_signature_is_a_type_error(call: object) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        call(gt.ones(2, 2))
