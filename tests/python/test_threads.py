"""Several threads of a program share its session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from support import to_numpy

import gt

THREADS = 8


def in_threads(work: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


def test_threads_compute_side_by_side() -> None:
    def work(i: int) -> float:
        x = gt.full((50,), float(i))
        for _ in range(200):
            x = x + 1
        return x.sum().item()

    assert in_threads(work) == [50 * (i + 200.0) for i in range(THREADS)]


def test_threads_share_tensors() -> None:
    shared = gt.arange(1000, dtype=gt.float64)
    total = shared.numpy().sum()
    assert in_threads(lambda i: (shared * i).sum().item()) == [i * total for i in range(THREADS)]


def test_each_thread_walks_its_own_graph() -> None:
    weight = np.random.default_rng(1).standard_normal((20, 20))

    def work(i: int) -> np.ndarray:
        w = gt.tensor(weight, requires_grad=True)
        for _ in range(20):
            loss = ((w * (i + 1)) ** 2).sum()
            loss.backward()
        return to_numpy(w.grad)

    for i, grad in enumerate(in_threads(work)):
        np.testing.assert_allclose(grad, 20 * 2 * (i + 1) ** 2 * weight, rtol=1e-12)


def test_threads_accumulate_into_one_leaf() -> None:
    w = gt.zeros(10, requires_grad=True)
    in_threads(lambda _: [(w * 1.0).sum().backward() for _ in range(50)])
    assert w.grad.tolist() == [50.0 * THREADS] * 10


def test_transfers_of_many_threads_do_not_mix() -> None:
    def work(i: int) -> bool:
        rng = np.random.default_rng(i)
        for size in rng.integers(1, 60_000, 25):
            array = rng.standard_normal(size).astype(np.float32)
            if not np.array_equal(gt.from_numpy(array).numpy(), array):
                return False
        return True

    assert all(in_threads(work))


def test_errors_stay_with_the_thread_that_fetches() -> None:
    def work(i: int) -> str:
        x = gt.tensor([i]) // gt.tensor([i % 2])
        try:
            return str(x.tolist())
        except RuntimeError as error:
            return "failed" if "ZeroDivisionError" in str(error) else str(error)

    assert in_threads(work) == ["failed" if i % 2 == 0 else f"[{i}]" for i in range(THREADS)]


def test_a_fetch_lets_other_threads_run() -> None:
    """Checks that a thread that waits for a computation releases Python's global interpreter lock."""
    x = gt.rand(700, 700)
    for _ in range(40):
        x = x @ x * 1e-3
    waiting, done = threading.Event(), threading.Event()

    def fetch() -> None:
        waiting.set()
        x.sum().item()
        done.set()

    thread = threading.Thread(target=fetch)
    thread.start()
    waiting.wait()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 0


def test_tensors_may_be_dropped_by_another_thread() -> None:
    tensors = [gt.full((100,), float(i)) for i in range(500)]
    threads = [threading.Thread(target=tensors.pop) for _ in range(500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tensors == []
    assert gt.ones(3).sum().item() == 3
