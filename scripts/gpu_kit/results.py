"""Reads what the programs of a group printed or wrote: counts, names of failures and figures."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# A failure's message is kept up to this length; the log has all of it.
MESSAGE_CHARACTERS_MAX = 2_000
# The name that a device has which is none.
EMULATED_DEVICE = "an emulated device"


@dataclass
class Results:
    """The results of a group or of one of its steps."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # Tests that passed or failed on the device that was asked for, and figures measured on it.
    on_device: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    skips: list[dict[str, str]] = field(default_factory=list)
    # The tests that had not been run when the time was over, or a program ended.
    left: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: Results) -> None:
        """Adds the results of a step."""
        for name in ("passed", "failed", "skipped", "on_device", "failures", "skips", "left", "figures"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.devices += [device for device in other.devices if device not in self.devices]

    def fail(self, name: str, message: str) -> None:
        """Counts a failure."""
        self.failed += 1
        self.failures.append({"name": name, "message": message[-MESSAGE_CHARACTERS_MAX:]})

    def skip(self, name: str, reason: str) -> None:
        """Counts a test that was skipped."""
        self.skipped += 1
        self.skips.append({"name": name, "reason": reason[:MESSAGE_CHARACTERS_MAX]})

    def document(self) -> dict[str, Any]:
        """Returns the results for JSON."""
        return asdict(self)


def is_right_device(name: str, rehearsal: bool) -> bool:
    """Returns whether a device is of the kind that was asked for: emulated in a rehearsal, and never otherwise."""
    return name.startswith(EMULATED_DEVICE) == rehearsal


def of_rust_tests(text: str, names: list[str], rehearsal: bool) -> Results:
    """Reads what a test program of Rust printed with `--show-output`.

    Args:
        text: What it printed.
        names: The tests that it was to run.
        rehearsal: Whether the tests were to run on an emulated device.
    """
    results = Results()
    ended = dict(re.findall(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", text, re.MULTILINE))
    printed: dict[str, str] = {}
    for section in re.split(r"^---- ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = section.partition(" stdout ----\n")
        printed[name] = re.split(r"^(?:successes|failures):$", rest, flags=re.MULTILINE)[0]
    for name in names:
        output = printed.get(name, "")
        reason = re.search(r"^skipped: (.*)$", output, re.MULTILINE)
        devices = re.findall(r"^device: (.*)$", output, re.MULTILINE)
        results.devices += [{"name": device} for device in devices if {"name": device} not in results.devices]
        match ended.get(name):
            case "FAILED":
                results.fail(name, output.strip())
            case "ignored":
                results.skip(name, "ignored by default")
            case "ok" if reason:
                results.skip(name, reason[1])
                continue
            case "ok":
                results.passed += 1
            case _:
                results.left.append(name)
        if devices and all(is_right_device(device, rehearsal) for device in devices):
            results.on_device += 1
    return results


def of_pytest(path: Path, folder: Path, rehearsal: bool) -> Results:
    """Reads the lines that the plugin wrote to `path`, and the devices that processes wrote into `folder`."""
    results = Results()
    collected: list[str] = []
    outcomes: dict[str, tuple[str, str]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        if "collected" in entry:
            collected = entry["collected"]
            continue
        before = outcomes.get(entry["test"])
        # An error after a test that passed is a failure of it.
        if before is None or entry["outcome"] == "failed":
            outcomes[entry["test"]] = (entry["outcome"], entry["message"])
    for name, (outcome, message) in outcomes.items():
        if outcome == "failed":
            results.fail(name, message)
        elif outcome == "skipped":
            results.skip(name, message)
        else:
            results.passed += 1
    results.left = [name for name in collected if name not in outcomes]
    results.devices = devices_in(folder)
    if _are_right(results.devices, rehearsal):
        results.on_device = results.passed + results.failed
    return results


def devices_in(folder: Path) -> list[dict[str, Any]]:
    """Returns the devices that processes recorded, without repetition."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("device-*.json")):
        device = json.loads(path.read_text())
        device.pop("peak_bytes", None)
        if device not in found:
            found.append(device)
    return found


def _are_right(devices: list[dict[str, Any]], rehearsal: bool) -> bool:
    return bool(devices) and all(is_right_device(device["name"], rehearsal) for device in devices)


def of_benchmarks(path: Path, folder: Path, rehearsal: bool) -> Results:
    """Reads the rows that `python -m benches --json` wrote."""
    results = Results(devices=devices_in(folder))
    for row in json.loads(path.read_text())["rows"] if path.exists() else ():
        if row["failure"]:
            results.fail(row["what"], row["failure"])
        else:
            results.passed += 1
            results.figures.append({name: row[name] for name in row if name != "failure"})
    if _are_right(results.devices, rehearsal):
        results.on_device = len(results.figures)
    return results


def of_parity(path: Path, folder: Path, rehearsal: bool) -> Results:
    """Reads what `python -m tests.parity --json` wrote: a test for each of PyTorch's operations."""
    results = Results(devices=devices_in(folder))
    for name, found in json.loads(path.read_text()).items() if path.exists() else ():
        if found["failures"]:
            results.fail(name, json.dumps(found["failures"]))
        elif sum(found["checks"].values()):
            results.passed += 1
        else:
            results.skip(name, found["status"])
    if _are_right(results.devices, rehearsal):
        results.on_device = results.passed + results.failed
    return results


def of_program(text: str, ending: int | None, name: str, folder: Path, rehearsal: bool) -> Results:
    """Reads the exit status of a program that is one test, or that counts: `N programs …, M failures`."""
    results = Results(devices=devices_in(folder))
    counted = re.search(r"^(\d+) programs .*, (\d+) failures$", text, re.MULTILINE)
    if counted:
        results.passed = int(counted[1]) - int(counted[2])
        for line in re.findall(r"^# (seed \d+: .*)$", text, re.MULTILINE):
            results.fail(line.split(":", 1)[0], line)
    elif ending == 0:
        results.passed = 1
    elif ending is None:
        results.left = [name]
    else:
        results.fail(name, text)
    if _are_right(results.devices, rehearsal):
        results.on_device = results.passed + results.failed
    return results
