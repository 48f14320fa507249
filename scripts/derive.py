"""Writes what follows from the op table: the stubs of its methods and functions, and the page docs/ops.md.

Run it after a row was added, where the package is installed: `python scripts/derive.py`. A test runs it with `--check`,
which writes nothing and names what is out of date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import gt
from gt import _absent, _composites, _forms, _gt, _ops, _placement

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pybind" / "python" / "gt"
BEGIN, END = "# derived: begin", "# derived: end"
LINE_CHARACTERS_MAX = 120

TABLE = _gt.op_table()
ROWS = {row["name"]: row for row in TABLE}


# Stubs ------------------------------------------------------------------------------------------------------------


def _annotation(text: Any) -> str:
    """An annotation as the stubs write it, where `float` and its like are dtypes."""
    text = str(text).replace("Tensor | complex", "Tensor | Number").replace("_gt.dtype", "DType")
    text = re.sub(r"^complex$", "Number", text)
    return re.sub(r"\b(bool|int|float)\b", r"_\1", text)


def _signature(function: Any) -> list[str]:
    """The parameters of a function of `_ops`, each as source."""
    words, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            words.append(f"*{parameter.name}: {_annotation(parameter.annotation)}")
            starred = True
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            words.append(f"**{parameter.name}: {_annotation(parameter.annotation)}")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        value = repr(parameter.default).replace("'", '"').replace("gt.", "")
        default = "" if parameter.default is parameter.empty else f" = {value}"
        words.append(f"{parameter.name}: {_annotation(parameter.annotation)}{default}")
    return words


def _definition(indent: str, name: str, parameters: list[str], result: str) -> str:
    line = f"{indent}def {name}({', '.join(parameters)}) -> {result}: ..."
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    broken = f"{indent}def {name}(\n{indent}    {', '.join(parameters)}\n{indent}) -> {result}: ..."
    if max(map(len, broken.splitlines())) <= LINE_CHARACTERS_MAX:
        return broken
    lines = "".join(f"{indent}    {parameter},\n" for parameter in parameters)
    return f"{indent}def {name}(\n{lines}{indent}) -> {result}: ..."


def _is_python(name: str) -> bool:
    """Whether `gt.name` is written in Python, so that it tells its own signature."""
    return name not in _ops.METHODS and name not in _ops.ALIASES


def _methods() -> str:
    """The methods that `_ops.install` gives `Tensor`."""
    lines = []
    methods = {method.__name__ for method in (*_composites.TENSOR_METHODS, *_placement.TENSOR_METHODS)}
    for name in sorted({*gt._functions, *methods}):
        if not callable(getattr(gt.Tensor, name, None)):
            continue
        if name in _ops.ALIASES:
            target = _ops.ALIASES[name]
            lines.append(f"    {name} = {target}")
            if hasattr(gt.Tensor, name + "_"):
                lines.append(f"    {name}_ = {target}_")
        elif _is_python(name):
            function = getattr(gt.Tensor, name)
            parameters = ["self", *_signature(function)[1:]]
            result = _annotation(inspect.signature(function).return_annotation)
            lines.append(_definition("    ", name, parameters, result))
            if hasattr(gt.Tensor, name + "_") and name + "_" not in methods:
                lines.append(_definition("    ", name + "_", parameters, "Self"))
    # A name may stand for one that comes later in the alphabet.
    definitions = [line for line in lines if "def " in line]
    return "\n".join(definitions + [line for line in lines if "def " not in line]) + "\n"


def _functions() -> str:
    """The functions that `_ops.install` gives the package."""
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    lines = []
    for name in sorted(set(gt._functions) - set(_ops.ALIASES)):
        if _is_python(name):
            function = getattr(gt, name)
            result = _annotation(inspect.signature(function).return_annotation)
            lines.append(_definition("", name, _signature(function), result))
            continue
        # The method's own stub, with `input` for `self`.
        for node in tensor.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                lines += ["@overload" for decorator in node.decorator_list if ast.unparse(decorator) == "overload"]
                node.args.args[0] = ast.arg("input", ast.Name("Tensor"))
                if name in _forms.OUT:
                    node.args.kwonlyargs.append(ast.arg("out", ast.Name("Any")))
                    node.args.kw_defaults.append(ast.Constant(None))
                parameters = _split(ast.unparse(node.args))
                lines.append(_definition("", name, parameters, ast.unparse(node.returns or ast.Constant(None))))
    lines += ["", *(f"{name} = Tensor.{name}" for name in _forms.IN_PLACE if hasattr(gt, name))]
    lines += [*(f"{alias} = {name}" for alias, name in sorted(_ops.ALIASES.items()))]
    return "\n".join(lines) + "\n"


def _split(parameters: str) -> list[str]:
    """`a: X[b, c], d=1` cut at the commas outside brackets, blanks around an annotated default's sign."""
    words = [""]
    depth = 0
    for letter in parameters:
        depth += (letter in "[(") - (letter in ")]")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return [re.sub(r"(:.*\S)=(\S+)$", r"\1 = \2", word.strip()) for word in words]


