"""A plugin of pytest, `-p on_meshes`: each test runs under a signal that lays results out on a mesh of four workers.

Which layouts those are depends on the test's name. Gradients are under other layouts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

import gt
from gt import ShardConfig, SignalConfig

AXES = [(0, -1), (0, 0), (-1, 0), ("replicated", 0), (0, None), (None, -1), (-1, "replicated"), (1, 0), (-1, -1)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Runs a test."""
    chosen = zlib.crc32(item.nodeid.encode())
    names = "results", "gradients"
    for name, axes, backward in zip(names, (AXES[chosen % 9], AXES[chosen // 9 % 9]), (names[1], None), strict=True):
        gt.register_config(name, SignalConfig(ShardConfig(mesh=(2, 2), axes=axes), backward=backward))
    with gt.signal.context("results"):
        return (yield)
