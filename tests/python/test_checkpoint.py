"""Checkpoints in PyTorch's format: read as PyTorch wrote them, written as PyTorch reads them, and running no code."""

from __future__ import annotations

import collections
import contextlib
import io
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DTYPES, draw, to_gt

import gt
from gt import nn

FILES = Path(__file__).parent / "files"


def again(obj: Any) -> Any:
    file = io.BytesIO()
    gt.save(obj, file)
    file.seek(0)
    return gt.load(file)


def test_what_pytorch_wrote() -> None:
    read = gt.load(FILES / "pytorch-2.15.pt")
    assert isinstance(read["model"], collections.OrderedDict)
    assert read["model"]["bias"].tolist() == [0.5, -1.5]
    assert read["optimizer"]["param_groups"][0]["momentum"] == 0.9
    assert read["optimizer"]["state"][1]["momentum_buffer"].tolist() == [1.0, 1.0]
    assert read["epoch"] == 3
    assert read["args"] == {
        "lr": 1e-3,
        "name": "é",
        "nested": [1, (2, None)],
        "big": 2**40,
        "huge": -(2**80),
        "bytes": b"\x00\xff",
        "set": {1, 2},
        "on": True,
    }
    assert read["bfloat16"].dtype == gt.bfloat16
    assert read["bfloat16"].tolist() == [1.5, -2.0]
    assert read["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert read["slice"].tolist() == [[1, 2], [4, 5]]
    assert read["expanded"].tolist() == [1, 1, 1]
    assert isinstance(read["parameter"], nn.Parameter)
    assert read["scalar"].item() == 3
    assert read["empty"].shape == (0, 3)
    assert read["dtype"] is gt.float16
    assert read["size"] == gt.Size([2, 3])
    assert read["device"] == gt.device("cpu")
    assert read["bool"].tolist() == [True, False]
    # Tensors that were one in memory are one again.
    read["tied"][0, 0] = 9
    assert read["tied too"][0, 0] == 9


def test_a_model_and_its_optimizer_go_on_from_pytorch_s_file() -> None:
    read = gt.load(FILES / "pytorch-2.15.pt", map_location="cpu", weights_only=True)
    model = nn.Linear(3, 2)
    model.load_state_dict(read["model"])
    optimizer = gt.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer.load_state_dict(read["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.5
    model(gt.ones(1, 3)).sum().backward()
    optimizer.step()
    # As PyTorch goes on: the momentum is 0.9 * 1 + 1, the step half of it.
    np.testing.assert_allclose(model.bias.tolist(), [0.5 - 0.95, -1.5 - 0.95], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives(dtype: str, tmp_path: Path) -> None:
    t = to_gt(draw(np.random.default_rng(3), (3, 4), dtype), dtype)
    tensors = {"a": t, "a view": t.T[1:], "scalar": t[0, 0], "none": t[:0]}
    gt.save(tensors, str(tmp_path / "model.pt"))
    for name, value in gt.load(tmp_path / "model.pt").items():
        assert value.dtype == t.dtype
        assert value.shape == tensors[name].shape
        assert value.tolist() == tensors[name].tolist()


def test_everything_that_is_data_survives() -> None:
    shared = [1, 2]
    obj = {
        "numbers": [0, -1, 2**31, -(2**63), 2**200, 1.5, float("inf"), True, False, None],
        "texts": ("", "é\n", b"", b"\x00\xff"),
        3: {"nested": {"deep": [{}, [], (), set(), {1}]}},
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "gt": [gt.int8, gt.device("cuda", 1), gt.Size([2])],
        "shared": [shared, shared],
    }
    read = again(obj)
    assert read == obj
    assert isinstance(read["ordered"], collections.OrderedDict)
    assert read["shared"][0] is read["shared"][1]
    assert again(gt.ones(2)).tolist() == [1, 1]
    leaf = again([gt.ones(2, requires_grad=True), nn.Parameter(gt.ones(1), requires_grad=False)])
    assert leaf[0].requires_grad
    assert isinstance(leaf[1], nn.Parameter)
    assert not leaf[1].requires_grad


def test_tied_weights_are_written_once_and_stay_tied() -> None:
    embedding, head = nn.Embedding(1000, 8), nn.Linear(8, 1000, bias=False)
    head.weight = embedding.weight
    state = nn.ModuleDict({"embedding": embedding, "head": head}).state_dict()
    file = io.BytesIO()
    gt.save(state, file)
    assert len(file.getvalue()) < 1.2 * 4 * 8000
    file.seek(0)
    read = gt.load(file)
    read["head.weight"][0, 0] = 7
    assert read["embedding.weight"][0, 0] == 7


def test_a_computed_tensor_is_written_as_its_elements() -> None:
    x = gt.ones(2, requires_grad=True)
    assert again(x * 3).tolist() == [3, 3]
    assert not again(x * 3).requires_grad


def test_the_records_are_those_of_the_format(tmp_path: Path) -> None:
    gt.save({"x": gt.tensor([1.0, 2.0])}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        folder = archive.namelist()[0].split("/")[0]
        records = {name.removeprefix(folder + "/"): archive.read(name) for name in archive.namelist()}
    assert records["version"] == b"3\n"
    assert records["byteorder"] == b"little"
    assert records["data/0"] == np.array([1, 2], "<f4").tobytes()
    globals_ = [arg for op, arg, _ in pickletools.genops(records["data.pkl"]) if op.name == "GLOBAL"]
    assert globals_ == ["torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"model": nn.Linear(1, 1)}, r"the object\['model'\] is a gt.nn.*Linear.* save its state_dict"),
        ({"a": [1, object()]}, r"the object\['a'\]\[1\] is a builtins.object"),
        ({"loss": np.float32(1)}, r"the object\['loss'\] is a numpy.float32"),
        (print, "the object is a builtins.builtin_function"),
    ],
)
def test_what_is_not_data_is_not_written(obj: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        gt.save(obj, io.BytesIO())


# Foreign and broken files


def archive(pickled: bytes, **records: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, data in {"data.pkl": pickled, "version": b"3\n", **records}.items():
            out.writestr(f"archive/{name}", data)
    file.seek(0)
    return file


class Evil:
    """What a file would like to run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('a file ran code')",))


@pytest.mark.parametrize(
    ("pickled", "name"),
    [
        (pickle.dumps(Evil(), 2), "__builtin__.exec"),
        (pickle.dumps(Evil(), 4), "builtins.exec"),
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", "os.system"),
        (b"\x80\x02cgt._checkpoint\n_Reader\n.", "gt._checkpoint._Reader"),
        (b"\x80\x02ctorch\nsave\n.", "torch.save"),
        (b"\x80\x02cargparse\nNamespace\n)R.", "argparse.Namespace"),
    ],
)
def test_no_code_of_a_file_runs(pickled: bytes, name: str) -> None:
    for weights_only in (None, True, False):
        with pytest.raises(pickle.UnpicklingError, match=f"GLOBAL {name} was not an allowed global"):
            gt.load(archive(pickled), weights_only=weights_only)


def test_a_file_cannot_change_what_others_use() -> None:
    # BUILD with slot state sets attributes on what a name gave.
    pickled = b"\x80\x02ctorch\nSize\n}X\x05\x00\x00\x00numelK\x01s}\x86b."
    before = gt.Size.numel
    with contextlib.suppress(pickle.UnpicklingError):
        gt.load(archive(pickled))
    assert gt.Size.numel is before


def tensor_pickle(storage: str = "FloatStorage", place: str = "cpu", size: int = 2, offset: int = 0) -> bytes:
    def text(word: str) -> bytes:
        return b"X" + len(word).to_bytes(4, "little") + word.encode()

    number = lambda n: b"J" + n.to_bytes(4, "little", signed=True)  # noqa: E731
    pid = b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text("0") + text(place) + number(2) + b"tQ"
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + pid
        + number(offset)
        + number(size)
        + b"\x85"
        + number(1)
        + b"\x85\x89ccollections\nOrderedDict\n)RtR."
    )


def test_a_tensor_lies_within_its_storage() -> None:
    data = {"data/0": bytes(8)}
    assert gt.load(archive(tensor_pickle(), **data)).tolist() == [0, 0]
    for size, offset in [(3, 0), (2, 1), (1, 2)]:
        with pytest.raises(ValueError, match="ends behind the 8 bytes"):
            gt.load(archive(tensor_pickle(size=size, offset=offset), **data))
    for size, offset in [(-1, 0), (1, -1)]:
        with pytest.raises(pickle.UnpicklingError, match="not a shape and strides"):
            gt.load(archive(tensor_pickle(size=size, offset=offset), **data))
    with pytest.raises(ValueError, match="record 'data/0'"):
        gt.load(archive(tensor_pickle()))
    big = archive(tensor_pickle(), **{"data/0": np.array([1, 2], ">f4").tobytes(), "byteorder": b"big"})
    assert gt.load(big).tolist() == [1, 2]


def test_tensors_of_other_devices_come_to_the_cpu_if_asked() -> None:
    file = archive(tensor_pickle(place="cuda:0"), **{"data/0": bytes(8)})
    with pytest.raises(RuntimeError, match=r"map_location=torch\.device"):
        gt.load(file)
    for place in ("cpu", gt.device("cpu"), {"cuda:0": "cpu"}, lambda storage, _: storage):
        file.seek(0)
        assert gt.load(file, map_location=place).tolist() == [0, 0]
    file.seek(0)
    with pytest.raises(RuntimeError, match="No CUDA GPUs"):
        gt.load(file, map_location="cuda")


def test_files_that_are_none() -> None:
    whole = (FILES / "pytorch-2.15.pt").read_bytes()
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as out:
        out.writestr("readme.txt", "")
    damaged = bytearray(whole)
    damaged[whole.index(b"\x80\x02}q") + 40] ^= 0xFF
    for content, message in [
        (whole[: len(whole) // 2], "truncated"),
        (whole[:-1], "truncated"),
        (bytes(damaged), "damaged"),
        (other.getvalue(), "not a checkpoint of PyTorch's: a zip archive of readme.txt"),
        (archive(b"", **{"constants.pkl": b""}).getvalue(), "TorchScript"),
        (archive(b"").getvalue(), "damaged"),
        ((FILES / "pytorch-legacy.pt").read_bytes(), r"before version 1\.6: .*torch.save it again"),
        (pickle.dumps({"x": 1}), "not a safetensors file"),
    ]:
        with pytest.raises((ValueError, pickle.UnpicklingError), match=message):
            gt.load(io.BytesIO(content))
    with pytest.raises(FileNotFoundError):
        gt.load("no such file.pt")
