"""`SummaryWriter`: event files that TensorBoard reads, decoded here field by field."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gt
from gt.utils.tensorboard import SummaryWriter
from gt.utils.tensorboard.events import masked_crc


def fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a protocol buffer: integers, floats and bytes by number."""

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    at, found = 0, {}  # type: ignore[var-annotated]
    while at < len(data):
        key = varint()
        value: Any
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif key & 7 == 5:
            (value,) = struct.unpack_from("<f", data, at)
            at += 4
        else:
            size = varint()
            value = data[at : at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def events(folder: Path) -> Iterator[dict[int, list[Any]]]:
    """The events of the files of a folder, whose check sums are tested."""
    for file in sorted(folder.glob("events.out.tfevents.*")):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack_from("<Q", content)
            assert struct.unpack_from("<I", content, 8)[0] == masked_crc(content[:8])
            message = content[12 : 12 + length]
            assert struct.unpack_from("<I", content, 12 + length)[0] == masked_crc(message)
            yield fields(message)
            content = content[16 + length :]


def values(folder: Path) -> list[tuple[int, str, dict[int, list[Any]]]]:
    """The step, the tag and the fields of each value."""
    found = []
    for event in events(folder):
        for summary in event.get(5, []):
            value = fields(fields(summary)[1][0])
            found.append((event.get(2, [0])[0], value[1][0].decode(), value))
    return found


def test_check_sums() -> None:
    # CRC-32C of "123456789" is 0xe3069283 (RFC 3720, appendix B.4 names the polynomial).
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", gt.tensor(0.5), 3, walltime=7.5)
        writer.add_scalar("loss", np.float32(0.25), 2**40)
        writer.add_scalar("huge", 1e300)
        writer.add_scalars("both/of", {"a": 1.0, "b": 2}, 1)
    found = list(events(tmp_path))
    assert found[0][3] == [b"brain.Event:2"]
    assert found[1][1] == [7.5]
    assert [(step, tag, value[2][0]) for step, tag, value in values(tmp_path)] == [
        (3, "loss", 0.5), (2**40, "loss", 0.25), (0, "huge", float("inf")),
    ]  # fmt: skip
    assert values(tmp_path / "both_of_b")[0][2][2] == [2]
    with pytest.raises(AssertionError, match="0D"):
        SummaryWriter(tmp_path).add_scalar("x", gt.ones(2))


def test_histograms(tmp_path: Path) -> None:
    data = gt.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("w", data.requires_grad_(), 1)
        writer.add_histogram("w", [1.0, 2.0, 3.0], 2, bins="auto")
    (_, _, first), (_, _, second) = values(tmp_path)
    message = fields(first[5][0])
    assert [message[i][0] for i in range(1, 6)] == [-1, 2, 5, 2, 5.5]
    limits, counts = (np.frombuffer(message[i][0], "<f8") for i in (6, 7))
    assert len(limits) == len(counts)
    assert counts.sum() == 5
    assert (np.diff(limits) > 0).all()
    for number in (-1.0, 0.5, 2.0):
        bucket = np.searchsorted(limits, number)
        assert counts[bucket] == (2 if number == 0.5 else 1)
    assert np.frombuffer(fields(second[5][0])[7][0], "<f8").sum() == 3


def png_pixels(data: bytes) -> np.ndarray:
    """The pixels of an image as `_png` writes it: no filters, one chunk."""
    width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
    assert (data[:8], depth) == (b"\x89PNG\r\n\x1a\n", 8)
    (size,) = struct.unpack_from(">I", data, 33)
    rows = zlib.decompress(data[41 : 41 + size])
    channels = {0: 1, 2: 3}[kind]
    return np.frombuffer(rows, np.uint8).reshape(height, 1 + width * channels)[:, 1:].reshape(height, width, channels)


def test_images(tmp_path: Path) -> None:
    image = gt.rand(3, 4, 5)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("floats", image)
        writer.add_image("grey", gt.full((2, 3), 7, dtype=gt.uint8), dataformats="HW")
        writer.add_images("several", gt.zeros(3, 1, 2, 2) + gt.tensor([0.0, 0.5, 1.0]).reshape(3, 1, 1, 1))
    pixels = {tag: png_pixels(fields(value[4][0])[4][0]) for _, tag, value in values(tmp_path)}
    expected = (image.permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    np.testing.assert_array_equal(pixels["floats"], expected)
    assert pixels["grey"].tolist() == [[[7]] * 3] * 2
    assert pixels["several"][0, :, 0].tolist() == [0, 0, 127, 127, 255, 255]
    with pytest.raises(ValueError, match="cannot be 'HW'"):
        SummaryWriter(tmp_path).add_image("x", image, dataformats="HW")


def test_texts_and_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, purge_step=4) as writer:
        writer.add_text("note", "*hello*", 5)
        writer.add_hparams({"lr": 0.1, "name": "a", "deep": True}, {"accuracy": 0.9}, run_name="run")
        with pytest.warns(UserWarning, match="no graph is written"):
            writer.add_graph(None)
    assert any(event.get(7) == [b"\x08\x01"] and event[2] == [4] for event in events(tmp_path))
    _, tag, text = values(tmp_path)[0]
    assert tag == "note/text_summary"
    assert fields(text[8][0])[8] == [b"*hello*"]
    run = {tag: value for _, tag, value in values(tmp_path / "run")}
    assert run["accuracy"][2][0] == pytest.approx(0.9)
    start = fields(fields(fields(run["_hparams_/session_start_info"][9][0])[1][0])[2][0])
    settings = [fields(entry) for entry in fields(start[3][0])[1]]
    assert [(s[1][0], next(iter(fields(s[2][0]).values()))[0]) for s in settings] == [
        (b"lr", 0.1), (b"name", b"a"), (b"deep", 1),
    ]  # fmt: skip


def test_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="-lr1")
    writer.add_scalar("x", 1)
    writer.flush()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-lr1")
    assert writer.get_logdir() == f"runs/{folder.name}"
    assert len(values(folder)) == 1
    writer.close()
