"""A plugin for pytest: writes each test's result as it comes, and the device of each process that tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpu_kit import on_device
from gpu_kit.plugin_names import RESULTS_VARIABLE


def _write(entry: dict[str, Any]) -> None:
    with Path(os.environ[RESULTS_VARIABLE]).open("a") as file:
        file.write(json.dumps(entry) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Records the device, or ends the run: results from a processor would say nothing of a device.

    The process that starts others to test looks first, since pytest waits long for one that ends by itself.
    """
    try:
        on_device.record()
    except Exception as error:
        pytest.exit(f"no test was run: {error}", returncode=3)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Writes the names of all tests, to tell those that were not reached."""
    worker = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    if worker == "gw0" and getattr(session, "items", None):
        _write({"collected": [item.nodeid for item in session.items]})


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes a test's result: that of its call, or of what failed or was skipped before or after."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when == "call" or report.outcome != "passed":
        skipped = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
        message = skipped or (report.longreprtext if report.failed else "")
        expected = hasattr(report, "wasxfail")
        outcome = "skipped" if report.skipped or expected else report.outcome
        _write({"test": report.nodeid, "outcome": outcome, "message": message, "seconds": report.duration})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Writes what could not be imported."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        _write({"test": report.nodeid, "outcome": "failed", "message": report.longreprtext, "seconds": 0.0})
