"""The layers: no files import each other in a circle, and a type's name means one thing in the whole workspace.

Imports are read from the text, as `use` declarations and paths in Rust and as import statements in Python, also inside
functions. Tests inside a Rust file are left out.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "pybind" / "python"

Module = tuple[str, ...]
# The files that a file imports, each with one of the names it takes.
Graph = dict[str, dict[str, str]]


def _listed(pattern: str) -> list[str]:
    """The files that git tracks, or would, below the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


# Rust -------------------------------------------------------------------------------------------------------------


def _code(text: str) -> str:
    """Rust source without its comments, its strings and the tests at its end."""
    text = re.sub(r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:pub )?mod \w+ \{.*\Z", "", text, flags=re.DOTALL)
    text = re.sub(r'(?s)"(?:\\.|[^"\\])*"', '""', re.sub(r"//[^\n]*", "", text))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def _used(tree: str) -> Iterator[list[str]]:
    """The paths of a `use` tree: `a::{b, c::d as e}` gives `a::b` and `a::c::d`."""
    words = re.findall(r"\w+|[{},*]", re.sub(r"\bas\s+\w+", "", tree))
    prefixes: list[list[str]] = [[]]
    path: list[str] = []
    # `use` is also a word of macros' rules, where what follows is no tree.
    if words.count("{") != words.count("}") or "}" in words[:1]:
        return
    for word in words:
        if word == "{":
            prefixes.append(prefixes[-1] + path)
            path = []
        elif word in {",", "}"}:
            if path:
                yield prefixes[-1] + path
            path = []
            if word == "}":
                prefixes.pop()
        else:
            path.append(word)
    if path:
        yield prefixes[-1] + path


def _module(inner: str) -> Module:
    """`("a", "b")` for `a/b.rs` and for `a/b/mod.rs`; nothing for a crate's root."""
    parts = inner.removesuffix(".rs").split("/")
    return tuple(parts[:-1] if parts[-1] in {"mod", "lib", "main"} else parts)


def _target(path: list[str], here: Module, modules: dict[Module, str]) -> tuple[str | None, str]:
    """The file of the deepest module that a path in `here` leads through, and the name that it takes from there."""
    at = list(here)
    if path[0] == "crate":
        at, path = [], path[1:]
    elif path[0] == "self":
        path = path[1:]
    elif path[0] == "super":
        while path and path[0] == "super":
            at, path = at[:-1], path[1:]
    elif (*here, path[0]) not in modules:
        return None, ""
    while path and (*at, path[0]) in modules:
        at, path = [*at, path[0]], path[1:]
    return modules.get(tuple(at)), path[0] if path else ""


def _rust_graph() -> Graph:
    crates: dict[str, dict[Module, str]] = defaultdict(dict)
    for name in _listed("*.rs"):
        crate, separator, inner = name.partition("/src/")
        if separator and not (inner == "main.rs" and (ROOT / crate / "src" / "lib.rs").is_file()):
            crates[crate][_module(inner)] = name
    graph: Graph = {}
    for modules in crates.values():
        for here, name in modules.items():
            text = _code((ROOT / name).read_text())
            paths = [path for tree in re.findall(r"\buse\s+([^;]*);", text) for path in _used(tree)]
            body = re.sub(r"\buse\s+[^;]*;", "", text)
            paths += [path.split("::") for path in re.findall(r"(?<![\w:$])[a-z_]\w*(?:::\w+)+", body)]
            edges = graph.setdefault(name, {})
            for path in paths:
                target, taken = _target(path, here, modules)
                if target and target != name and taken:
                    edges.setdefault(target, taken)
    return graph


# Python -----------------------------------------------------------------------------------------------------------


def _checked_only(tree: ast.Module) -> set[ast.AST]:
    """Returns the nodes below `if TYPE_CHECKING`, which no program runs."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for block in blocks for inner in ast.walk(block)}


def _imported(name: str, is_package: bool, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules that a module names in its import statements, each with what it takes from them."""
    skipped = _checked_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".") if is_package else name.split(".")[:-1]
            parents = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((f"{module}.{alias.name}", alias.name) for alias in node.names)


def _python_graph() -> Graph:
    modules = {}
    for name in _listed("pybind/python/*.py"):
        parts = (ROOT / name).relative_to(PACKAGES).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = name
    graph: Graph = {}
    for module, name in modules.items():
        edges = graph.setdefault(name, {})
        for path, taken in _imported(module, name.endswith("__init__.py"), ast.parse((ROOT / name).read_text())):
            # `from gt import _gt` takes the extension, which is below all of Python.
            if path == "gt._gt":
                continue
            target = modules.get(path) or modules.get(path.rpartition(".")[0])
            if target and target != name:
                edges.setdefault(target, taken)
    return graph


# Circles ----------------------------------------------------------------------------------------------------------


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of several files (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for target in graph.get(file, {}):
            if target not in index:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], index[target])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) > at + 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in graph:
        if file not in index:
            visit(file)
    return found


def _told(graph: Graph) -> str:
    lines = []
    for circle in circles(graph):
        lines.append(f"a circle of {len(circle)} files:")
        for file in circle:
            lines += [f"  {file} -> {target}: {taken}" for target, taken in graph[file].items() if target in circle]
    return "\n".join(lines)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b": ""}, "b": {"c": ""}, "c": {"a": "", "d": ""}, "d": {}}) == [["a", "b", "c"]]
    assert circles({"a": {"b": "", "c": ""}, "b": {"c": ""}, "c": {}}) == []


def test_use_trees_are_read() -> None:
    assert list(_used("crate::{a, b::{C, D as E}, f::*}")) == [
        ["crate", "a"],
        ["crate", "b", "C"],
        ["crate", "b", "D"],
        ["crate", "f", "*"],
    ]


def test_no_files_of_a_crate_import_each_other_in_a_circle() -> None:
    graph = _rust_graph()
    assert sum(map(len, graph.values())) > 300
    assert not circles(graph), "\n" + _told(graph)


def test_no_files_of_the_python_package_import_each_other_in_a_circle() -> None:
    graph = _python_graph()
    assert sum(map(len, graph.values())) > 300
    assert not circles(graph), "\n" + _told(graph)


def test_a_type_s_name_means_one_thing() -> None:
    """A newcomer who searches for a type's name finds one definition."""
    places = defaultdict(list)
    for name in _listed("*.rs"):
        if "/src/" in name:
            defined = r"^\s*(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|union) (\w+)"
            for type_name in re.findall(defined, _code((ROOT / name).read_text()), re.MULTILINE):
                places[type_name].append(name)
    assert len(places) > 300
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert several == {}


def test_crates_depend_only_on_crates_above_them_in_the_architecture() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    order = [folder for row in rows for folder in re.findall(r"`([a-z_]+)/`", row)]
    manifests = {name: (ROOT / name).read_text() for name in _listed("*Cargo.toml") if name != "Cargo.toml"}
    folders = {re.search(r'^name = "(.*)"', text, re.MULTILINE)[1]: name for name, text in manifests.items()}
    broken, checked = [], 0
    for name, text in manifests.items():
        dependencies = re.search(r"^\[dependencies\]\n(.*?)(?:^\[|\Z)", text, re.MULTILINE | re.DOTALL)
        for crate in re.findall(r"^([\w-]+)\b", dependencies[1] if dependencies else "", re.MULTILINE):
            if crate in folders:
                checked += 1
                above, below = (order.index(path.split("/")[0]) for path in (folders[crate], name))
                if above > below:
                    broken.append(f"{name} depends on {crate}")
    assert checked > 30
    assert broken == []
