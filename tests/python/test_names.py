"""Aliases of operations: complex functions of real numbers, and copying forms of views."""

from __future__ import annotations

import math

import pytest
from support import assert_close

import gt


def test_add_and_divide():
    assert gt.addcdiv(gt.tensor([1.0]), gt.tensor([4.0]), gt.tensor([2.0]), value=3).tolist() == [7]
    with pytest.raises(RuntimeError, match="Integer division with addcdiv"):
        gt.addcdiv(gt.ones(1), gt.tensor([1]), gt.tensor([1]))


def test_rounding_to_decimals():
    assert_close(gt.round(gt.tensor([1.2345]), decimals=2), [1.23], "float32", 1e-6)
    assert gt.tensor([1267.0]).round(decimals=-2).tolist() == [1300]


def test_integers_are_divided_exactly():
    exact = gt.div(gt.tensor([-7, 7, 2**60 + 1]), gt.tensor([2, -2, 1]), rounding_mode="trunc")
    assert exact.tolist() == [-3, -3, 2**60 + 1]
    assert gt.div(gt.tensor([200], dtype=gt.uint8), 7, rounding_mode="trunc").dtype == gt.uint8


def test_complex_functions_of_real_numbers():
    x = gt.tensor([-1.0, 1.0])
    assert gt.real(x) is x
    assert gt.conj(x) is x
    assert_close(gt.angle(x), [math.pi, 0], "float32", 1e-6)
    with pytest.raises(RuntimeError, match="imag is not implemented for tensors with non-complex dtypes"):
        gt.imag(x)


def test_copies_of_views_are_copies():
    x = gt.zeros(2, 3)
    gt.permute_copy(x, (1, 0)).fill_(1)
    gt.split_with_sizes_copy(x, [1, 2], 1)[0].fill_(1)
    assert x.sum().item() == 0
    assert gt.view_copy(x, (6,)).shape == (6,)


def test_places_in_a_flattened_tensor():
    rows, columns = gt.unravel_index(gt.tensor([0, 4, 5]), (2, 3))
    assert rows.tolist() == [0, 1, 1]
    assert columns.tolist() == [0, 1, 2]


def test_a_matrix_transposed():
    x = gt.arange(6).reshape(2, 3)
    assert x.H.tolist() == x.T.tolist()
    assert x.unsqueeze(0).mH.shape == (1, 3, 2)
    with pytest.raises(RuntimeError, match="H"):
        _ = gt.zeros(3).H


def test_functions_in_place():
    x = gt.ones(2)
    assert gt.zero_(x) is x
    assert gt.exp_(x).tolist() == [1, 1]
