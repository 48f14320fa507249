"""A few of the programs of `make test-programs`, beside PyTorch where it and the program's library are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))

from tests.programs import catalogue, page, runner

QUICK = [program for program in catalogue.load().values() if program.quick]


@pytest.fixture(scope="module")
def pair() -> Iterator[runner.Pair]:
    with runner.Pair() as processes:
        yield processes


@pytest.mark.parametrize("program", QUICK, ids=lambda program: program.name)
def test_a_program_gives_the_same_results_as_in_pytorch(program: catalogue.Program, pair: runner.Pair) -> None:
    outcome = runner.run(program, False, pair)
    if outcome.status == "skipped":
        pytest.skip(outcome.reason)
    assert (outcome.status, outcome.reason) == ("equal", "")


def test_differences_are_relative_to_the_largest_element() -> None:
    theirs = {"gradients:w": np.array([100.0, 1.0]), "gradients:b": np.array([1e-9]), "outputs": np.array([1, 2])}
    ours = {"gradients:w": np.array([100.0, 1.5]), "gradients:b": np.array([3e-9]), "outputs": np.array([1, 2])}
    found = dict(runner.compare(ours, theirs))
    assert found["gradients:w"] == pytest.approx(0.005)
    # A gradient of rounding errors is small beside the other gradients.
    assert found["gradients:b"] < 1e-6
    assert found["outputs"] == 0


def test_other_shapes_kinds_names_and_nan_differ() -> None:
    theirs = {"a": np.ones(2), "b": np.ones(2), "c": np.ones(2), "d": np.ones(2), "e": np.array([1, 2])}
    ours = {"a": np.ones(3), "b": np.ones(2, int), "d": np.array([1, np.nan]), "e": np.array([1, 3])}
    assert dict(runner.compare(ours, theirs)) == dict.fromkeys("abcde", float("inf"))


def test_a_program_whose_library_is_not_installed_is_skipped_with_the_reason(pair: runner.Pair) -> None:
    absent = catalogue.Program("x", "no_such_library", "no-such-library", lambda: pytest.fail("it must not run"), False)
    outcome = runner.run(absent, True, pair)
    assert outcome.status == "skipped"
    assert "no_such_library" in outcome.reason
    assert outcome.reason.endswith("not installed")


def test_the_page_has_a_line_for_each_outcome(tmp_path: Path) -> None:
    path = tmp_path / "programs.md"
    outcomes = [
        runner.Outcome("good", "lib 1.0", "equal", "", 1e-6, 0.010, 0.011),
        runner.Outcome("bad", "lib 1.0", "fails", "in GT, ValueError: a | b"),
    ]
    page.write(outcomes, path)
    text = path.read_text()
    assert "| good | lib 1.0 | equal | 1.0e-06 | 1.10 | 10.0 ms |" in text
    assert "| bad | lib 1.0 | fails: in GT, ValueError: a \\| b |  |  |  |" in text
    assert "1 equal, 0 differ, 1 fail, 0 skipped" in text
