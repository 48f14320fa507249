"""Checkpoints of whole objects: modules, optimizers, arrays, views that share a storage, random states; both ways."""

from __future__ import annotations

import argparse
import datetime
import io
import pickle
import random
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import environment

import gt
from gt import _pytorch_names, nn, serialization


def stored(obj: Any) -> io.BytesIO:
    file = io.BytesIO()
    gt.save(obj, file)
    file.seek(0)
    return file


def again(obj: Any, **options: Any) -> Any:
    return gt.load(stored(obj), **options)


def names_of(obj: Any) -> set[str]:
    """The names of classes and functions in the pickle of an object."""
    with zipfile.ZipFile(stored(obj)) as archive:
        content = archive.read("archive/data.pkl")
    import pickletools

    return {str(arg).replace(" ", ".") for op, arg, _ in pickletools.genops(content) if op.name == "GLOBAL"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.act = nn.functional.relu
        self.register_buffer("scale", gt.ones(4), persistent=False)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        return self.tied(self.act(self.norm(self.first(x)))) * self.scale


def test_a_whole_module_with_its_optimizer_goes_on() -> None:
    gt.manual_seed(1)
    net = Net()
    optimizer = gt.optim.Adam(net.parameters(), lr=0.1)
    x = gt.rand(8, 4)

    def step(net: Any, optimizer: Any) -> list[float]:
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
        return net.first.weight.tolist()

    step(net, optimizer)
    loaded = again({"net": net, "optimizer": optimizer}, weights_only=False)
    other = loaded["net"]
    assert type(other) is Net
    assert other.tied.weight is other.first.weight
    assert isinstance(other.first.weight, nn.Parameter)
    assert loaded["optimizer"].param_groups[0]["params"][0] is other.first.weight
    for _ in range(2):
        np.testing.assert_allclose(step(other, loaded["optimizer"]), step(net, optimizer), rtol=1e-6)
    handle = other.first.register_forward_hook(lambda *_, **__: None, with_kwargs=True)
    other(x)
    handle.remove()
    with pytest.raises(pickle.UnpicklingError, match=r"test_serialization\.Net was not an allowed global"):
        again(net)


def test_the_pickle_names_pytorch_s_classes() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LSTM(2, 3))
    found = names_of({"model": model, "sgd": gt.optim.SGD(model.parameters()), "f": nn.functional.relu})
    assert {
        "torch.nn.modules.container.Sequential",
        "torch.nn.modules.conv.Conv2d",
        "torch.nn.modules.rnn.LSTM",
        "torch.optim.sgd.SGD",
        "torch.nn.functional.relu",
        "torch._utils._rebuild_parameter",
    } <= found
    assert not any(name.startswith("gt") for name in found)
    for name in found:
        module, _, last = name.rpartition(".")
        if module.startswith("torch.nn") or module.startswith("torch.optim"):
            assert _pytorch_names.object_of(module, last) is not None
    state = pickle_state(nn.LSTM(2, 3, bidirectional=True))
    assert state["_all_weights"][1] == [
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
    ]  # fmt: skip
    assert isinstance(state["_forward_hooks_with_kwargs"], OrderedDict)
    with pytest.raises(AttributeError, match="GT does not have it"):
        _pytorch_names.object_of("torch.export", "export")


