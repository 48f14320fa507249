"""The report of a run: lines for a terminal, JSON for programs, and a page with a row for each operation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import torch

from tests.parity.checks import Result


def line(result: Result) -> str:
    """Returns the line of one operation: its checks, failures and missing forms."""
    done = ", ".join(f"{n} {kind}" for kind, n in result.checks.items())
    return f"{result.status:8} {result.name:45} " + "; ".join(filter(None, [done, notes(result)]))


def notes(result: Result) -> str:
    """Lists the failures and missing forms of one operation."""
    words = []
    if result.failures:
        words.append("FAILED " + ", ".join(f"{n} {kind}" for kind, n in result.failures.items()))
    if result.unsupported:
        words.append(f"{sum(result.unsupported.values())} not supported")
    if result.missing:
        words.append("no form: " + ", ".join(sorted(result.missing)))
    return "; ".join(words)


def details(result: Result) -> list[str]:
    """Lists each kind of difference, of unsupported argument, and of error message that is not PyTorch's."""
    return [
        *result.details,
        *(f"{n} × not supported: {what}" for what, n in result.unsupported.items()),
        *(f"message: {what}" for what in sorted(set(result.messages))),
    ]


def summary(results: list[Result]) -> str:
    """Returns the counts of operations by status."""
    counts = Counter(result.status for result in results)
    checks = sum(sum(result.checks.values()) for result in results)
    failures = sum(sum(result.failures.values()) for result in results)
    claimed = sum(result.claimed for result in results)
    return (
        f"{claimed} of {len(results)} names: {counts['passed']} passed, {counts['partial']} partial, "
        f"{counts['failed']} failed; {counts['absent']} absent. {checks} checks, {failures} failures."
    )


def absent(results: list[Result]) -> list[str]:
    """Returns the names of operations that GT does not have."""
    return sorted(result.name for result in results if not result.claimed)


def write_json(results: list[Result], path: Path) -> None:
    """Writes the results as JSON."""
    content = {
        result.name: {
            "status": result.status,
            "checks": result.checks,
            "failures": result.failures,
            "details": result.details,
            "unsupported": result.unsupported,
            "missing": sorted(result.missing),
            "messages": sorted(set(result.messages)),
        }
        for result in results
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_page(results: list[Result], curve: str, path: Path) -> None:
    """Writes the counts and a table with a row for each operation."""
    rows = [
        f"| `{result.name}` | {result.status} | {sum(result.checks.values())} | {notes(result)} |"
        for result in sorted(results, key=lambda result: result.name)
        if result.claimed
    ]
    table = "\n".join(["| name | status | checks | not there |", "| --- | --- | --- | --- |", *rows])
    names = "\n".join(f"`{name}`" for name in absent(results))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""# Parity with PyTorch {torch.__version__.split("+")[0]}

{summary(results)}

{curve}

{table}

Absent:

{names}
""")
