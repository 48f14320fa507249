"""`DataLoader` with worker processes: order, seeds, shares of streams, errors, interrupts and ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import alive, environment, wait_for_exit

import gt
from gt.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info, transport
from gt.utils.data.inherited import reachable

METHODS = ("fork", "spawn", "forkserver")


class Squares(Dataset):
    def __init__(self, length: int = 7) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[int, np.ndarray]:
        return i, np.full((3, 2), float(i) ** 2, np.float32)


class Shares(IterableDataset):
    """Numbers from `start` on, of which each worker reads its share."""

    def __init__(self, stop: int = 10) -> None:
        self.stop = stop

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.stop, step))


class Reporter(Dataset):
    """A dataset of numbers that tell about the worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> list[int]:
        info = get_worker_info()
        assert info is not None
        drawn = [random.randrange(1000), int(np.random.randint(1000)), int(gt.randint(1000, ()).item())]
        return [info.id, info.num_workers, info.seed, gt.initial_seed(), os.getpid(), getattr(self, "mark", 0), *drawn]


class Failing(Dataset):
    def __init__(self, kind: type[BaseException] = ValueError) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        if i == 2:
            raise self.kind(f"sample {i} is broken")
        return i


def mark(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == number
    info.dataset.mark = 10 + number  # type: ignore[attr-defined]


def refuse(number: int) -> None:
    raise OSError(f"worker {number} finds no file")


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def tell_pid(_: list[Any]) -> int:
    return os.getpid()


def read(loader: DataLoader) -> list[Any]:
    return [[np.asarray(part).tolist() for part in batch] for batch in loader]


@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_the_workers(method: str) -> None:
    alone = read(DataLoader(Squares(), batch_size=2))
    for options in ({}, {"persistent_workers": True, "pin_memory": True, "prefetch_factor": 1}):
        loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context=method, **options)
        assert read(loader) == alone
        assert read(loader) == alone
    assert get_worker_info() is None


