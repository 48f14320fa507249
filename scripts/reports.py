"""Writes the reports that list everything there is, one page each: the primitive operations, and PyTorch's names.

Run it where the package is installed: `python scripts/reports.py [FOLDER]`, as `make reports` does. The pages
are built rather than kept in git. `make parity` writes a third page beside them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import gt
from gt import _absent, _gt

FOLDER = Path(__file__).resolve().parent.parent / "target" / "reports"
LINE_CHARACTERS_MAX = 120

TABLE = _gt.op_table()
ROWS = {row["name"]: row for row in TABLE}

DTYPE_SETS = {
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"): "all",
    ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"): "all but bool",
    ("bool", "uint8", "int8", "int16", "int32", "int64"): "bool, integers",
    ("float16", "bfloat16", "float32", "float64"): "floats",
    ("float16", "bfloat16"): "half precisions",
    ("bool",): "bool",
    ("float32", "float64"): "float32, float64",
    ("uint8", "int8", "int16", "int32", "int64"): "integers",
}
PROMOTION = {"float": "; others become float32", "sum": "; bools and integers become int64"}
RESULT = {"bool": "bool", "float32": "float32", "int64": "int64", "same": "the operands'", "given": "as asked"}
CLASSES = {
    "elementwise": "One result element from the operands' elements at the same place. Operands broadcast, and are "
    "brought to a common dtype by PyTorch's rules; all but the first may be numbers. Each is a function, a method, and "
    "with `_` at its end an in-place method.",
    "select": "Elementwise, choosing by a bool first operand.",
    "cast": "`x.to(dtype)`, `x.float()`, `x.long()` and so on.",
    "reduction": "One result element from all elements along `dim` (or `axis`): an axis, several, or all. `keepdim` "
    "(or `keepdims`) leaves axes of size 1.",
    "arg-reduction": "The position of an extreme along one `dim`, or in the flattened tensor.",
    "movement": "The same elements under another shape; no arithmetic. `view`, `flatten`, `squeeze`, `unsqueeze`, "
    "`transpose`, `.T` and indexing are these.",
    "slice-scatter": "What `x[…] = y` issues.",
    "concatenation": "`stack` is built on it.",
    "contraction": "`a @ b` of vectors, matrices and batches of them, and `affine`.",
    "convolution": "What `gt.nn.functional.conv1d`, `conv2d`, `conv3d`, their transposes and their gradients issue: "
    "one instruction each, whatever the stride, padding, dilation and groups.",
    "pooling": "Windows reduced to an element each, by channel: what `max_pool2d`, `avg_pool2d` and their like issue.",
    "gather": "Elements chosen by an index tensor.",
    "scatter": "Elements put, added or otherwise joined where an index tensor says along an axis; `scatter_reduce`, "
    "`index_add` and their like are built on these.",
    "scan": "Each element from all up to it along a `dim`; `cummax` and `cummin` are built on the positions.",
    "sort": "The order of the elements along a `dim`; `sort`, `topk` and their like are built on it.",
    "search": "Where elements belong among sorted ones.",
    "positions": "Where the elements of a mask are true; `nonzero` counts them first.",
    "creation": "`zeros`, `ones`, `linspace` and `eye` are built on these.",
    "random": "Counter-based: the same seed gives the same numbers on any worker.",
    "rows": "Several steps over rows, the last axis, in one pass: what `gt.nn.functional` and the methods of these "
    "names issue, and their gradients. Some operands may be numbers.",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def operations() -> str:
    """The page of the primitive operations: a table for each class of the op table."""
    lines = [
        "# Operations",
        "",
        "Every operation is built from these primitives, one row of the op table each. *Accepts* names the dtypes an",
        "operation computes in; *gradient* says whether `backward()` passes through it. The reference is the same",
        "computation in NumPy (`np`) or SciPy's `special` (`sp`), against which every row is tested.",
        "",
    ]
    for name, about in CLASSES.items():
        rows = [row for row in TABLE if row["class"] == name]
        if not rows:
            continue
        lines += [f"## {name.capitalize()}", "", about, ""]
        lines += ["| op | what | accepts | result | gradient | reference |", "| --- | --- | --- | --- | --- | --- |"]
        for row in rows:
            accepts = DTYPE_SETS[tuple(row["accepts"])] + PROMOTION.get(row["promotion"], "")
            gradient = "yes" if row["differentiable"] else "no"
            reference = f"`{_cell(row['reference'])}`" if row["reference"] else ""
            words = (f"`{row['name']}`", _cell(row["doc"]), accepts, RESULT[row["result"]], gradient, reference)
            lines.append("| " + " | ".join(words) + " |")
        lines.append("")
    table = _gt.function_table()
    lines += ["## Composites", "", "Built on the primitives, with the gradients that follow.", ""]
    for module in sorted({row["module"] for row in table}):
        names = {row["name"] for row in table if row["module"] == module} - (set() if module else set(ROWS))
        lines += [f"`gt{'.' * bool(module)}{module}`: " + ", ".join(f"`{name}`" for name in sorted(names)) + ".", ""]
    aliases = sorted((alias, row["name"]) for row in table for alias in row["aliases"])
    lines.append("Other names: " + ", ".join(f"`{alias}` for `{name}`" for alias, name in aliases) + ".")
    missing = {row["class"] for row in TABLE} - set(CLASSES)
    if missing:
        raise SystemExit(f"scripts/reports.py: say in CLASSES what the class {missing.pop()!r} is")
    return "\n".join(lines) + "\n"


def _of_gt(place: str) -> Any:
    """GT's counterpart of a PyTorch module or of `torch.Tensor`; `None` if there is none."""
    if place == "torch.Tensor":
        return gt.Tensor
    try:
        return importlib.import_module("gt" + place.removeprefix("torch"))
    except ModuleNotFoundError:
        return None


def _listed(words: list[str]) -> list[str]:
    return textwrap.wrap(", ".join(f"`{word}`" for word in words), LINE_CHARACTERS_MAX) if words else ["None."]


def pytorch_names() -> str:
    """The page of PyTorch's public names: which of them GT has, module by module."""
    lines = [
        "# PyTorch's names",
        "",
        "The public names of PyTorch 2.15 in the modules that GT has, too. A name that is there does what it does in",
        "PyTorch, or raises and says what it does not do. What is not there can be imported; calling it raises",
        "`NotImplementedError`.",
        "",
    ]
    sections: list[str] = []
    rows = ["| module | there | of |", "| --- | --- | --- |"]
    for place, words in _absent.names().items():
        here = _of_gt(place)
        if here is None or not words:
            continue
        there = [word for word in words if hasattr(here, word) and not _absent.is_stand_in(getattr(here, word))]
        missing = [word for word in words if word not in there]
        rows.append(f"| `{place}` | {len(there)} | {len(words)} |")
        sections += [
            "",
            f"## {place}",
            "",
            "### There",
            "",
            *_listed(there),
            "",
            "### Not there",
            "",
            *_listed(missing),
        ]
        reasons = {word: _absent.reason(f"{place}.{word}") for word in missing}
        sections += ["", *(f"- `{word}`{why}" for word, why in reasons.items() if why)] if any(reasons.values()) else []
    return "\n".join([*lines, *rows, *sections]) + "\n"


PAGES = {"ops.md": operations, "torch.md": pytorch_names}


def main() -> int:
    """Writes every page into a folder, which is made if it is not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help="where the pages go [default: %(default)s]"
    )
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make())
        sys.stdout.write(f"{folder / name}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
