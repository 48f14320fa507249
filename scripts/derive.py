"""Writes the parts of the type stubs that follow from the op table: the methods of `Tensor` and the functions of `gt`.

Run it after adding a row, where the package is installed: `python scripts/derive.py`. With `--check`, as in a
test, it writes nothing and names each stub that is out of date.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import gt
from gt import _core, _forms, _ops, _placement
from gt._composites import catalogue

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pybind" / "python" / "gt"
BEGIN, END = "# derived: begin", "# derived: end"
LINE_CHARACTERS_MAX = 120


def _annotation(text: Any) -> str:
    """Returns an annotation as stubs write it; `float` is a dtype there, so builtins get a leading `_`."""
    text = str(text).replace("Tensor | complex", "Tensor | Number").replace("_gt.dtype", "DType")
    text = re.sub(r"^complex$", "Number", text)
    return re.sub(r"\b(bool|int|float)\b", r"_\1", text)


def _signature(function: Any) -> list[str]:
    """Returns the parameters of a function of `_ops` as source."""
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
    """Returns whether `gt.name` is written in Python, so that it has a signature to inspect."""
    return name not in _ops.METHODS and name not in _ops.ALIASES


def _methods() -> str:
    """Returns the stubs of the methods that `_ops.install` adds to `Tensor`."""
    lines = []
    methods = {method.__name__ for method in (*catalogue.TENSOR_METHODS, *_placement.TENSOR_METHODS)}
    methods.add("__array_namespace__")
    for name in sorted({*_core._functions, *methods}):
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
    # Aliases come last, since their target may come later in the alphabet.
    definitions = [line for line in lines if "def " in line]
    return "\n".join(definitions + [line for line in lines if "def " not in line]) + "\n"


def _functions() -> str:
    """Returns the stubs of the functions that `_ops.install` adds to the package."""
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    lines = []
    for name in sorted(set(_core._functions) - set(_ops.ALIASES)):
        if _is_python(name):
            function = getattr(gt, name)
            result = _annotation(inspect.signature(function).return_annotation)
            lines.append(_definition("", name, _signature(function), result))
            continue
        # The stub is the method's, with `input` in place of `self`.
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
    """Splits `a: X[b, c], d=1` at the commas outside brackets, and puts blanks around an annotated parameter's `=`."""
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
    """Returns the text of a file with `section` between its marks."""
    text = path.read_text()
    head, rest = text.split(BEGIN + "\n", 1)
    tail = rest.split(END, 1)[1]
    indent = re.search(r" *$", head)
    return f"{head}{BEGIN}\n{section}{indent.group() if indent else ''}{END}{tail}"


def main() -> int:
    """Writes the stubs, or with `--check` compares them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args().check
    stale = []
    # The functions' stubs are made from those of the methods, so these come first.
    for path, make in [
        (PACKAGE / "_gt.pyi", lambda: _between(PACKAGE / "_gt.pyi", _methods())),
        (PACKAGE / "__init__.pyi", lambda: _between(PACKAGE / "__init__.pyi", _functions())),
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
