"""Debug states of llm.c: a batch with the logits, the loss and the gradients that a model should compute of it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from gt.llm.checkpoint import parameter_count
from gt.llm.files import DEBUG_STATE, HEADER_BYTES, FileError, check_header, check_size, make_header, written
from gt.llm.model import GPT2, Config


@dataclass
class DebugState:
    """The logits, the loss and the gradients of a model for one batch.

    Args:
        tokens: int32, shape `(batch, length)`.
        targets: The token after each.
        logits: float32, shape `(batch, length, vocabulary)`.
        loss: The mean loss.
        gradients: By the kind of parameter, float32: those of one kind in all blocks are stacked.
    """

    tokens: np.ndarray
    targets: np.ndarray
    logits: np.ndarray
    loss: float
    gradients: dict[str, np.ndarray]


def kinds(config: Config) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each kind of parameter in files, in their order; those of all blocks are stacked."""
    c, layers = config.channels, config.layers
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (config.vocabulary, c), "wpe.weight": (config.context, c)}
    for module, outputs, inputs in (
        ("ln_1", c, 0),
        ("attn.c_attn", 3 * c, c),
        ("attn.c_proj", c, c),
        ("ln_2", c, 0),
        ("mlp.c_fc", 4 * c, c),
        ("mlp.c_proj", c, 4 * c),
    ):
        shapes[f"{module}.weight"] = (layers, outputs, inputs) if inputs else (layers, outputs)
        shapes[f"{module}.bias"] = (layers, outputs)
    return {**shapes, "ln_f.weight": (c,), "ln_f.bias": (c,)}


def gradients_of(model: GPT2) -> dict[str, np.ndarray]:
    """Returns the gradients of a model after a backward pass, as a debug state has them."""
    made = {}
    for kind, parameters in model.parameters_of_files():
        found = [p.grad.float().numpy() if p.grad is not None else np.zeros(p.shape, np.float32) for p in parameters]
        made[kind] = found[0] if kind.startswith(("w", "ln_f")) else np.stack(found)
    return made


def write_debug_state(path: str | os.PathLike[str], state: DebugState, config: Config) -> None:
    """Writes a debug state of a model of these sizes."""
    batch, length = state.tokens.shape
    padding = bytes(4 * (config.padded_vocabulary - config.vocabulary) * config.channels)
    with written(path) as file:
        file.write(make_header(DEBUG_STATE, 2, {2: batch, 3: length}))
        file.write(state.tokens.astype("<i4").tobytes())
        file.write(state.targets.astype("<i4").tobytes())
        file.write(state.logits.astype("<f4").tobytes())
        file.write(np.array([state.loss], "<f4").tobytes())
        for kind in kinds(config):
            file.write(np.ascontiguousarray(state.gradients[kind], "<f4").tobytes())
            if kind == "wte.weight":
                file.write(padding)


def read_debug_state(path: str | os.PathLike[str], config: Config) -> DebugState:
    """Returns the debug state of a model of these sizes.

    Raises:
        FileError: The file holds something else, or that of another model.
    """
    with open(path, "rb") as file:
        header = check_header(file.read(HEADER_BYTES), path, DEBUG_STATE, (2,))
        batch, length = int(header[2]), int(header[3])
        if batch < 1 or length < 1:
            raise FileError(f"{path} is damaged: its batch is {batch} × {length}")
        padded, count = config.padded_vocabulary, parameter_count(config, config.padded_vocabulary)
        total = HEADER_BYTES + 4 * (2 * batch * length + batch * length * config.vocabulary + 1 + count)
        holds = f"a batch of {batch} × {length} and the gradients of this model"
        check_size(path, os.fstat(file.fileno()).st_size, total, holds)

        def array(shape: tuple[int, ...], dtype: str = "<f4") -> np.ndarray:
            return np.frombuffer(file.read(4 * int(np.prod(shape))), dtype).reshape(shape)

        tokens, targets = array((batch, length), "<i4"), array((batch, length), "<i4")
        logits, loss = array((batch, length, config.vocabulary)), float(array((1,))[0])
        gradients = {}
        for kind, shape in kinds(config).items():
            gradients[kind] = array(shape)
            if kind == "wte.weight":
                file.seek(4 * (padded - config.vocabulary) * config.channels, os.SEEK_CUR)
    return DebugState(tokens, targets, logits, loss, gradients)
