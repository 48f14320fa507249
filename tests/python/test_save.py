"""Files in the safetensors format: round trips, and errors for other files."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from support import DTYPES, assert_close, draw, to_gt

import gt
from gt import nn


def file_of(header: object, data: bytes = b"") -> io.BytesIO:
    text = json.dumps(header).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives(dtype: str, tmp_path: Path) -> None:
    t = to_gt(draw(np.random.default_rng(3), (3, 4), dtype), dtype)
    tensors = {"a": t, "a view": t.T[1:], "scalar": t[0, 0], "none": t[:0]}
    gt.save(tensors, tmp_path / "tensors.safetensors")
    loaded = gt.load(str(tmp_path / "tensors.safetensors"))
    assert list(loaded) == list(tensors)
    for name, value in tensors.items():
        assert loaded[name].dtype == t.dtype
        assert loaded[name].shape == value.shape
        assert loaded[name].tolist() == value.tolist()


def test_the_bytes_are_those_of_the_format() -> None:
    file = io.BytesIO()
    gt.save(
        {"x": gt.tensor([1.0, -2.0], dtype=gt.bfloat16), "é": gt.tensor([[258]], dtype=gt.int16)},
        file,
        format="safetensors",
    )
    content = file.getvalue()
    size = int.from_bytes(content[:8], "little")
    assert size % 8 == 0
    assert json.loads(content[8 : 8 + size]) == {
        "x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "é": {"dtype": "I16", "shape": [1, 1], "data_offsets": [4, 6]},
    }
    assert content[8 + size :] == bytes.fromhex("803f00c00201")


def test_a_model_goes_on_from_a_file() -> None:
    model, other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(gt.rand(8, 3))
    file = io.BytesIO()
    gt.save(model.state_dict(), file, format="safetensors")
    file.seek(0)
    other.load_state_dict(gt.load(file))
    x = gt.rand(2, 3)
    assert_close(other.eval()(x), model.eval()(x).detach().numpy())


def test_metadata_are_left_out() -> None:
    header = {"__metadata__": {"by": "hand"}, "x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}
    loaded = gt.load(file_of(header, b"\x05\x06"))
    assert {name: t.tolist() for name, t in loaded.items()} == {"x": [5, 6]}


def test_invalid_state_dicts_are_not_written() -> None:
    for wrong, message in [
        (gt.ones(1), "expected a dict"),
        ({"step": 3}, "'step' holds a int"),
        ({1: gt.ones(1)}, "by name"),
        ({"__metadata__": gt.ones(1)}, "rename"),
    ]:
        with pytest.raises(TypeError, match=message):
            gt.save(wrong, io.BytesIO(), format="safetensors")


def test_the_name_of_a_file_or_an_argument_says_which_format(tmp_path: Path) -> None:
    gt.save({"x": gt.ones(1)}, tmp_path / "x.safetensors")
    gt.save({"x": gt.ones(1)}, tmp_path / "x.pt")
    assert (tmp_path / "x.safetensors").read_bytes()[8:9] == b"{"
    assert (tmp_path / "x.pt").read_bytes()[:2] == b"PK"
    with pytest.raises(ValueError, match="format is"):
        gt.save({}, tmp_path / "x", format="pickle")


def x(**changes: object) -> dict[str, object]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (io.BytesIO(b""), "truncated"),
        (io.BytesIO(b"\x10" + bytes(7) + b"{}"), "truncated"),
        (io.BytesIO(b"\xff" * 64), "not a safetensors file"),
        (io.BytesIO(b"\x04" + bytes(7) + b"abcd"), "not JSON"),
        (io.BytesIO(pickle.dumps({"x": 1})), "not a safetensors file"),
        (file_of([1]), "not an object"),
        (file_of(x(), bytes(7)), "'x' ends at byte 8 of the elements, but there are 7"),
        (file_of(x(dtype="F8_E4M3"), bytes(8)), "F8_E4M3"),
        (file_of(x(shape=[3]), bytes(8)), "takes 12 bytes, but its place has 8"),
        (file_of(x(shape=[-2]), bytes(8)), "entry of 'x'"),
        (file_of(x(data_offsets=[0]), bytes(8)), "entry of 'x'"),
        (file_of({"x": 3}), "entry of 'x'"),
    ],
)
def test_foreign_and_broken_files(file: io.BytesIO, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gt.load(file)
