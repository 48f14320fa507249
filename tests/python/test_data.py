"""Datasets, samplers and batches of `gt.utils.data`."""

from __future__ import annotations

import random
from collections import Counter, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt
from gt.utils import data
from gt.utils.data import DataLoader

Pair = namedtuple("Pair", "x y")


class Squares(data.Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(index) ** 2


class Stream(data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))

    def __len__(self) -> int:
        return 7


def test_batches_in_order() -> None:
    loader = DataLoader(Squares(7), batch_size=3)
    assert len(loader) == 3
    batches = list(loader)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert_close(batches[1][1], [9.0, 16.0, 25.0], "float64")
    assert batches[0][0].dtype == gt.int64
    dropping = DataLoader(Squares(7), batch_size=3, drop_last=True)
    assert len(dropping) == len(list(dropping)) == 2
    assert list(DataLoader(Squares(2), batch_size=None)) == [[0, 0.0], [1, 1.0]]
    (sample,) = DataLoader([np.ones(2, np.float32)], batch_size=None)
    assert_close(sample, [1, 1], "float32")
    assert len(DataLoader(Squares(2), batch_size=None)) == 2


def test_shuffled_batches_follow_the_seed() -> None:
    def epochs() -> list[list[int]]:
        loader = DataLoader(Squares(50), batch_size=8, shuffle=True)
        return [[i for x, _ in loader for i in x.tolist()] for _ in range(2)]

    gt.manual_seed(5)
    first, second = epochs()
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    gt.manual_seed(6)
    assert epochs()[0] != first
    gt.manual_seed(5)
    assert epochs() == [first, second]
    orders = [list(data.RandomSampler(range(9), generator=random.Random(3))) for _ in range(2)]
    assert orders[0] == orders[1]
    with pytest.raises(TypeError, match=r"expected a gt\.Generator"):
        list(data.RandomSampler(range(9), generator=3))


def test_samplers() -> None:
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(data.SubsetRandomSampler([4, 9, 2])) == [2, 4, 9]
    drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=30))
    assert len(drawn) == 30
    assert set(drawn) <= {0, 1, 2}
    assert Counter(data.RandomSampler(range(3), num_samples=6)) == {0: 2, 1: 2, 2: 2}
    weighted = data.WeightedRandomSampler(gt.tensor([0.0, 1.0, 3.0]), 4000, generator=random.Random(1))
    counts = Counter(weighted)
    assert counts[0] == 0
    assert counts[2] / counts[1] == pytest.approx(3, rel=0.2)
    assert sorted(data.WeightedRandomSampler([1, 0, 2, 5], 3, replacement=False)) == [0, 2, 3]
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert len(data.BatchSampler(range(5), 2, True)) == 2
    with pytest.raises(ValueError, match="positive weights"):
        data.WeightedRandomSampler([1, 0], 2, replacement=False)
    with pytest.raises(ValueError, match="batch_size"):
        data.BatchSampler(range(5), 0, False)
    with pytest.raises(ValueError, match="num_samples"):
        data.RandomSampler(range(3), num_samples=0)


def test_orders_of_one_s_own() -> None:
    loader = DataLoader(Squares(9), batch_size=2, sampler=[8, 0, 3])
    assert [x.tolist() for x, _ in loader] == [[8, 0], [3]]
    loader = DataLoader(Squares(9), batch_sampler=[[1], [2, 3]])
    assert len(loader) == 2
    assert [x.tolist() for x, _ in loader] == [[1], [2, 3]]
    assert list(DataLoader(Squares(3), batch_size=2, collate_fn=len)) == [2, 1]


def test_streams() -> None:
    assert [x.tolist() for x in DataLoader(Stream(), batch_size=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(list(DataLoader(Stream(), batch_size=3, drop_last=True))) == 2
    assert list(DataLoader(Stream(), batch_size=None)) == list(range(7))
    assert len(DataLoader(Stream(), batch_size=3)) == 3


def test_datasets_of_datasets() -> None:
    rows = data.TensorDataset(gt.arange(6).reshape(3, 2), gt.arange(3))
    assert len(rows) == 3
    assert [t.tolist() for t in rows[1]] == [[2, 3], 1]
    both = Squares(3) + Squares(2)
    assert [both[i][0] for i in range(len(both))] == [0, 1, 2, 0, 1]
    assert both[-1] == (1, 1.0)
    with pytest.raises(IndexError, match="5 samples"):
        both[5]
    part = data.Subset(Squares(9), [7, 2])
    assert len(part) == 2
    assert part[1] == (2, 4.0)
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(gt.ones(2), gt.ones(3))
    with pytest.raises(AssertionError, match="empty"):
        data.ConcatDataset([])
    with pytest.raises(NotImplementedError, match="__getitem__"):
        data.Dataset()[0]


def test_random_split() -> None:
    first, second = data.random_split(Squares(10), [7, 3], generator=random.Random(0))
    assert (len(first), len(second)) == (7, 3)
    assert sorted(part[i][0] for part in (first, second) for i in range(len(part))) == list(range(10))
    assert [len(part) for part in data.random_split(Squares(11), [0.5, 0.3, 0.2])] == [6, 3, 2]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(Squares(10), [7, 2])


def test_samples_become_batches() -> None:
    collate = data.default_collate
    assert_close(collate([gt.ones(2), gt.zeros(2)]), [[1, 1], [0, 0]], "float32")
    assert_close(collate([np.float32(1), np.float32(2)]), [1, 2], "float32")
    assert_close(collate([np.ones((2, 1), np.int16)] * 3), np.ones((3, 2, 1)), "int16")
    assert_close(collate([True, False]), [True, False], "bool")
    assert collate(["a", "b"]) == ["a", "b"]
    nested: Any = collate([{"a": 1, "b": (2.0, [3])}, {"a": 4, "b": (5.0, [6])}])
    assert nested["a"].tolist() == [1, 4]
    assert nested["b"][0].tolist() == [2, 5]
    assert nested["b"][1][0].tolist() == [3, 6]
    pair = collate([Pair(1, 2), Pair(3, 4)])
    assert isinstance(pair, Pair)
    assert pair.y.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="equal size"):
        collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="found object"):
        collate([object()])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_workers": 2, "multiprocessing_context": "thread"}, ValueError, "valid start method"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor"),
        ({"persistent_workers": True}, ValueError, "num_workers > 0"),
        ({"num_workers": -1}, ValueError, "non-negative"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "batch_sampler option"),
        ({"batch_size": None, "drop_last": True}, ValueError, "drop_last"),
        ({"batch_size": 0}, ValueError, "positive integer"),
        ({"batch_size": 2.0}, ValueError, "positive integer"),
    ],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DataLoader(Squares(3), **options)


def test_a_stream_has_its_own_order() -> None:
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), shuffle=True)


def test_a_sample_by_itself_is_converted() -> None:
    converted = gt.utils.data.default_convert({"x": np.ones(2), "y": ("a", [np.float32(1)])})
    assert converted["x"].dtype is gt.float64
    assert converted["y"][0] == "a"
    assert converted["y"][1][0].item() == 1
