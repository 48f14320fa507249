"""Checks a model against a debug state: logits, loss and the 16 kinds of gradients, then ten steps of training.

    python -m gt.llm.test -e model.bin -d debug_state.bin

A debug state is written from PyTorch by `examples/gpt2/write_debug_state.py`, with the losses of ten steps beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import numpy as np

import gt
from gt.llm.checkpoint import load
from gt.llm.debug_state import DebugState, gradients_of, read_debug_state
from gt.llm.files import FileError
from gt.llm.model import GPT2

# The largest difference from the reference, as a part of the largest magnitude in the same tensor.
TOLERANCE = {"float32": 2e-4, "bfloat16": 6e-2}
CURVE_TOLERANCE = 1e-2
# The optimizer of the ten steps.
LR, BETAS, EPS, DECAY = 1e-4, (0.9, 0.999), 1e-8, 0.01


def differences(model: GPT2, state: DebugState, dtype: str) -> dict[str, float]:
    """Returns the largest difference of logits, loss and each kind of gradient, relative to the largest magnitude."""
    half = gt.autocast("cuda" if gt.cuda.is_available() else "cpu", dtype=gt.bfloat16)
    tokens, targets = (gt.tensor(part.astype(np.int64)) for part in (state.tokens, state.targets))
    model.zero_grad(set_to_none=True)
    with half if dtype == "bfloat16" else contextlib.nullcontext():
        logits, loss = model(tokens, targets)
    loss.backward()
    found = {"logits": logits.detach().float().numpy(), "loss": np.float32(loss.item()), **gradients_of(model)}
    wanted = {"logits": state.logits, "loss": np.float32(state.loss), **state.gradients}
    return {
        name: float(np.abs(found[name] - wanted[name]).max() / max(np.abs(wanted[name]).max(), 1e-30))
        for name in wanted
    }


def curve(model: GPT2, state: DebugState, steps: int) -> list[float]:
    """Returns the losses of steps of training on the batch of a debug state."""
    tokens, targets = (gt.tensor(part.astype(np.int64)) for part in (state.tokens, state.targets))
    optimizer = model.optimizer(LR, BETAS, EPS, DECAY)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, targets)[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return gt.stack(losses).tolist()


def main() -> int:
    """Runs the checks and prints a table; returns 1 if something differs, 2 if a file is not what it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.llm.test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-e", dest="model", required=True, metavar="FILE", help="the model")
    parser.add_argument("-d", dest="state", required=True, metavar="FILE", help="the debug state")
    parser.add_argument("--dtype", choices=sorted(TOLERANCE), default="float32", help="the dtype of products [float32]")
    arguments = parser.parse_args()
    try:
        model = load(arguments.model).float()
        state = read_debug_state(arguments.state, model.config)
    except (FileError, FileNotFoundError) as error:
        print(f"gt.llm.test: {error}", file=sys.stderr)
        return 2
    failed = False
    for name, difference in differences(model, state, arguments.dtype).items():
        right = difference <= TOLERANCE[arguments.dtype]
        failed |= not right
        print(f"{name:<20} {difference:8.1e}  {'ok' if right else 'DIFFERS'}")
    losses = Path(f"{arguments.state}.losses")
    if arguments.dtype == "float32" and losses.exists():
        expected = [float(line) for line in losses.read_text().split()]
        for step, (loss, wanted) in enumerate(zip(curve(model, state, len(expected)), expected, strict=True)):
            right = abs(loss - wanted) <= CURVE_TOLERANCE
            failed |= not right
            print(f"step {step}: loss {loss:.6f}, expected {wanted:.6f}  {'ok' if right else 'DIFFERS'}")
    print("differs" if failed else "equal")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
