"""Generated files are up to date with the op table, and the stubs match the package."""

from __future__ import annotations

import ast
import subprocess
import sys

from support import ROOT, environment

import gt

PACKAGE = ROOT / "pybind" / "python" / "gt"


def test_files_derived_from_the_op_table_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "scripts" / "derive.py", "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _names(body: list[ast.stmt]) -> set[str]:
    """Returns the names that a stub defines."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign):
            names |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname == alias.name}
    return names


def _public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_package_s_stub_has_every_public_name() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    assert _public(_names(stub.body)) == _public(set(gt.__all__))
    assert {name for name in gt.__all__ if not hasattr(gt, name)} == set()


def test_the_extension_s_stub_has_every_name_and_every_method_of_a_tensor() -> None:
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    aliases = {"Number", "Axes", "Part", "Index", "DType", "Device"}
    assert _public(_names(stub.body)) - aliases == _public(set(dir(gt._gt)))
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    assert _public(_names(tensor.body)) == _public(set(dir(gt.Tensor)))
    special = {name for name in _names(tensor.body) if name.startswith("__")}
    assert special <= set(dir(gt.Tensor)) | {"__contains__"}  # Python falls back to iteration.


def test_parameters_are_called_in_the_stub_as_they_are() -> None:
    """Checks parameter names: with a wrong one, a type checker would accept calls that fail."""
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    broken = []
    for node in tensor.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        signature = getattr(getattr(gt.Tensor, node.name, None), "__text_signature__", None)
        if not signature or node.name.startswith("__"):
            continue
        words = ast.parse(f"def f{signature.replace('$', '')}: ...").body[0].args
        arguments = node.args
        for kind in ("args", "kwonlyargs"):
            told = [arg.arg for arg in getattr(arguments, kind) if arg.arg != "self"]
            real = [arg.arg for arg in [*(words.posonlyargs if kind == "args" else []), *getattr(words, kind)]]
            if told != [name for name in real if name != "self"]:
                broken.append(f"{node.name}: the stub has {told}, the method {real}")
    assert not broken, "\n".join(broken)