def pickle_state(module: nn.Module) -> dict[str, Any]:
    """The state of a module in its pickle."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if module.startswith("torch"):
                return Anything
            return super().find_class(module, name)

        def persistent_load(self, pid: Any) -> Any:
            return pid

    class Anything:
        def __new__(cls, *_: Any) -> Any:
            return object.__new__(cls)

        def __setstate__(self, state: Any) -> None:
            self.state = state

    with zipfile.ZipFile(stored(module)) as archive:
        return Reader(io.BytesIO(archive.read("archive/data.pkl"))).load().state


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.float32(2.5),
        np.int64(7),
        argparse.Namespace(lr=0.1, name="a"),
        defaultdict(list, a=[1]),
        Path("x") / "y",
        datetime.date(2024, 2, 29),
        slice(1, 2),
        frozenset({1, 2}),
        gt.channels_last,
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_other_classes_need_trust(value: Any) -> None:
    loaded = again([value], weights_only=False)[0]
    assert type(loaded) is type(value)
    assert np.array_equal(loaded, value) if isinstance(value, np.ndarray) else loaded == value
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False if you trust the file"):
        again([value])


def test_plain_data_needs_none() -> None:
    value = {
        "n": [1, -(2**80), 2.5, True, None, 1 + 2j, "é", b"ab", bytearray(b"c")],
        "o": OrderedDict(a=1),
        "c": Counter("aab"),
        "s": {1, 2},
        "size": gt.Size([1, 2]),
        "device": gt.device("cpu"),
        "dtype": gt.bfloat16,
        "layout": gt.sparse_csr,
        5: (1, (2,)),
    }
    loaded = again(value)
    assert loaded == value
    assert [type(part) for part in loaded.values()] == [type(part) for part in value.values()]
    assert loaded["dtype"] is gt.bfloat16
    same = [1]
    twice = again([same, same])
    assert twice[0] is twice[1]


def test_classes_of_this_package_that_a_program_allows() -> None:
    linear = nn.Linear(2, 1)
    with serialization.safe_globals([nn.Linear]):
        assert gt.equal(again(linear).weight, linear.weight)


def test_tensors_that_share_a_storage_share_it_again() -> None:
    base = gt.arange(6.0).reshape(2, 3)
    loaded = again(
        {"row": base[1], "base": base, "column": base[:, 1], "alias": base.detach(), "copy": base.clone(),
         "turned": base.T, "p": nn.Parameter(base[0])}
    )  # fmt: skip
    loaded["base"][:, 1] = 9.0
    assert loaded["row"].tolist() == [3, 9, 5]
    assert loaded["column"].tolist() == [9, 9]
    assert loaded["alias"].tolist() == [[0, 9, 2], [3, 9, 5]]
    assert loaded["copy"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded["turned"].tolist() == [[0, 3], [9, 9], [2, 5]]
    assert loaded["p"].tolist() == [0, 9, 2]
    assert type(loaded["p"]) is nn.Parameter
    with gt.no_grad():
        loaded["p"][0] = 7.0
    assert loaded["base"][0].tolist() == [7, 9, 2]


def test_a_view_that_nobody_shares_is_saved_alone() -> None:
    big = gt.zeros(100_000)
    assert len(stored({"part": big[:10]}).getvalue()) < 5000
    assert again({"part": big[5:10].reshape(5, 1).T})["part"].shape == (1, 5)


def test_tensors_in_other_orders_of_memory() -> None:
    image = gt.arange(12.0).reshape(1, 3, 2, 2).to(memory_format=gt.channels_last)
    loaded = again([image, image[:, 1], image.contiguous()])
    assert loaded[0].tolist() == image.tolist()
    assert loaded[1].tolist() == image[:, 1].tolist()


def test_parameters_and_tensors_with_attributes() -> None:
    class Note(gt.Tensor):
        pass

    p = nn.Parameter(gt.ones(2), requires_grad=False)
    p.role = "bias"
    loaded = again([p, nn.Parameter(gt.zeros(1))])
    assert (type(loaded[0]), loaded[0].requires_grad, loaded[0].role) == (nn.Parameter, False, "bias")
    assert loaded[1].requires_grad
    t = gt.ones(2, requires_grad=True) * 3
    assert again(t).requires_grad


def test_random_states() -> None:
    gt.manual_seed(11)
    gt.rand(3)
    state = {"gt": gt.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}
    loaded = again(state, weights_only=False)
    expected = (gt.rand(4).tolist(), np.random.rand(), random.random())
    gt.set_rng_state(loaded["gt"])
    np.random.set_state(loaded["numpy"])
    random.setstate(loaded["python"])
    assert (gt.rand(4).tolist(), np.random.rand(), random.random()) == expected


def test_a_random_state_is_one_of_pytorch_s() -> None:
    """The state is that of a Mersenne Twister with the same seed (Matsumoto and Nishimura 1998)."""
    gt.manual_seed(1234)
    state = gt.get_rng_state()
    assert (state.dtype, state.shape) == (gt.uint8, (5056,))
    words = state.numpy().view(np.uint64)
    assert words[0] == 1234
    assert words[3:627].tolist() == np.random.RandomState(1234).get_state()[1].tolist()  # type: ignore[index]
    # A state from the middle of PyTorch's sequence continues somewhere, but always in the same place.
    changed = state.clone()
    changed[100] = 77
    drawn = []
    for _ in range(2):
        gt.set_rng_state(changed)
        drawn.append(gt.rand(3).tolist())
    gt.set_rng_state(state)
    assert drawn[0] == drawn[1] != gt.rand(3).tolist()
    assert gt.initial_seed() == 1234
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        gt.set_rng_state(state[:100])


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    gt.save(gt.ones(1), path)
    path.chmod(0o640)
    before = path.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        gt.save({"w": gt.ones(1000), "f": lambda: None}, path)
    with pytest.raises(TypeError, match="safetensors"):
        gt.save({"step": 3}, tmp_path / "new.safetensors")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    (tmp_path / "link.pt").symlink_to(path)
    gt.save(gt.zeros(1), tmp_path / "link.pt")
    assert (tmp_path / "link.pt").is_symlink()
    assert gt.load(path).item() == 0
    assert path.stat().st_mode & 0o777 == 0o640


PROGRAM = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)

if sys.argv[1] == "save":
    net = Net()
    torch.save({"net": net, "x": torch.ones(1, 2), "y": net(torch.ones(1, 2)).detach()}, "net.pt")
else:
    loaded = torch.load("net.pt", weights_only=False)
    print(torch.equal(loaded["net"](loaded["x"]), loaded["y"]), loaded["x"].dtype)
"""


def test_a_program_loads_the_module_that_it_saved(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for what in ("save", "load"):
        done = subprocess.run(
            [sys.executable, "-m", "gt.torch", "program.py", what],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout == "True torch.float32\n"


def test_a_module_that_pytorch_saved(tmp_path: Path) -> None:
    """Where PyTorch is installed, it reads what GT saved, and the other way round."""
    pytest.importorskip("torch", reason="PyTorch is not installed here")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    plain, ours = [sys.executable, "program.py"], [sys.executable, "-m", "gt.torch", "program.py"]
    for first, second in ((plain, ours), (ours, plain)):
        subprocess.run([*first, "save"], cwd=tmp_path, env=environment(), timeout=120, check=True)
        done = subprocess.run(
            [*second, "load"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout == "True torch.float32\n"