def test_a_seed_gives_the_same_order_with_any_number_of_workers() -> None:
    orders = []
    for count in (0, 2):
        gt.manual_seed(3)
        loader = DataLoader(range(20), batch_size=4, shuffle=True, num_workers=count)
        orders.append(([batch.tolist() for batch in loader], gt.rand(1).item()))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_of_a_dataset_are_there_in_the_workers(method: str) -> None:
    x = gt.arange(12).reshape(6, 2)
    dataset = TensorDataset(x, x[:, 1].to(gt.bfloat16), gt.nn.Parameter(gt.ones(6), requires_grad=False))
    loader = DataLoader(dataset, batch_size=3, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert [batch[0].tolist() for batch in batches] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert batches[1][1].dtype == gt.bfloat16
    assert batches[1][1].tolist() == [7, 9, 11]
    # They belong to this process as before.
    x += 1
    assert x[0].tolist() == [1, 2]


def test_tensors_of_functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, default = gt.ones(1), gt.ones(2)
    monkeypatch.setitem(globals(), "GLOBAL", gt.ones(3))

    def shift(sample: Any, by: Any = default) -> Any:
        return sample + inner + by + GLOBAL

    class Shifted:
        transform = staticmethod(shift)

    found = reachable(Shifted())
    assert sorted(t.numel() for t in found) == [1, 2, 3]
    loader = DataLoader(range(2), num_workers=1, collate_fn=lambda b: shift(b[0]).sum(), multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="must match the size"):
        list(loader)


GLOBAL: Any = None


def test_what_a_worker_knows() -> None:
    loader = DataLoader(
        Reporter(), batch_size=None, num_workers=2, worker_init_fn=mark, persistent_workers=True,
        generator=gt.Generator().manual_seed(5),
    )  # fmt: skip
    rows = list(loader)
    assert [row[0] for row in rows] == [0, 1, 0, 1]
    assert {row[1] for row in rows} == {2}
    seeds = {row[0]: row[2] for row in rows}
    assert seeds[1] == seeds[0] + 1
    assert all(row[2] == row[3] for row in rows)
    assert [row[5] for row in rows] == [10, 11, 10, 11]
    pids = {row[4] for row in rows}
    assert len(pids) == 2
    assert os.getpid() not in pids
    # The numbers that are drawn differ between workers, and are the same again for the same seed.
    assert len({tuple(row[6:]) for row in rows}) == 4
    again = DataLoader(
        Reporter(), batch_size=None, num_workers=2, worker_init_fn=mark, generator=gt.Generator().manual_seed(5)
    )
    assert [row[6:] for row in again] == [row[6:] for row in rows]
    # Persistent workers are the same processes in the next epoch.
    assert {row[4] for row in loader} == pids


@pytest.mark.parametrize("persistent", [False, True])
def test_each_worker_reads_its_share_of_a_stream(persistent: bool) -> None:
    loader = DataLoader(Shares(), batch_size=2, num_workers=3, persistent_workers=persistent)
    for _ in range(2):
        batches = [batch.tolist() for batch in loader]
        assert sorted(x for batch in batches for x in batch) == list(range(10))
        assert batches[:3] == [[0, 3], [1, 4], [2, 5]]
    dropping = DataLoader(Shares(), batch_size=2, num_workers=3, drop_last=True)
    # The shares are 0 3 6 9, 1 4 7 and 2 5 8: a last number alone makes no batch.
    assert sorted(x for batch in dropping for x in batch.tolist()) == [0, 1, 2, 3, 4, 5, 6, 9]
    assert sorted(DataLoader(Shares(3), batch_size=None, num_workers=5)) == [0, 1, 2]


@pytest.mark.parametrize(("kind", "caught"), [(ValueError, ValueError), (KeyError, KeyError)])
def test_an_error_of_a_worker_is_raised_with_its_traceback(kind: type[Exception], caught: type[Exception]) -> None:
    batches = iter(DataLoader(Failing(kind), num_workers=2))
    assert next(batches).item() == 0
    assert next(batches).item() == 1
    with pytest.raises(caught) as error:
        next(batches)
    message = str(error.value)
    assert f"Caught {kind.__name__} in DataLoader worker process 0.\nOriginal Traceback" in message
    assert "sample 2 is broken" in message
    assert "__getitem__" in message
    # The others go on.
    assert next(batches).item() == 3
    with pytest.raises(StopIteration):
        next(batches)


def test_errors_of_classes_that_cannot_travel() -> None:
    class Own(Exception):  # noqa: N818
        pass

    loader = DataLoader(Failing(Own), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match=r"(?s)Own.*sample 2 is broken"):
        list(loader)
    loader = DataLoader(range(1), num_workers=1, collate_fn=lambda _: lambda: 0, multiprocessing_context="fork")
    with pytest.raises(Exception, match="pickle"):
        list(loader)
    with pytest.raises(OSError, match=r"(?s)Caught OSError.*worker 0 finds no file"):
        list(DataLoader(range(1), num_workers=1, worker_init_fn=refuse))


def test_a_worker_that_is_killed_is_an_error() -> None:
    batches = iter(DataLoader(Reporter(), batch_size=None, num_workers=1, prefetch_factor=1))
    os.kill(next(batches)[4], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly, by signal 9"):
        list(batches)


class Waiting(Dataset):
    """A dataset of which the second sample never comes."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> int:
        if i == 1:
            signal.pause()
        return os.getpid()


def test_a_batch_that_does_not_come_in_time_is_an_error() -> None:
    batches = iter(DataLoader(Waiting(), num_workers=1, timeout=0.5))
    pid = next(batches).item()
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        next(batches)
    os.kill(pid, signal.SIGKILL)


def test_workers_end_with_the_iterator() -> None:
    pids = set(DataLoader(range(4), num_workers=2, collate_fn=tell_pid))
    half = iter(DataLoader(range(400), num_workers=1, collate_fn=tell_pid))
    pids.add(next(half))
    del half
    loader = DataLoader(range(4), num_workers=1, collate_fn=tell_pid, persistent_workers=True)
    kept = set(loader)
    assert all(alive(pid) for pid in kept)
    del loader
    for pid in pids | kept:
        wait_for_exit(pid)


PROGRAM = """
import os, sys
import gt

class Endless(gt.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield os.getpid()

if __name__ == "__main__":
    loader = gt.utils.data.DataLoader(Endless(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1])
    for n, pid in enumerate(loader):
        if n < 2:
            print(pid, flush=True)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_program(method: str, sent: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, "program.py", method],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    pids = [int(program.stdout.readline()) for _ in range(2)]
    program.send_signal(sent)
    try:
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert ("KeyboardInterrupt" in errors) == (sent == signal.SIGINT)
    for pid in pids:
        wait_for_exit(pid)


def test_batches_travel_by_shared_memory() -> None:
    import multiprocessing

    here, there = multiprocessing.Pipe()
    big, small = np.arange(100_000), np.ones(3, np.float32)
    for message in ({"big": big, "text": "x" * 5000}, [small, gt.tensor([1.5, 2.5]), "short"], "y" * 100_000, None):
        transport.send(here, message)
        got = transport.receive(there)
        if isinstance(message, dict):
            np.testing.assert_array_equal(got["big"], big)
            got["big"][0] = 7
            assert got["text"] == message["text"]
        elif isinstance(message, list):
            assert got[0].tolist() == [1, 1, 1]
            assert got[1].tolist() == [1.5, 2.5]
        else:
            assert got == message
    here.close()
    with pytest.raises(EOFError):
        transport.receive(there)


def test_batches_without_order_are_all_there() -> None:
    loader = DataLoader(Squares(20), batch_size=3, num_workers=3, in_order=False)
    assert sorted(i for numbers, _ in loader for i in numbers.tolist()) == list(range(20))


def test_lists_of_samples_travel() -> None:
    loader = DataLoader(Squares(3), batch_size=2, num_workers=1, collate_fn=as_they_are)
    first, _ = list(loader)
    assert [i for i, _ in first] == [0, 1]
    first[0][1][0] = 5
    assert first[0][1].tolist() == [[5, 5], [0, 0], [0, 0]]
