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
