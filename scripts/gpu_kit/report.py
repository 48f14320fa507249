"""The command line of `gpu-kit/report`: a run's JSON files as the section of docs/gpu.md that says what was measured.

gpu-kit/report DIR >>docs/gpu.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gpu_kit.groups import GROUPS

OURS = "GT"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def main() -> int:
    """Prints the page of the run in the folder that the argument names."""
    parser = argparse.ArgumentParser(
        prog="gpu-kit/report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the output folder of gpu-kit/run")
    folder = parser.parse_args().folder
    documents = read(folder)
    if not documents:
        parser.error(f"{folder} has no results: run gpu-kit/run --out {folder} first")
    print(page(documents))
    return 0


def read(folder: Path) -> list[dict[str, Any]]:
    """Returns the documents of the groups that were run, in the order of the groups."""
    paths = [folder / f"{group.name}.json" for group in GROUPS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def page(documents: list[dict[str, Any]]) -> str:
    """Returns the section in Markdown."""
    first = documents[0]
    devices = list(dict.fromkeys(device["name"] for document in documents for device in document["devices"]))
    rehearsal = any(document["rehearsal"] for document in documents)
    name = "a rehearsal without a GPU" if rehearsal else ", ".join(devices) or "no device"
    lines = [f"## Measured on {name}, {first['started'][:10]}", ""]
    if rehearsal:
        lines += ["This was a rehearsal on an emulated device: nothing here was measured on a GPU.", ""]
    lines += [_machine(first), ""]
    lines += ["| tests | passed | failed | skipped | not reached | seconds | |", "|---|--:|--:|--:|--:|--:|---|"]
    for document in documents:
        lines.append(
            f"| {document['what']} | {document['passed']:,} | {document['failed']:,} | {document['skipped']:,} |"
            f" {len(document['left']):,} | {document['seconds']:.0f} | {document['status']} |"
        )
    figures = [figure for document in documents for figure in document["figures"]]
    if figures:
        peers = list(dict.fromkeys(name for figure in figures for name in figure["medians"] if name != OURS))
        lines += ["", f"| figure | {OURS} | {' | '.join(peers)} | GT's speed, of PyTorch's |"]
        lines += [f"|---|{'--:|' * (len(peers) + 2)}"]
        lines += [_figure(figure, peers) for figure in figures]
        clocks = next((document["clocks"] for document in documents if document["figures"]), {})
        lines += ["", f"Medians; times are of one operation or step. {_clocks(clocks)}".rstrip()]
    warnings = list(dict.fromkeys(words for document in documents for words in document["warnings"]))
    if warnings:
        lines += ["", "Warnings:", "", *(f"- {words}" for words in warnings)]
    failures = [failure["name"] for document in documents for failure in document["failures"]]
    if failures:
        lines += ["", "Failed:", "", *(f"- `{name}`" for name in failures)]
    return "\n".join(lines)


def _machine(document: dict[str, Any]) -> str:
    facts, kit = document["machine"], document["kit"]
    probe, python, host = facts.get("probe", {}), facts["interpreter"], facts["host"]
    driver = f"driver {probe['driver']}, CUDA {probe['cuda']}; " if probe.get("cuda") else ""
    return (
        f"GT {kit['version']} ({kit['revision']}); {driver}PyTorch {python.get('torch')} for CUDA"
        f" {python.get('torch_cuda')}; {host['processor']}, {host['cores']} cores."
    )


def _figure(figure: dict[str, Any], peers: list[str]) -> str:
    medians, rates = figure["medians"], figure.get("rates") or {}
    cells = [_cell(medians.get(name), rates.get(name), figure) for name in (OURS, *peers)]
    both = OURS in medians and "PyTorch" in medians
    ratio = f"{medians['PyTorch'] / medians[OURS]:.2f}" if both else ""
    return f"| {figure['what'].removeprefix('gpu: ')} | {' | '.join(cells)} | {ratio} |"


def _cell(median: float | None, rate: float | None, figure: dict[str, Any]) -> str:
    if median is None:
        return ""
    scale, unit = next(((scale, unit) for scale, unit in UNITS if median >= scale), UNITS[-1])
    time = f"{median / scale:.3g} {unit}"
    if rate is None:
        return time
    digits, prefix = (rate / 1e12, "T") if figure["rate_unit"] == "FLOP/s" else (rate / 1e9, "G")
    return f"{time}, {_three_digits(digits)} {prefix}{figure['rate_unit']}"


def _three_digits(number: float) -> str:
    """Returns a number with three digits, or with all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _clocks(clocks: dict[str, Any]) -> str:
    if "clocks.sm" not in clocks:
        return ""
    sm, heat = clocks["clocks.sm"], clocks.get("temperature.gpu", {})
    return (
        f"The multiprocessors ran at {sm['least']:.0f} to {sm['largest']:.0f} MHz (median {sm['median']:.0f}), at"
        f" {heat.get('least', 0):.0f} to {heat.get('largest', 0):.0f} °C."
    )
