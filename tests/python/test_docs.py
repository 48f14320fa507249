"""The code in the README and the guide: programs run, commands exist, configurations are accepted, paths are there."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT, environment, gtd

GTCTL = gtd().with_name("gtctl")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = [page for page in PAGES if page.parent.name != "internals"]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    number: int
    language: str
    text: str
    # The indented block that follows at once: what the program prints.
    output: str

    @property
    def file(self) -> str | None:
        """The name in a first line such as `# train.py`, under which the reader is asked to save the block."""
        named = re.match(r"# (\S+\.py)\n", self.text)
        return named[1] if named else None


def _blocks(page: Path) -> list[Block]:
    fenced = re.finditer(
        r"^```(\w+)\n(.*?)^```\n((?:\n(?: {4}[^\n]*\n)+)?)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [
        Block(page, number, block[1], block[2], re.sub(r"^ {4}", "", block[3].strip("\n"), flags=re.MULTILINE))
        for number, block in enumerate(fenced, start=1)
    ]


BLOCKS = [block for page in GUIDE for block in _blocks(page)]


def _of(*languages: str) -> list[object]:
    chosen = [block for block in BLOCKS if block.language in languages]
    return [pytest.param(block, id=f"{block.page.stem}-{block.number}") for block in chosen]


def _run(*command: object, folder: Path | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=environment(), cwd=folder, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_language_of_a_block_is_checked_here() -> None:
    assert {block.language for block in BLOCKS} <= {"python", "py", "sh", "console", "yaml", "c"}
    assert len(_of("python")) > 15


@pytest.mark.parametrize("block", [b for b in _of("python") if not b.values[0].file])
def test_a_program_runs_and_prints_what_the_page_shows(block: Block) -> None:
    printed = _run(sys.executable, "-c", block.text)
    assert block.output.strip() in printed


@pytest.mark.parametrize("block", _of("py"))
def test_a_fragment_is_python(block: Block) -> None:
    """Fragments that need a daemon of the machine's are not run."""
    ast.parse(block.text)


def test_the_files_and_commands_of_the_tutorial_work_together(tmp_path: Path) -> None:
    blocks = _blocks(ROOT / "docs" / "tutorial.md")
    files = [block for block in blocks if block.file]
    assert files
    for block in files:
        (tmp_path / block.file).write_text(block.text)
    commands = [line for block in blocks if block.language == "sh" for line in block.text.splitlines()]
    assert commands
    for command in commands:
        first, *rest = shlex.split(command)
        assert first == "python"
        _run(sys.executable, *rest, folder=tmp_path)
    assert (tmp_path / "model.pt").stat().st_size > 0


def _commands() -> list[tuple[str, list[str]]]:
    """Every command line in a shell block, a console block or an indented block, with the page it is on."""
    found = []
    for page in GUIDE:
        text = page.read_text()
        lines = re.findall(r"^ {4}(?:sudo )?((?:gtctl|gtd|make|python -m) .*)$", text, re.MULTILINE)
        for block in _blocks(page):
            if block.language in {"sh", "console"}:
                lines += [re.sub(r"^(\w+\$ )?(sudo )?", "", line) for line in block.text.splitlines()]
        found += [(page.name, shlex.split(line, comments=True)) for line in lines]
    return [(page, words) for page, words in found if words]


def test_every_command_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    checked, helped = 0, {}
    for page, words in _commands():
        if words[0] == "make":
            assert words[1] in targets, (page, words)
        elif words[:2] == ["python", "-m"]:
            # The compiler of guests is a package of its own, which tests do not need.
            assert words[2] == "ziglang" or importlib.util.find_spec(words[2]) is not None, (page, words)
        elif words[0] == "gtctl" and len(words) > 1:
            # Before the command stand options, each with its value.
            at = 1
            while at + 2 < len(words) and words[at].startswith("--"):
                at += 2
            command = tuple(word for word in words[at : at + 2] if re.fullmatch(r"[a-z]+", word))[:2]
            if command[:1] not in {("config",), ("limits",), ("token",)}:
                command = command[:1]
            if command not in helped:
                helped[command] = _run(GTCTL, *command, "--help")
            flags = [word.split("=")[0] for word in words if word.startswith("--")]
            assert [flag for flag in flags if flag not in helped[command]] == [], (page, words)
        else:
            continue
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("block", _of("yaml"))
def test_a_configuration_is_accepted(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "page.yaml"
    file.write_text(block.text)
    if block.page.name == "administration.md":
        # A user and a group are named in it who need not exist here.
        text = re.sub(r"^  ana:", "  1234:", block.text, flags=re.MULTILINE)
        file.write_text(re.sub(r"^  lab:", "  root:", text, flags=re.MULTILINE))
        _run(GTCTL, "config", "check", file)
    else:
        signals = [line.rstrip(":") for line in block.text.splitlines() if re.match(r"[\w.]+:$", line)]
        check = f"import gt; gt.load_config({str(file)!r}); assert all(map(gt.get_config, {signals!r}))"
        _run(sys.executable, "-c", check)
        assert signals


def test_the_c_program_of_the_page_is_the_example() -> None:
    """`test_c_programs.py` compiles and runs the example."""
    whole = [block.text for block in BLOCKS if block.language == "c" and "int main" in block.text]
    example = (ROOT / "examples" / "c" / "first.c").read_text()
    assert whole
    assert [text for text in whole if text not in example] == []


def test_paths_in_the_architecture_and_the_internals_exist() -> None:
    """A path is looked up from the repository's root, or for `src/…` in the crates that the page is about."""
    broken, checked = [], 0
    for page in [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]:
        for path in re.findall(r"`([\w.-]+(?:/[\w.*-]+)+/?)`", page.read_text()):
            places = [ROOT, ROOT / "backends" / "cuda"]
            if "." not in Path(path).name and not path.endswith("/"):
                continue
            checked += 1
            if not any(list(place.glob(path.rstrip("/"))) for place in places) and not path.startswith("target/"):
                broken.append(f"{page.name}: {path}")
    assert checked > 30
    assert broken == []