def _between(path: Path, section: str) -> str:
    """The file with `section` between its marks."""
    text = path.read_text()
    head, rest = text.split(BEGIN + "\n", 1)
    tail = rest.split(END, 1)[1]
    indent = re.search(r" *$", head)
    return f"{head}{BEGIN}\n{section}{indent.group() if indent else ''}{END}{tail}"


# docs/ops.md ------------------------------------------------------------------------------------------------------

DTYPE_SETS = {
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"): "all",
    ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"): "all but bool",
    ("bool", "uint8", "int8", "int16", "int32", "int64"): "bool, integers",
    ("float16", "bfloat16", "float32", "float64"): "floats",
    ("bool",): "bool",
    ("float32", "float64"): "float32, float64",
    ("uint8", "int8", "int16", "int32", "int64"): "integers",
}
PROMOTION = {"float": "; others become float32", "sum": "; bools and integers become int64"}
RESULT = {"bool": "bool", "int64": "int64", "same": "the operands'", "given": "as asked"}
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
    "contraction": "`a @ b` of vectors, matrices and batches of them.",
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


def _page() -> str:
    lines = [
        "# Operations",
        "",
        "<!-- Written by scripts/derive.py from the op table in ops/src/table.rs. -->",
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
    written = {
        function.__name__ for function in (*_composites.METHODS, *_composites.TENSOR_METHODS, *_composites.FUNCTIONS)
    }
    composites = sorted({*_ops.METHODS, *written} - set(ROWS))
    lines += [
        "## Composites",
        "",
        "Built on the primitives, with the gradients that follow; functions, and most of them methods: "
        + ", ".join(f"`{name}`" for name in composites)
        + ".",
        "",
        "Other names: " + ", ".join(f"`{alias}` for `{name}`" for alias, name in sorted(_ops.ALIASES.items())) + ".",
    ]
    missing = {row["class"] for row in TABLE} - set(CLASSES)
    if missing:
        raise SystemExit(f"scripts/derive.py: say in CLASSES what the class {missing.pop()!r} is")
    return "\n".join(lines) + "\n"


# docs/torch.md ----------------------------------------------------------------------------------------------------


def _of_gt(place: str) -> Any:
    """What stands for a module of PyTorch's, or its tensors: none if nothing does."""
    if place == "torch.Tensor":
        return gt.Tensor
    try:
        return importlib.import_module("gt" + place.removeprefix("torch"))
    except ModuleNotFoundError:
        return None


def _listed(words: list[str]) -> list[str]:
    return textwrap.wrap(", ".join(f"`{word}`" for word in words), LINE_CHARACTERS_MAX) if words else ["None."]


def _torch_page() -> str:
    lines = [
        "# PyTorch's names",
        "",
        "<!-- Written by scripts/derive.py from pybind/python/gt/torch/names.txt and the package. -->",
        "",
        "The public names of PyTorch 2.15, and whether GT has them. A name that is there does what it does in PyTorch,",
        "or raises and says what it does not do. What is not there raises `AttributeError` or `ModuleNotFoundError`.",
        "",
    ]
    sections: list[str] = []
    rows = ["| module | there | of |", "| --- | --- | --- |"]
    for place, words in _absent.names().items():
        here = _of_gt(place)
        there = [word for word in words if here is not None and hasattr(here, word)]
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


def main() -> int:
    """Writes the files, or with `--check` compares them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args().check
    stale = []
    # In this order: the functions' stubs are made from the methods'.
    for path, make in [
        (PACKAGE / "_gt.pyi", lambda: _between(PACKAGE / "_gt.pyi", _methods())),
        (PACKAGE / "__init__.pyi", lambda: _between(PACKAGE / "__init__.pyi", _functions())),
        (ROOT / "docs" / "ops.md", _page),
        (ROOT / "docs" / "torch.md", _torch_page),
    ]:
        text = make()
        if not path.exists() or path.read_text() != text:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text)
    for name in stale:
        sys.stdout.write(f"{name}: {'out of date: run python scripts/derive.py' if check else 'written'}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
