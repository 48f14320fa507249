"""Training states of llm.c: the moments of AdamW, and the place in the data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import gt
from gt.llm.checkpoint import from_bytes, parameter_count, to_bytes
from gt.llm.files import HEADER_BYTES, TRAIN_STATE, FileError, check_header, make_header, written
from gt.llm.mersenne import STATE_WORDS
from gt.llm.model import GPT2
from gt.llm.tokens import Position, TokenLoader

# llm.c's generator in a file: the seed, how many words are left, the next word, the words, two constants.
GENERATOR = np.dtype(
    [("seed", "<u8"), ("left", "<i4"), ("next", "<u4"), ("words", "<u4", STATE_WORDS), ("a", "<u4", 2)]
)
MATRIX_A = 0x9908B0DF


def _halves(number: int) -> tuple[int, int]:
    """A 64-bit number as two int32."""
    low, high = np.array([number], "<u8").view("<i4").tolist()
    return low, high


def write_train_state(
    path: str | os.PathLike[str], model: GPT2, optimizer: gt.optim.Optimizer, loader: TokenLoader, step: int
) -> None:
    """Writes what training needs to go on after `step` steps, as one process of llm.c does."""
    shuffled = loader.random is not None
    seed, draws = gt.default_generator._position()
    fields = {2: 1, 3: 0, 4: 0, 5: int(shuffled), 10: step}
    for at, number in ((20, seed), (22, draws), (30, loader.position.shard), (32, loader.position.sample)):
        fields[at], fields[at + 1] = _halves(number)
    c = model.config
    with written(path) as file:
        file.write(make_header(TRAIN_STATE, 1, fields))
        for moment in ("exp_avg", "exp_avg_sq"):
            for kind, parameters in model.parameters_of_files():
                for parameter in parameters:
                    state = optimizer.state.get(parameter)
                    found = state[moment] if state else gt.zeros_like(parameter)
                    file.write(to_bytes(found.detach(), gt.float32))
                if kind == "wte.weight":
                    file.write(bytes(4 * (c.padded_vocabulary - c.vocabulary) * c.channels))
        if loader.random:
            for order in (loader.shard_order, loader.sample_order):
                file.write(np.array([len(order)], "<u8").tobytes())
                file.write(order.astype("<i4").tobytes())
            words, index = loader.random.state
            generator = np.zeros((), GENERATOR)
            generator["words"], generator["a"] = words, (0, MATRIX_A)
            generator["left"], generator["next"] = STATE_WORDS + 1 - index, index
            file.write(generator.tobytes())


def read_train_state(
    path: str | os.PathLike[str], model: GPT2, optimizer: gt.optim.Optimizer, loader: TokenLoader
) -> int:
    """Brings an optimizer, a loader and the random numbers to where a training state was written; returns its step.

    Raises:
        FileError: The file holds something else, is cut off, or is one of several processes' or of another loader.
    """
    with open(path, "rb") as file:
        header = check_header(file.read(HEADER_BYTES), path, TRAIN_STATE, (1,))
        if header[2] != 1:
            raise FileError(
                f"{path} is a part of the state of {int(header[2])} processes; here one process trains on all devices, "
                "and a state of one process can be read"
            )
        rest = file.read()
    wide = header[20:34].copy().view("<u8")
    c = model.config
    count = parameter_count(c, c.padded_vocabulary)
    arrays = 3 if header[4] else 2
    if len(rest) < 4 * arrays * count:
        raise FileError(f"{path} is cut off, or belongs to another model: {arrays} × {count:,} numbers are missing")
    if bool(header[5]) != (loader.random is not None):
        raise FileError(f"{path} was written {'with' if header[5] else 'without'} shuffling: train as before")
    states: dict[Any, dict[str, Any]] = {}
    at = 0
    for moment in ("exp_avg", "exp_avg_sq"):
        for kind, parameters in model.parameters_of_files():
            for parameter in parameters:
                size = 4 * parameter.numel()
                own = states.setdefault(parameter, {"step": int(header[10])})
                own[moment] = from_bytes(rest[at : at + size], gt.float32, parameter.shape)
                at += size
            if kind == "wte.weight":
                at += 4 * (c.padded_vocabulary - c.vocabulary) * c.channels
    optimizer.state.update(states)
    shard, sample = int(wide[5]), int(wide[6])
    _restore_loader(path, rest[4 * arrays * count :], loader, Position(shard, sample))
    gt.default_generator._go_to((int(wide[0]), int(wide[1])))
    return int(header[10])


def _restore_loader(path: str | os.PathLike[str], rest: bytes, loader: TokenLoader, position: Position) -> None:
    shards = len(loader.paths)
    if position.shard >= shards:
        raise FileError(f"{path} is at shard {position.shard}, but {shards} files match: train on the same files")
    if loader.random:
        samples = int(np.frombuffer(rest, "<u8", 1, 8 + 4 * shards)[0]) if len(rest) >= 16 + 4 * shards else 0
        size = 16 + 4 * shards + 4 * samples + GENERATOR.itemsize
        if len(rest) != size or int(np.frombuffer(rest, "<u8", 1)[0]) != shards:
            raise FileError(f"{path} is cut off, or the order in it is not one of the {shards} files that match")
        generator = np.frombuffer(rest, GENERATOR, 1, size - GENERATOR.itemsize)[0]
        orders = [np.frombuffer(rest, "<i4", shards, 8), np.frombuffer(rest, "<i4", samples, 16 + 4 * shards)]
        following = int(generator["next"])
        if following > STATE_WORDS or any(
            not np.array_equal(np.sort(order), np.arange(len(order))) for order in orders
        ):
            raise FileError(f"{path} is damaged: the order of its shards or samples is none")
        loader.shard_order = orders[0].astype(np.int64)
        loader._open(position.shard)
        if len(loader.sample_order) != samples:
            raise FileError(
                f"{path} has {samples} samples of this shard, but it has {len(loader.sample_order)}: train as before"
            )
        loader.sample_order = orders[1].astype(np.int64)
        fresh = following == 0 and int(generator["left"]) == 1
        loader.random.state = (generator["words"], STATE_WORDS if fresh else following)
    else:
        loader._open(position.shard)
    if position.sample > len(loader.sample_order):
        raise FileError(f"{path} is at sample {position.sample}, which the tokens do not have: train on the same files")
    loader.position = position
