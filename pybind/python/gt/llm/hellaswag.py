"""HellaSwag (Zellers et al. 2019) in llm.c's format: which of four endings a model finds the most likely."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import gt
from gt.llm.files import HEADER_BYTES, HELLASWAG, FileError, check_header, make_header, written
from gt.llm.model import GPT2
from gt.nn import functional

START = 65535
ENDINGS = 4


@dataclass
class Example:
    """A context and its possible endings, as tokens. `label` is the index of the right one."""

    context: list[int]
    endings: list[list[int]]
    label: int


def write_hellaswag(path: str | os.PathLike[str], examples: list[Example]) -> None:
    """Writes examples as a file of llm.c."""
    pieces = []
    for index, example in enumerate(examples):
        rest = [index, example.label, len(example.endings), len(example.context), *example.context]
        for ending in example.endings:
            rest += [len(ending), *ending]
        pieces.append(np.array([START, 2 * (len(rest) + 2), *rest], "<u2"))
    longest = max((2 * len(piece) for piece in pieces), default=0)
    with written(path) as file:
        file.write(make_header(HELLASWAG, 1, {2: len(examples), 3: longest}))
        for piece in pieces:
            file.write(piece.tobytes())


def read_hellaswag(path: str | os.PathLike[str]) -> list[Example]:
    """Returns the examples of a file.

    Raises:
        FileError: The file holds something else, or is cut off.
    """
    with open(path, "rb") as file:
        header = check_header(file.read(HEADER_BYTES), path, HELLASWAG, (1,))
        numbers = np.frombuffer(file.read(), np.uint8)
    words = numbers[: len(numbers) // 2 * 2].view("<u2").tolist()
    return [_example(path, words, at, index) for index, at in _starts(path, words, int(header[2]))]


def _starts(path: str | os.PathLike[str], words: list[int], count: int) -> Iterator[tuple[int, int]]:
    at = 0
    for index in range(count):
        if at + 6 > len(words) or words[at] != START or words[at + 1] < 12 or at + words[at + 1] // 2 > len(words):
            raise FileError(f"{path} is cut off or damaged: example {index} of {count} is not whole")
        yield index, at
        at += words[at + 1] // 2


def _example(path: str | os.PathLike[str], words: list[int], at: int, index: int) -> Example:
    _, size, _, label, endings, length = words[at : at + 6]
    end, at = at + size // 2, at + 6
    context, at = words[at : at + length], at + length
    found = []
    for _ in range(min(endings, ENDINGS)):
        count = words[at] if at < end else end
        found.append(words[at + 1 : at + 1 + count])
        at += 1 + count
    if at != end or endings != ENDINGS or label >= ENDINGS or not context or not all(found):
        raise FileError(
            f"{path} is damaged: example {index} is not a context with {ENDINGS} endings, one of them right"
        )
    return Example(context, found, label)


@gt.no_grad()
def hellaswag_accuracy(model: GPT2, examples: list[Example]) -> float:
    """Returns the part of examples whose right ending has the lowest mean loss.

    Raises:
        ValueError: There are no examples, or one is longer than the model's context.
    """
    if not examples:
        raise ValueError("there is no example")
    right = 0
    for example in examples:
        rows = [example.context + ending for ending in example.endings]
        longest = max(map(len, rows))
        tokens = gt.tensor([row + [0] * (longest - len(row)) for row in rows])
        logits, _ = model(tokens[:, :-1])
        losses = functional.cross_entropy(logits.transpose(1, 2).float(), tokens[:, 1:], reduction="none")
        first = len(example.context) - 1
        ends = [losses[i, first : len(row) - 1].mean() for i, row in enumerate(rows)]
        right += int(gt.stack(ends).argmin()) == example.label
    return right / len(examples)
