"""The tensors of a session as the memory snapshot that PyTorch's viewer (https://pytorch.org/memory_viz) loads.

Start at `document`. The format is that of `torch.cuda.memory._snapshot()`, documented there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Tensors lie one behind the other at made-up addresses, each at a multiple of this, as in PyTorch's allocator.
ALIGNMENT_BYTES = 512
SEGMENT_ADDRESS = 1 << 40

# A tensor: its id, the bytes of its elements, and the line that issued it: file, number and function.
LiveTensor = tuple[int, int, tuple[str, int, str] | None]


def document(tensors: Iterable[LiveTensor]) -> dict[str, Any]:
    """The snapshot: one segment with a block for each tensor, and a trace that allocates them in their order."""
    blocks, trace = [], []
    address = SEGMENT_ADDRESS
    for number, requested, line in tensors:
        size = max(1, -(-requested // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
        file, lineno, function = line or ("a line that is not known", 0, "")
        frames = [{"filename": file, "line": lineno, "name": function}]
        blocks.append(
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": "active_allocated",
                "frames": frames,
            }
        )
        trace.append(
            {
                "action": "alloc",
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": number,
                "frames": frames,
            }
        )
        address += size
    held = address - SEGMENT_ADDRESS
    segment = {
        "device": 0,
        "address": SEGMENT_ADDRESS,
        "total_size": held,
        "allocated_size": held,
        "active_size": held,
        "requested_size": sum(block["requested_size"] for block in blocks),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    return {"segments": [segment] if blocks else [], "device_traces": [trace]}
