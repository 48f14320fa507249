"""Reductions of short rows and of few columns, which the CPU reduces several at a time, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt


@pytest.mark.parametrize("columns", [*range(1, 20), 31, 32, 33, 47, 48, 49, 64])
def test_short_rows_of_every_length_are_reduced_as_numpy_reduces_them(columns: int) -> None:
    for rows in (1, 3, 16, 67, 300):
        wide = np.random.default_rng(columns).uniform(0.5, 1.5, (rows, columns + 1))
        for kind in (np.float32, np.float64, np.float16, np.int64, np.int8):
            array = (wide * (1 if np.issubdtype(kind, np.floating) else 3)).astype(kind)
            # Rows that follow one another, and rows with a gap between them.
            for found, given in ((gt.tensor(array[:, :columns].copy()), array), (gt.tensor(array)[:, :columns], array)):
                rest = given[:, :columns]
                assert_close(
                    found.sum(1), rest.sum(1, dtype=np.float64), tolerance=2e-3 if kind == np.float16 else 1e-5
                )
                np.testing.assert_array_equal(to_numpy(found.amax(1)), rest.max(1))
                np.testing.assert_array_equal(to_numpy(found.amin(1)), rest.min(1))
                np.testing.assert_array_equal(to_numpy((found > 1).any(1)), (rest > 1).any(1))
                np.testing.assert_array_equal(to_numpy((found > 0.6).all(1)), (rest > 0.6).all(1))
                if kind in (np.float32, np.float64):
                    assert_close(found.prod(1), rest.prod(1, dtype=np.float64), tolerance=1e-5)


def test_a_nan_in_a_short_row_is_its_maximum_alone() -> None:
    array = np.ones((40, 5), np.float32)
    array[7, 4] = array[39, 0] = np.nan
    np.testing.assert_array_equal(to_numpy(gt.tensor(array).amax(1)), array.max(1))


@pytest.mark.parametrize("columns", range(1, 20))
def test_few_columns_of_any_number_of_rows_are_reduced_as_numpy_reduces_them(columns: int) -> None:
    for rows in (1, 15, 16, 17, 64, 127, 300, 1000):
        wide = np.random.default_rng(columns).uniform(-0.5, 1.5, (3, rows, columns))
        for kind in (np.float32, np.float64, np.float16, np.int64, np.int8):
            array = (wide * (1 if np.issubdtype(kind, np.floating) else 4)).astype(kind)
            found = gt.tensor(array)
            assert_close(found.sum(1), array.sum(1, dtype=np.float64), tolerance=2e-3 if kind == np.float16 else 1e-4)
            np.testing.assert_array_equal(to_numpy(found.amax(1)), array.max(1))
            np.testing.assert_array_equal(to_numpy(found.amin(1)), array.min(1))
            np.testing.assert_array_equal(to_numpy((found > 0).all(1)), (array > 0).all(1))


def test_a_nan_among_few_columns_is_the_maximum_of_its_column_alone() -> None:
    array = np.ones((2, 70, 3), np.float32)
    array[0, 69, 1] = array[1, 0, 2] = np.nan
    np.testing.assert_array_equal(to_numpy(gt.tensor(array).amax(1)), array.max(1))


@pytest.mark.parametrize(("planes", "rows", "columns"), [(5000, 10, 3), (1200, 16, 16), (700, 200, 2), (2000, 7, 1)])
def test_few_columns_of_many_planes_are_reduced_as_numpy_reduces_them(planes: int, rows: int, columns: int) -> None:
    wide = np.random.default_rng(rows).uniform(0.5, 1.5, (planes, rows + 1, columns + 2)).astype(np.float32)
    for found, given in ((gt.tensor(wide), wide), (gt.tensor(wide)[:, 1:, :columns], wide[:, 1:, :columns])):
        whole = given[:, :rows].copy()
        for x, array in ((found[:, :rows], given[:, :rows]), (gt.tensor(whole), whole)):
            assert_close(x.sum(1), array.sum(1, dtype=np.float64), tolerance=1e-5)
            assert_close(x.mean(1), array.mean(1, dtype=np.float64), tolerance=1e-5)
            np.testing.assert_array_equal(to_numpy(x.amax(1)), array.max(1))
            np.testing.assert_array_equal(to_numpy((x > 0.6).all(1)), (array > 0.6).all(1))
