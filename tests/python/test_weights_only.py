"""PyTorch's environment variables for the default of `weights_only` in `gt.load`."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import gt


class Thing:
    """An object of a class of the program's own."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    gt.save({"thing": Thing()}, tmp_path / "thing.pt")
    return tmp_path / "thing.pt"


def test_classes_are_refused_by_default(path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="Thing"):
        gt.load(path)


def test_a_variable_makes_false_the_default_and_an_argument_wins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert isinstance(gt.load(path)["thing"], Thing)
    with pytest.raises(pickle.UnpicklingError):
        gt.load(path, weights_only=True)


def test_a_variable_refuses_classes_in_every_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        gt.load(path, weights_only=False)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="exclude each other"):
        gt.load(path)
