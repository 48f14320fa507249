"""The device `meta`: tensors and modules without elements."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import gt
from gt import nn


@pytest.mark.parametrize(
    ("make", "shape", "dtype"),
    [
        (lambda **o: gt.empty(2, 3, **o), (2, 3), gt.float32),
        (lambda **o: gt.zeros((4,), dtype=gt.int64, **o), (4,), gt.int64),
        (lambda **o: gt.full((2,), 7, **o), (2,), gt.int64),
        (lambda **o: gt.full((2,), True, **o), (2,), gt.bool),
        (lambda **o: gt.randn(3, requires_grad=True, **o), (3,), gt.float32),
        (lambda **o: gt.arange(5, **o), (5,), gt.int64),
        (lambda **o: gt.tensor([[1.0]], **o), (1, 1), gt.float32),
        (lambda **o: gt.ones_like(gt.zeros(2, 2, dtype=gt.float16), **o), (2, 2), gt.float16),
        (lambda **o: gt.zeros(2).new_empty(3, **o), (3,), gt.float32),
    ],
)
def test_functions_that_make_tensors(make: Any, shape: tuple[int, ...], dtype: Any) -> None:
    t = make(device="meta")
    assert (tuple(t.shape), t.dtype, t.device, t.is_meta, t.is_cpu) == (shape, dtype, gt.device("meta"), True, False)
    assert t.requires_grad == make().requires_grad
    assert repr(t).startswith("tensor(..., device='meta'")


def test_results_have_no_elements_either() -> None:
    t = gt.empty(2, 3, device="meta")
    for result, shape in [
        (t + 1, (2, 3)),
        (gt.ones(3) * t, (2, 3)),
        (t.T, (3, 2)),
        (t @ t.T, (2, 2)),
        (t.sum(0), (3,)),
        (t[0], (3,)),
        (gt.cat([t, t]), (4, 3)),
        (t.to(gt.bfloat16), (2, 3)),
        (t.split(1)[1], (1, 3)),
        (gt.empty_like(t), (2, 3)),
        (t.detach(), (2, 3)),
        (gt.ones(2, 2).to("meta"), (2, 2)),
    ]:
        assert result.is_meta
        assert tuple(result.shape) == shape
    assert t.to(gt.bfloat16).dtype == gt.bfloat16
    assert t.normal_() is t
    t[0] = 1
    assert gt.zeros_like(t, device="cpu").tolist() == [[0, 0, 0], [0, 0, 0]]


def test_reading_elements_is_an_error() -> None:
    t = gt.empty(2, device="meta")
    for read in (t.tolist, t.numpy, lambda: t.to("cpu"), t.cpu, t.clone().numpy):
        with pytest.raises(NotImplementedError, match="no data"):
            read()
    for ask in (t.sum().item, lambda: bool(t[0])):
        with pytest.raises(RuntimeError, match="meta tensors"):
            ask()


def test_a_module_that_is_too_large_gets_its_elements_later() -> None:
    with gt.device("meta"):
        huge = nn.Linear(10_000_000, 1_000_000)
        assert gt.tensor([1.0]).is_meta
    assert not gt.tensor([1.0]).is_meta
    assert huge.weight.is_meta
    assert isinstance(huge.weight, nn.Parameter)
    assert huge.weight.numel() == 10**13

    with gt.device("meta"):
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert copy.deepcopy(net)[0].weight.is_meta
    state = {name: gt.full(t.shape, 2.0).to(t.dtype) for name, t in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert not any(t.is_meta for t in (*net.parameters(), *net.buffers()))
    assert net[0].weight.requires_grad
    assert net.eval()(gt.ones(1, 3)).shape == (1, 2)


def test_modules_move_to_it_and_back() -> None:
    net = nn.Linear(2, 2)
    net.tied = net.weight
    net.to("meta")
    assert net.weight is net.tied
    assert net.weight.is_meta
    with pytest.raises(NotImplementedError, match="to_empty"):
        net.to("cpu")
    net.to_empty(device="cpu")
    assert net.weight is net.tied
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    assert net(gt.ones(2)).tolist() == [2, 2]
    with gt.no_grad():
        nn.Linear(2, 2).weight.to("meta")
    assert nn.Linear(2, 2, device="meta").weight.requires_grad


def test_nothing_is_copied_from_it() -> None:
    with pytest.raises(NotImplementedError, match="no data"):
        gt.zeros(2).copy_(gt.empty(2, device="meta"))


def test_checkpoints_are_read_without_elements(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    gt.save({"state": net.state_dict(), "p": nn.Parameter(gt.ones(4)), "n": 3}, tmp_path / "net.pt")
    loaded = gt.load(tmp_path / "net.pt", map_location="meta")
    assert loaded["state"]["weight"].is_meta
    assert loaded["state"]["weight"].shape == (2, 3)
    assert loaded["p"].is_meta
    assert isinstance(loaded["p"], nn.Parameter)
    assert loaded["n"] == 3
    assert not gt.load(tmp_path / "net.pt", map_location="cpu")["p"].is_meta


def test_a_parameter_s_class_makes_parameters() -> None:
    p = nn.Linear(2, 1, device="meta").weight
    made = type(p)(gt.ones(1, 2), requires_grad=False)
    assert (type(made), made.tolist(), made.requires_grad) == (nn.Parameter, [[1, 1]], False)
