"""Shows where the time of a training step goes: a profile of ten steps, and the totals of the worker.

python examples/show_stats.py
"""

from __future__ import annotations

import gt
from gt import nn

gt.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = gt.optim.SGD(model.parameters(), lr=0.1)
images, labels = gt.rand(128, 64), gt.arange(128) % 10


def step() -> None:
    """One step of training."""
    optimizer.zero_grad()
    with gt.profiler.record_function("forward"):
        loss = nn.functional.cross_entropy(model(images), labels)
    with gt.profiler.record_function("backward"):
        loss.backward()
    optimizer.step()


with gt.profiler.profile() as prof:
    for _ in range(10):
        step()

print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=8))
gt.debug.print_worker_stats()
