"""The style rules that a machine can check, in the spirit of TigerBeetle's `tidy`: over every file that git knows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINE_LENGTH_MAX = 120
FILE_LINES_MAX = 1500
# rustfmt breaks code and ruff checks Python; rustfmt leaves comments alone, and so they are checked here.
RUST_COMMENT = re.compile(r"^\s*//")
UNBREAKABLE = re.compile(r"https?://|^\s*//[/!]?\s*\|.*\|$")
BINARY_SUFFIXES = {".bin", ".npy", ".pt", ".png", ".ico"}
# Spelled in halves, so that this file does not break its own rules.
BANNED = {
    "TO" + "DO": "finish it, or file it where work is tracked",
    "FIX" + "ME": "fix it",
    "X" + "XX": "say what is meant",
    "dbg" + "!(": "a left-over of debugging",
    "todo" + "!(": "nothing half-done lands",
    "unimplemented" + "!(": "nothing half-done lands",
    "breakpoint" + "()": "a left-over of debugging",
    "/wo" + "rk/": "a path of one machine",
    "/ro" + "ot/": "a path of one machine",
    "/home" + "/": "a path of one machine",
    "<<<<" + "<<<": "a merge conflict",
}


def _files() -> list[Path]:
    """Every file that is tracked or about to be; the ones git ignores are nobody's style."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


FILES = _files()
RUST = [path for path in FILES if path.suffix == ".rs"]
PYTHON = [path for path in FILES if path.suffix in {".py", ".pyi"}]
MARKDOWN = [path for path in FILES if path.suffix == ".md"]
MANIFESTS = [path for path in FILES if path.name == "Cargo.toml"]
TEXT = [path for path in FILES if path.suffix not in BINARY_SUFFIXES and path.name not in {"Cargo.lock", "LICENSE"}]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _lines(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """`(where, line)` for each line, where `where` is what an editor can jump to."""
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield f"{_name(path)}:{number}", line


def _report(broken: list[str]) -> None:
    assert not broken, "\n" + "\n".join(broken)


def test_there_is_something_to_check() -> None:
    assert len(RUST) >= 10
    assert len(PYTHON) >= 3


def test_no_comment_is_too_wide() -> None:
    comments = [(where, line) for where, line in _lines(RUST) if RUST_COMMENT.match(line)]
    _report(
        [
            f"{where}: {len(line)} characters, at most {LINE_LENGTH_MAX}"
            for where, line in comments
            if len(line) > LINE_LENGTH_MAX and not UNBREAKABLE.search(line)
        ]
    )


@pytest.mark.parametrize("path", RUST + PYTHON, ids=_name)
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) < FILE_LINES_MAX, "split it by what its parts are for"


def test_no_banned_word() -> None:
    _report(
        [f"{where}: {word!r}: {why}" for where, line in _lines(TEXT) for word, why in BANNED.items() if word in line]
    )


def test_whitespace() -> None:
    broken = [f"{where}: trailing blanks" for where, line in _lines(TEXT) if line != line.rstrip()]
    broken += [f"{where}: a tab" for where, line in _lines(RUST + PYTHON) if "\t" in line]
    for path in TEXT:
        text = path.read_text()
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            broken.append(f"{_name(path)}: must end with one newline")
    _report(broken)


def test_rust_files_open_with_what_they_are_for() -> None:
    roots = [path for path in RUST if path.name in {"lib.rs", "main.rs", "mod.rs"} or path.parent.name == "tests"]
    _report([_name(path) for path in roots if not path.read_text().startswith("//!")])


def test_no_dead_rust_file() -> None:
    """A file that no `mod` names is not compiled, and rots unseen."""
    roots = {"lib.rs", "main.rs", "build.rs", "mod.rs"}
    broken = []
    for path in RUST:
        relative = path.relative_to(ROOT)
        if "src" not in relative.parts or path.name in roots or "bin" in relative.parts:
            continue
        parents = [path.parent / name for name in sorted(roots)] + [path.parent.with_suffix(".rs")]
        declared = re.compile(rf"\bmod {path.stem}\b|#\[path = \"[^\"]*{re.escape(path.name)}\"\]|{path.stem}\s*=>")
        if not any(parent.is_file() and declared.search(parent.read_text()) for parent in parents):
            broken.append(f"{_name(path)}: no `mod {path.stem}` in its parent")
    _report(broken)


def test_every_crate_follows_the_workspace() -> None:
    broken = []
    for path in MANIFESTS:
        text = path.read_text()
        if path.parent == ROOT:
            continue
        broken += [
            f"{_name(path)}: lacks `{line}`"
            for line in ("version.workspace = true", "license.workspace = true", "[lints]\nworkspace = true")
            if line not in text
        ]
    _report(broken)


def test_the_architecture_names_every_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {path.relative_to(ROOT).parts[0] for path in FILES if path.parent != ROOT}
    named = sorted(folder for folder in folders if not folder.startswith("."))
    _report([f"ARCHITECTURE.md does not name `{folder}/`" for folder in named if f"`{folder}/" not in text])


@pytest.mark.parametrize("path", MARKDOWN, ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    _report([t for t in targets if "://" not in t and not t.startswith("mailto:") and not (path.parent / t).exists()])


def test_every_page_is_linked() -> None:
    """A page that nothing links to is a page that nobody finds."""
    everything = "\n".join(path.read_text() for path in MARKDOWN)
    pages = [path for path in MARKDOWN if path.parent != ROOT and path.name != "README.md"]
    _report([f"{_name(path)}: linked from nowhere" for path in pages if path.name not in everything])


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text()
