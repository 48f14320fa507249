"""Random programs have the outcomes that PyTorch had; `make fuzz-parity` runs new ones beside it."""

from __future__ import annotations

import json
import sys

import pytest
from support import ROOT

import gt

sys.path.insert(0, str(ROOT))

from tests.fuzz_parity import outcome
from tests.fuzz_parity.shrink import as_program

CORPUS = ROOT / "tests" / "fuzz_parity" / "corpus.jsonl"
# The number of programs that one test runs.
CHUNK = 50
PROGRAMS = [json.loads(line) for line in CORPUS.read_text().splitlines()]


@pytest.mark.parametrize("first", range(0, len(PROGRAMS), CHUNK))
def test_a_program_has_the_outcome_that_it_had_in_pytorch(first: int) -> None:
    updates = gt._gt.set_leaf_updates(False)
    try:
        for entry in PROGRAMS[first : first + CHUNK]:
            text = outcome.difference(entry["outcome"], outcome.run(entry["lines"], gt))
            assert text is None, f"seed {entry['seed']}: {text}\n{as_program(entry['lines'])}"
    finally:
        gt._gt.set_leaf_updates(updates)


def cancelled(value: float, dtype: str = "float32") -> outcome.Outcome:
    """The outcome of a program with one tensor."""
    leaf = {"requires_grad": False, "is_leaf": True}
    return {"variables": {"t0": {"dtype": dtype, "shape": [1], "values": [outcome.number(value)], **leaf}}}


def test_a_number_may_differ_as_far_as_rounding_determines_it() -> None:
    expected, others = cancelled(0.0058187), [cancelled(0.005811), cancelled(0.005822)]
    assert outcome.difference(expected, cancelled(0.0058136)) is not None
    assert outcome.difference(expected, cancelled(0.0058136), others) is None
    assert outcome.difference(expected, cancelled(0.0058136), [expected] * 2) is not None
    assert outcome.difference(expected, cancelled(0.0068), others) is not None
    assert outcome.difference(expected, cancelled(float("inf")), others) is not None
    assert outcome.difference(cancelled(3, "int32"), cancelled(4, "int32"), [cancelled(3, "int32")]) is not None
