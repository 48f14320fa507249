"""Summaries for TensorBoard: the messages of scalars, histograms, images, texts and hyperparameters."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt._gt import Tensor
from gt.utils.tensorboard import events
from gt.utils.tensorboard.events import content, double, doubles, integer, single

# TensorFlow's number of the dtype of strings.
DT_STRING = 7
# The types of hyperparameters, and the state of a run that ended well.
HPARAM_TYPES = {str: 1, bool: 2, float: 3}
STATUS_SUCCESS = 1


def array(values: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor, an array, a list or a number."""
    if isinstance(values, Tensor):
        values = values.detach()
        values = values.float() if values.dtype.name == "bfloat16" else values
        return np.asarray(values.numpy())
    return np.asarray(values)


def _metadata(plugin: str, data: bytes = b"") -> bytes:
    return content(9, content(1, content(1, plugin) + (content(2, data) if data else b"")))


def _value(tag: str, *fields: bytes) -> bytes:
    return content(1, content(1, tag) + b"".join(fields))


def scalar(tag: str, value: Any) -> bytes:
    """The summary of a number."""
    numbers = array(value)
    if numbers.size != 1:
        raise AssertionError(f"scalar should be 0D, but {tag!r} has the shape {list(numbers.shape)}")
    return _value(tag, single(2, float(numbers.reshape(()))))


def _bins() -> np.ndarray[Any, Any]:
    """TensorFlow's limits of buckets: each 1.1 times the last, on both sides of 0."""
    limits = 1e-12 * 1.1 ** np.arange(775)
    limits = limits[limits < 1e20]
    return np.concatenate([-limits[::-1], [0.0], limits])


def histogram(tag: str, values: Any, bins: str | Sequence[float] = "tensorflow", max_bins: int | None = None) -> bytes:
    """The summary of the distribution of elements."""
    values = array(values).astype(np.float64).reshape(-1)
    if values.size == 0:
        raise ValueError("The input has no element.")
    limits: Any = _bins() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, limits = np.histogram(values, bins=limits)
    if max_bins is not None and len(counts) > max_bins:
        step = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, range(0, len(counts), step))
        limits = np.append(limits[:-1][::step], limits[-1])
    # The empty buckets on both sides are left out, but for one on the left, whose limit is where the first one begins.
    filled = np.flatnonzero(counts)
    if not len(filled):
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = filled[0], filled[-1]
    kept = [0, *counts[first : last + 1]]
    ends = limits[first : last + 2]
    message = double(1, values.min()) + double(2, values.max()) + double(3, len(values)) + double(4, values.sum())
    message += double(5, float(values @ values)) + doubles(6, ends) + doubles(7, kept)
    return _value(tag, content(5, message))


def _png(pixels: np.ndarray[Any, Any]) -> bytes:
    """An image of bytes, height by width by channels, as PNG."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def grid(images: np.ndarray[Any, Any], columns: int = 8) -> np.ndarray[Any, Any]:
    """Images, number by height by width by channels, side by side in one."""
    number, height, width, channels = images.shape
    columns = min(number, columns)
    rows = -(-number // columns)
    made = np.zeros((rows * height, columns * width, channels), images.dtype)
    for i, image in enumerate(images):
        row, column = divmod(i, columns)
        made[row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return made


def image(tag: str, values: Any, dataformats: str = "CHW") -> bytes:
    """The summary of an image, or of several in a grid.

    Args:
        tag: Its name.
        values: Bytes, or floats from 0 to 1.
        dataformats: A letter for each axis: number, channel, height, width.
    """
    pixels = array(values)
    dataformats = dataformats.upper()
    if len(dataformats) != pixels.ndim or not set("HW") <= set(dataformats) <= set("NCHW"):
        raise ValueError(f"an image of shape {list(pixels.shape)} cannot be {dataformats!r}")
    pixels = np.transpose(
        pixels.reshape(*pixels.shape, *(1,) * ("N" not in dataformats), *(1,) * ("C" not in dataformats)),
        [
            (dataformats + "N" * ("N" not in dataformats) + "C" * ("C" not in dataformats)).index(axis)
            for axis in "NHWC"
        ],
    )
    if pixels.dtype != np.uint8:
        pixels = (pixels.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)
    pixels = grid(pixels)
    height, width, channels = pixels.shape
    message = integer(1, height) + integer(2, width) + integer(3, channels) + content(4, _png(pixels))
    return _value(tag, content(4, message))


def text(tag: str, value: str) -> bytes:
    """The summary of a text, which may be Markdown."""
    shape = content(2, content(2, integer(1, 1)))
    tensor = integer(1, DT_STRING) + shape + content(8, value)
    return _value(f"{tag}/text_summary", _metadata("text", integer(1, 0)), content(8, tensor))


def hparams(settings: Mapping[str, Any], metrics: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    """The summaries of hyperparameters: the experiment, the beginning and the end of a run."""
    infos, values = b"", b""
    for name, setting in settings.items():
        if setting is None:
            continue
        setting = array(setting).item() if isinstance(setting, (Tensor, np.generic)) else setting
        kind = bool if isinstance(setting, bool) else float if isinstance(setting, (int, float)) else str
        known = {bool: lambda v: integer(4, v), float: lambda v: double(2, v), str: lambda v: content(3, str(v))}
        values += content(1, content(1, name) + content(2, known[kind](setting)))
        infos += content(5, content(1, name) + integer(4, HPARAM_TYPES[kind]))
    for name in metrics:
        infos += content(6, content(1, content(2, name)))
    parts = (
        ("experiment", content(2, infos)),
        ("session_start_info", content(3, values + double(5, time.time()))),
        ("session_end_info", content(4, integer(1, STATUS_SUCCESS) + double(2, time.time()))),
    )
    made = [_value(f"_hparams_/{name}", _metadata("hparams", integer(1, 0) + part)) for name, part in parts]
    return made[0], made[1], made[2]


__all__ = ["events", "grid", "histogram", "hparams", "image", "scalar", "text"]
