"""The first program on a device: a sum, a product and a gradient, each checked and timed, as JSON lines."""

from __future__ import annotations

import json
import time

import gt


def main() -> None:
    """Prints what was computed and how long each took, the compilation of its kernels included."""
    device = "cuda"
    started = time.perf_counter()
    total = gt.arange(1_000_000, device=device).sum().item()
    assert total == 499_999_500_000, total
    summed = time.perf_counter()
    x = gt.ones(256, 256, device=device).requires_grad_()
    loss = (x @ x).sum()
    loss.backward()
    assert loss.item() == 256**3, loss.item()
    assert x.grad is not None
    assert x.grad.sum().item() == 2 * 256**3, x.grad.sum().item()
    multiplied = time.perf_counter()
    halves = (x.detach().to(gt.bfloat16) @ x.detach().to(gt.bfloat16)).float().sum().item()
    assert halves == 256**3, halves
    ended = time.perf_counter()
    seconds = {"sum": summed - started, "product and gradient": multiplied - summed, "bf16 product": ended - multiplied}
    print(json.dumps({"device": gt.cuda.get_device_name(), "seconds": seconds}))


if __name__ == "__main__":
    main()
