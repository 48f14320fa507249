"""The examples (`>>>`) in the docstrings of everything public that can be reached from `gt`.

Docstrings of functions written in Rust are among them: they are the doc comments in `pybind/src/`.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import gt

# Modules that are imported at their first use.
import gt.llm
import gt.wasi_nn

EXAMPLES_MIN = 600
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def _public(owner: Any) -> Iterator[tuple[str, Any]]:
    """The public attributes of a module or class."""
    for name, value in sorted(vars(owner).items()):
        if not name.startswith("_"):
            yield name, value


def _modules(module: ModuleType, seen: dict[str, ModuleType]) -> None:
    seen[module.__name__] = module
    for _, value in _public(module):
        if isinstance(value, ModuleType) and value.__name__.startswith("gt.") and value.__name__ not in seen:
            _modules(value, seen)


def _docstrings() -> dict[str, str]:
    """Docstrings by the first dotted name that leads to each."""
    modules: dict[str, ModuleType] = {}
    _modules(gt, modules)
    found: dict[str, str] = {}

    def add(name: str, value: Any) -> None:
        doc = value.__doc__
        if isinstance(doc, str) and ">>>" in doc:
            found.setdefault(inspect.cleandoc(doc), name)

    for place, module in modules.items():
        add(place, module)
        for name, value in _public(module):
            if isinstance(value, ModuleType) or not (getattr(value, "__module__", None) or "gt").startswith("gt"):
                continue
            if isinstance(value, type):
                add(f"{place}.{name}", value)
                for member, attribute in _public(value):
                    add(f"{place}.{name}.{member}", getattr(attribute, "__func__", attribute))
            elif callable(value):
                add(f"{place}.{name}", value)
    return {name: doc for doc, name in found.items()}


DOCSTRINGS = _docstrings()


def _examples(name: str) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(DOCSTRINGS[name], {"gt": gt, "np": np}, name, None, None)


@pytest.fixture
def defaults() -> Iterator[None]:
    """Each docstring's examples start from the same seed and settings, and change none for others."""
    gt.manual_seed(0)
    yield
    gt.set_default_dtype(gt.float32)
    gt.set_grad_enabled(True)
    gt.set_printoptions(profile="default")


@pytest.mark.usefixtures("defaults")
@pytest.mark.parametrize("name", sorted(DOCSTRINGS))
def test_examples(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(_examples(name), out=report.append)
    assert result.failed == 0, "".join(report)


def test_there_are_examples() -> None:
    assert sum(len(_examples(name).examples) for name in DOCSTRINGS) >= EXAMPLES_MIN


def test_members_of_classes_have_or_inherit_a_docstring() -> None:
    # ruff's D102 is off for these packages: it does not know that an override inherits.
    modules: dict[str, ModuleType] = {}
    _modules(gt, modules)
    missing = [
        f"{place}.{name}.{member}"
        for place, module in modules.items()
        for name, value in _public(module)
        if isinstance(value, type) and value.__module__.startswith(("gt.nn", "gt.optim", "gt.distributions"))
        for member, attribute in _public(value)
        if isinstance(attribute, FunctionType | classmethod | staticmethod | property)
        if not inspect.getdoc(getattr(value, member))
    ]
    assert missing == []
