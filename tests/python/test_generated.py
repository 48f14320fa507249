"""The stubs, those that the build writes and those written by hand, match the package."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path

import gt

PACKAGE = Path(gt.__file__).parent
DERIVED = PACKAGE / "_functions"


def test_the_build_wrote_a_stub_for_each_module_of_declared_functions() -> None:
    """Compares the derived stubs with the extension: those of another build are out of date."""
    for module, functions in gt._functions.MODULES.items():
        stub = ast.parse((DERIVED / f"{module.replace('.', '_') or 'top'}.pyi").read_text())
        assert _names(stub.body) - _imports(stub) == set(functions), f"gt.{module}: build the package again"


def _imports(stub: ast.Module) -> set[str]:
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname for node in imports for alias in node.names if alias.asname == alias.name}


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
    """A module that is imported at its first use, such as `gt.profiler`, is a name of the package, too."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    declared = set(gt._functions.MODULES[""])
    assert _public(_names(stub.body)) & declared == set()
    # Those two are run, not imported.
    modules = {module.name for module in pkgutil.iter_modules([str(PACKAGE)])} - {"scripts", "torch"}
    assert _public(_names(stub.body) | declared) == _public(set(gt.__all__) | modules)
    assert {name for name in gt.__all__ if not hasattr(gt, name)} == set()


def test_the_extension_s_stub_has_every_name_and_every_method_of_a_tensor() -> None:
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    aliases = {"Number", "Axes", "Part", "Index", "DType", "Device"}
    assert _public(_names(stub.body)) - aliases == _public(set(dir(gt._gt)))
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    declared = _names(_methods().body)
    assert _public(_names(tensor.body)) & declared == set()
    assert _public(_names(tensor.body) | declared) == _public(set(dir(gt.Tensor)))
    special = {name for name in _names(tensor.body) if name.startswith("__")}
    assert special <= set(dir(gt.Tensor)) | {"__contains__"}  # Python falls back to iteration.


def test_type_checkers_find_every_field_of_a_declared_constructor() -> None:
    """PEP 681: the fields of a class that has the transform itself are none of its subclasses'."""
    transformed = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "dataclass_transform()" in map(ast.unparse, node.decorator_list):
                transformed += 1
                branches = [branch for branch in node.body if isinstance(branch, ast.If)]
                statements = [*node.body, *(inner for branch in branches for inner in branch.body)]
                fields = [ast.unparse(field) for field in statements if isinstance(field, ast.AnnAssign)]
                assert [field for field in fields if "ClassVar" not in field] == [], node.name
    assert transformed >= 3


def _methods() -> ast.ClassDef:
    """Returns the class of the declared methods, which the build writes."""
    stub = ast.parse((DERIVED / "methods.pyi").read_text())
    (methods,) = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    return methods


def test_parameters_are_called_in_the_stub_as_they_are() -> None:
    """Checks parameter names: with a wrong one, a type checker would accept calls that fail."""
    stub = ast.parse((PACKAGE / "_gt.pyi").read_text())
    (tensor,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    broken = []
    for node in (*tensor.body, *_methods().body):
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
