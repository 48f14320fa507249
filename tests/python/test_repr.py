"""`repr` is PyTorch's except for the module's name. PyTorch printed the expected texts."""

from __future__ import annotations

import pytest

import gt

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (1, "tensor(1)"),
        (1.0, "tensor(1.)"),
        (-1.5, "tensor(-1.5000)"),
        (True, "tensor(True)"),
        (1e-5, "tensor(1.0000e-05)"),
        (123456.0, "tensor(123456.)"),
        (NAN, "tensor(nan)"),
        (-INF, "tensor(-inf)"),
        ([], "tensor([])"),
        ([1, -20, 300], "tensor([  1, -20, 300])"),
        ([1.0, 2.0], "tensor([1., 2.])"),
        ([1.0, 2.5], "tensor([1.0000, 2.5000])"),
        ([-1.0, 22.0], "tensor([-1., 22.])"),
        ([1.0, NAN, INF], "tensor([1., nan, inf])"),
        ([0.5, NAN, -INF], "tensor([0.5000,    nan,   -inf])"),
        ([1.0, 1e5], "tensor([1.0000e+00, 1.0000e+05])"),
        ([0.5, 1e-5], "tensor([5.0000e-01, 1.0000e-05])"),
        ([0.0, 0.0], "tensor([0., 0.])"),
        ([1e9], "tensor([1.0000e+09])"),
        ([True, False], "tensor([ True, False])"),
        ([[1.0, 2.0], [3.0, 4.0]], "tensor([[1., 2.],\n        [3., 4.]])"),
        ([[[1], [2]], [[3], [4]]], "tensor([[[1],\n         [2]],\n\n        [[3],\n         [4]]])"),
    ],
)
def test_elements(data: object, wanted: str) -> None:
    assert repr(gt.tensor(data)) == wanted
    assert str(gt.tensor(data)) == wanted


def test_repr_names_a_dtype_that_is_not_the_default() -> None:
    assert repr(gt.tensor([1.0], dtype=gt.float64)) == "tensor([1.], dtype=gt.float64)"
    assert repr(gt.tensor([1.5]).bfloat16()) == "tensor([1.5000], dtype=gt.bfloat16)"
    assert repr(gt.tensor([1], dtype=gt.int32)) == "tensor([1], dtype=gt.int32)"
    assert repr(gt.zeros(0, 3)) == "tensor([], size=(0, 3))"
    assert repr(gt.zeros(0, dtype=gt.int64)) == "tensor([], dtype=gt.int64)"
    t = gt.tensor([1.0], requires_grad=True)
    assert repr(t) == "tensor([1.], requires_grad=True)"
    assert repr(t + 1) == "tensor([2.], grad_fn=<AddBackward0>)"
    assert repr(t.detach()) == "tensor([1.])"
    with gt.no_grad():
        assert repr(t * 2) == "tensor([2.])"


def test_a_long_line_is_broken() -> None:
    assert repr(gt.arange(30)) == (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"
    )
    assert repr(gt.arange(18, dtype=gt.int16)) == (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17],\n       dtype=gt.int16)"
    )


def test_a_large_tensor_shows_its_corners() -> None:
    assert repr(gt.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    assert repr(gt.arange(10_000).reshape(100, 100).float()) == (
        "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 9.7000e+01, 9.8000e+01,\n"
        "         9.9000e+01],\n"
        "        [1.0000e+02, 1.0100e+02, 1.0200e+02,  ..., 1.9700e+02, 1.9800e+02,\n"
        "         1.9900e+02],\n"
        "        [2.0000e+02, 2.0100e+02, 2.0200e+02,  ..., 2.9700e+02, 2.9800e+02,\n"
        "         2.9900e+02],\n"
        "        ...,\n"
        "        [9.7000e+03, 9.7010e+03, 9.7020e+03,  ..., 9.7970e+03, 9.7980e+03,\n"
        "         9.7990e+03],\n"
        "        [9.8000e+03, 9.8010e+03, 9.8020e+03,  ..., 9.8970e+03, 9.8980e+03,\n"
        "         9.8990e+03],\n"
        "        [9.9000e+03, 9.9010e+03, 9.9020e+03,  ..., 9.9970e+03, 9.9980e+03,\n"
        "         9.9990e+03]])"
    )
    assert repr(gt.zeros(2, 600)) == (
        "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.]])"
    )


def test_a_view_shows_its_own_elements() -> None:
    t = gt.tensor([[1, 2, 3], [4, 5, 6]])
    assert repr(t.T) == "tensor([[1, 4],\n        [2, 5],\n        [3, 6]])"
    assert repr(t[:, ::-2]) == "tensor([[3, 1],\n        [6, 4]])"


def test_looking_changes_nothing() -> None:
    t = gt.ones(3, requires_grad=True)
    loss = (t * t).sum()
    repr(t), repr(loss)
    loss.backward()
    assert t.grad.tolist() == [2, 2, 2]


def test_a_parameter_says_that_it_is_one() -> None:
    assert repr(gt.nn.Parameter(gt.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
