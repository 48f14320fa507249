"""Model files of llm.c, and the names that Hugging Face gives the same parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

import gt
from gt import Tensor
from gt.llm.files import HEADER_BYTES, MODEL, FileError, check_header, check_size, make_header, written
from gt.llm.model import GPT2, Config

FLOAT32, BFLOAT16 = VERSIONS = 3, 5


def write_model(path: str | os.PathLike[str], model: GPT2, dtype: gt.dtype = gt.float32) -> None:
    """Writes a model as a file of llm.c. Parameters of another dtype are rounded.

    Args:
        path: The file. It appears once it is complete.
        model: The model.
        dtype: float32 or bfloat16.

    Raises:
        ValueError: Another dtype.
    """
    if dtype not in (gt.float32, gt.bfloat16):
        raise ValueError(f"a file of llm.c holds float32 or bfloat16, not {dtype}")
    c = model.config
    sizes = {2: c.context, 3: c.vocabulary, 4: c.layers, 5: c.heads, 6: c.channels, 7: c.padded_vocabulary}
    with written(path) as file:
        file.write(make_header(MODEL, FLOAT32 if dtype is gt.float32 else BFLOAT16, sizes))
        for kind, parameters in model.parameters_of_files():
            for parameter in parameters:
                file.write(to_bytes(parameter.detach(), dtype))
            if kind == "wte.weight":
                file.write(bytes((c.padded_vocabulary - c.vocabulary) * c.channels * dtype.itemsize))


def read_model(path: str | os.PathLike[str]) -> GPT2:
    """Returns the model of a file, in float32 or, if the file has that, bfloat16.

    Raises:
        FileError: The file holds something else, is cut off, or has sizes that do not fit.

    Example:
        >>> import tempfile
        >>> model = gt.llm.GPT2(gt.llm.Config(context=8, vocabulary=20, layers=1, heads=2, channels=16))
        >>> path = f"{tempfile.mkdtemp()}/model.bin"
        >>> gt.llm.write_model(path, model)
        >>> gt.llm.read_model(path).config == model.config
        True
    """
    with open(path, "rb") as file:
        return read_open_model(file, os.fstat(file.fileno()).st_size, path)


def read_open_model(file: BinaryIO, size: int, name: str | os.PathLike[str]) -> GPT2:
    """Returns the model of an open file of `size` bytes, which errors call `name`.

    Raises:
        FileError: As for `read_model`.
    """
    header = check_header(file.read(HEADER_BYTES), name, MODEL, VERSIONS)
    context, vocabulary, layers, heads, channels, padded = map(int, header[2:8])
    try:
        config = Config(context, vocabulary, layers, heads, channels)
    except ValueError as error:
        raise FileError(f"{name} has sizes that make no model: {error}") from None
    if padded < vocabulary:
        raise FileError(f"{name} has {padded} rows of embeddings for a vocabulary of {vocabulary}")
    dtype = gt.float32 if header[1] == FLOAT32 else gt.bfloat16
    count = parameter_count(config, padded)
    check_size(name, size, HEADER_BYTES + count * dtype.itemsize, f"{count:,} parameters")
    model = GPT2(config).to(dtype)
    with gt.no_grad():
        for kind, parameters in model.parameters_of_files():
            for parameter in parameters:
                parameter.copy_(from_bytes(file.read(parameter.numel() * dtype.itemsize), dtype, parameter.shape))
            if kind == "wte.weight":
                file.seek((padded - vocabulary) * channels * dtype.itemsize, os.SEEK_CUR)
    return model


def parameter_count(config: Config, rows: int) -> int:
    """Returns the number of parameters of a model whose token embedding has this number of rows."""
    c = config.channels
    return (rows + config.context) * c + config.layers * (12 * c * c + 13 * c) + 2 * c


def to_bytes(tensor: Tensor, dtype: gt.dtype) -> bytes:
    """Returns the row-major elements, rounded to float32 or bfloat16."""
    tensor = tensor.to(dtype)
    return tensor.view(gt.int16).numpy().tobytes() if dtype is gt.bfloat16 else tensor.numpy().tobytes()


def from_bytes(data: bytes, dtype: gt.dtype, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor of float32 or bfloat16 elements."""
    if dtype is gt.bfloat16:
        return gt.from_numpy(np.frombuffer(data, "<i2").reshape(shape)).view(gt.bfloat16)
    return gt.from_numpy(np.frombuffer(data, "<f4").reshape(shape))


def to_hugging_face(model: GPT2) -> dict[str, Tensor]:
    """Returns the parameters by Hugging Face's names; its linear layers have inputs before outputs."""
    made = {}
    for name, parameter in model.named_parameters():
        linear = parameter.ndim == 2 and name not in ("wte.weight", "wpe.weight")
        made[f"transformer.{name}"] = parameter.detach().T.contiguous() if linear else parameter.detach()
    return made


def from_hugging_face(parameters: dict[str, Tensor], heads: int) -> GPT2:
    """Returns the model of Hugging Face's GPT-2. `heads` is `n_head` of its configuration.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter has another shape than the others tell.
    """
    found = {name.removeprefix("transformer."): tensor for name, tensor in parameters.items()}
    layers = 1 + max((int(name.split(".")[1]) for name in found if name.startswith("h.")), default=-1)
    missing = [name for name in ("wte.weight", "wpe.weight", "ln_f.weight") if name not in found]
    if missing or not layers:
        raise KeyError(f"these are no parameters of a GPT-2: {', '.join(missing) or 'blocks (h.0, h.1 …)'} are missing")
    (vocabulary, channels), context = found["wte.weight"].shape, found["wpe.weight"].shape[0]
    model = GPT2(Config(context, vocabulary, layers, heads, channels))
    with gt.no_grad():
        for name, parameter in model.named_parameters():
            if name not in found:
                raise KeyError(f"parameter {name} is missing")
            linear = parameter.ndim == 2 and name not in ("wte.weight", "wpe.weight")
            given = found[name].T if linear else found[name]
            if given.shape != parameter.shape:
                raise ValueError(f"{name} has shape {tuple(given.shape)}, but {tuple(parameter.shape)} fits the others")
            parameter.copy_(given)
    return model


def load(path: str | os.PathLike[str], heads: int | None = None) -> GPT2:
    """Returns the model of a file of llm.c or, if it is named `*.safetensors`, of Hugging Face.

    Args:
        path: The file.
        heads: The attention heads of a safetensors file, which has no sizes; by default as many as make 64 features.
    """
    if Path(path).suffix != ".safetensors":
        return read_model(path)
    parameters = gt.load(path)
    return from_hugging_face(parameters, heads or max(1, parameters["transformer.wpe.weight"].shape[1] // 64))


def save(path: str | os.PathLike[str], model: GPT2) -> None:
    """Writes a file of llm.c or, if it is named `*.safetensors`, one with Hugging Face's names."""
    if Path(path).suffix == ".safetensors":
        gt.save(to_hugging_face(model), path)
    else:
        write_model(path, model, next(model.parameters()).dtype)
