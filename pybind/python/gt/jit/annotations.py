"""`torch.jit.annotations`: types for annotations of scripted functions."""

from __future__ import annotations

from typing import Any

from gt import _absent

__getattr__ = _absent.getter(__name__)


class _BroadcastingList:
    """`BroadcastingList2[int]` annotates a list of two integers, or one that stands for both."""

    def __getitem__(self, item: Any) -> Any:
        return list[item]


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
