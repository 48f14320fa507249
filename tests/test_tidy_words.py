"""Plain words: the rules of comments and docstrings that a program can check, each with its reason.

A comment is a sentence whose subject is the thing itself, in the words of PyTorch, NumPy, NCCL, Linux or a textbook.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".rs", ".py", ".cuh", ".h", ".c", ".cpp"}
DOCSTRING_WORDS_MIN = 3

# How no comment begins, and why. Add what you stumbled over.
OPENERS = {
    "What": "name the thing: `The result's shape`, not `What it is shaped like`",
    "Who": "name the actor: the client, the worker, the session",
    "Whoever": "name the actor: the client, the worker, the session",
    "Whose": "name the owner",
    "Theirs": "a pronoun needs its noun",
    "Of": "begin with the thing, not with what it belongs to",
    "That of": "begin with the thing, not with what it belongs to",
    "Those of": "begin with the thing, not with what it belongs to",
    "So many": "name the number: `The number of slots`, with its unit",
    "As many": "name the number: `The number of slots`, with its unit",
    "As above": "a reader who searches has not read above",
    "As the": "say it here, or link to the item",
    "One's": "a pronoun needs its noun",
}
# Words of our own for which the field has one.
COINAGES = {
    "whoever": "name the actor",
    "kin": "a dataflow component's membership",
    "strangers": "unrelated instructions",
    "is to be had": "is available",
    "lets go of": "frees, closes or drops",
    "at home": "the default worker",
    "anew": "again",
}
# Unsafe code is sound because of a fact about the lines beside it, which the comment has to name.
SAFETY = re.compile(r"SAFETY:\s*(as above|as before|as for|the caller's promise)\b", re.IGNORECASE)
MARK = re.compile(r"\s*(?:///?!?|//!|#)\s+(?P<text>\S.*)")
OPENER = re.compile(rf"(?:{'|'.join(OPENERS)})\b(?P<rest>.*)")
# Sentences that are good English as they stand.
KEPT: set[str] = set()


def _files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in SUFFIXES and path.is_file()]


FILES = _files()


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    """The first line of each sentence of a comment that begins a line, with its number."""
    before = None
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        comment = MARK.match(line)
        if comment and (before is None or before.endswith((".", ":", "`"))):
            yield number, comment["text"]
        before = comment["text"] if comment else None


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_riddle(text: str) -> bool:
    opener = OPENER.match(text)
    return opener is not None and not text.endswith("?") and text not in KEPT


def test_no_comment_opens_like_a_riddle() -> None:
    found = [
        f"{_name(path)}:{number}: {text}" for path in FILES for number, text in _comments(path) if _is_riddle(text)
    ]
    assert found == []


def test_no_docstring_opens_like_a_riddle_or_says_nothing() -> None:
    broken, checked = [], 0
    for path in FILES:
        if path.suffix != ".py":
            continue
        for number, text in _docstrings(path):
            checked += 1
            first = text.splitlines()[0]
            if len(text.split()) < DOCSTRING_WORDS_MIN:
                broken.append(f"{_name(path)}:{number}: say something useful, or inherit: {text}")
            elif _is_riddle(first):
                broken.append(f"{_name(path)}:{number}: {first}")
    assert checked > 300
    assert broken == []


def test_safety_comments_name_the_fact() -> None:
    broken = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if SAFETY.search(line) and path != Path(__file__)
    ]
    assert broken == []


def test_no_comment_uses_a_word_of_our_own() -> None:
    words = re.compile(rf"\b({'|'.join(COINAGES)})\b", re.IGNORECASE)
    broken = []
    for path in FILES:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            comment = re.search(r"(?:///?!?|//!|(?:^|\s)#)\s+(.*)", line)
            if comment and path != Path(__file__) and (coined := words.search(comment[1])):
                broken.append(f"{_name(path)}:{number}: `{coined[1]}`: {COINAGES[coined[1].lower()]}: {line.strip()}")
    assert broken == []
