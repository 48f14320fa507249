"""Lazy layers infer their input sizes from the first input."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import gt
from gt import nn

CONVOLUTIONS = [("Conv", (4, 6)), ("ConvTranspose", (6, 4))]
NORMS = ["BatchNorm", "InstanceNorm"]


def test_a_network_knows_its_sizes_after_the_first_call() -> None:
    model = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    assert repr(model[4]) == "LazyLinear(in_features=0, out_features=2, bias=True)"
    result = model(gt.rand(5, 2, 4, 4))
    assert result.shape == (5, 2)
    assert [type(module) for module in model] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear]
    assert repr(model[4]) == "Linear(in_features=27, out_features=2, bias=True)"
    assert (model[0].in_channels, model[1].num_features, model[4].in_features) == (2, 3, 27)
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    # Initialised as in an ordinary layer.
    assert 0 < model[4].weight.detach().abs().max().item() <= 27**-0.5


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("kind", "channels"), CONVOLUTIONS)
@pytest.mark.parametrize("samples", [(), (2,)])
def test_convolutions(rank: int, kind: str, channels: tuple[int, int], samples: tuple[int, ...]) -> None:
    module = getattr(nn, f"Lazy{kind}{rank}d")(4, 2, stride=2, bias=False)
    module(gt.rand(*samples, 6, *[5] * rank))
    assert type(module) is getattr(nn, f"{kind}{rank}d")
    assert module.weight.shape == (*channels, *[2] * rank)
    assert module.bias is None


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", NORMS)
def test_norms(rank: int, kind: str) -> None:
    module = getattr(nn, f"Lazy{kind}{rank}d")()
    names = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert list(module.state_dict()) == names
    module(gt.rand(2, 6, *[5] * rank))
    assert type(module) is getattr(nn, f"{kind}{rank}d")
    assert [tuple(module.state_dict()[name].shape) for name in names] == [(6,)] * 4 + [()]
    assert module.weight.tolist() == [1] * 6


def test_dtypes_are_chosen_before() -> None:
    module = nn.LazyLinear(3).double()
    module.zero_grad()
    assert module.weight.dtype == gt.float64
    assert module(gt.rand(2, 4, dtype=gt.float64)).dtype == gt.float64


def test_a_state_dict_tells_the_sizes_too() -> None:
    trained, module = nn.Linear(4, 3), nn.LazyLinear(3)
    module.load_state_dict(trained.state_dict())
    assert not module.has_uninitialized_params()
    x = gt.rand(2, 4)
    assert module(x).tolist() == trained(x).tolist()
    assert type(module) is nn.Linear


def test_a_state_dict_without_sizes() -> None:
    state = nn.LazyLinear(3).state_dict()
    module = copy.deepcopy(nn.LazyLinear(3))
    module.load_state_dict(state)
    assert module.has_uninitialized_params()
    with pytest.raises(RuntimeError, match="UninitializedParameter"):
        nn.Linear(4, 3).load_state_dict(state)


def test_copies_learn_for_themselves() -> None:
    module = nn.LazyLinear(3)
    twin = copy.deepcopy(module)
    twin(gt.rand(2, 4))
    assert type(module) is nn.LazyLinear
    assert module(gt.rand(2, 5)).shape == (2, 3)
    assert twin.in_features == 4


class Scale(nn.Module):
    def forward(self, x: gt.Tensor) -> gt.Tensor:
        return x * self.factor + self.shift


class LazyScale(nn.lazy.LazyModuleMixin, Scale):
    cls_to_become = Scale

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.UninitializedParameter()
        self.shift = nn.UninitializedBuffer()

    def initialize_parameters(self, x: gt.Tensor) -> None:
        self.factor.materialize(x.shape[1:])
        self.shift.materialize(x.shape[1:])
        nn.init.ones_(self.factor)
        self.shift.zero_()


def test_a_lazy_module_of_ones_own() -> None:
    module = LazyScale()
    x = gt.rand(2, 3)
    assert module(x).tolist() == x.tolist()
    assert type(module) is Scale
    assert [name for name, _ in module.named_parameters()] == ["factor"]
    assert [name for name, _ in module.named_buffers()] == ["shift"]


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda m: m.weight.shape, RuntimeError, "Can't access the shape of an uninitialized parameter or buffer"),
        (lambda m: m.weight.numel(), ValueError, "Attempted to use an uninitialized parameter in 'numel'"),
        (lambda m: nn.init.ones_(m.weight), ValueError, "Attempted to use an uninitialized parameter in 'fill_'"),
        (lambda _: nn.UninitializedParameter().materialize((2,)), RuntimeError, "of a lazy module first"),
        (lambda _: nn.LazyConv2d(4, 2)(gt.rand(6, 3)), RuntimeError, "input to LazyConv2d, but got input of size"),
        (lambda _: nn.LazyConv1d(4, 2, groups=4)(gt.rand(6, 3)), ValueError, "in_channels must be divisible by groups"),
    ],
)
def test_uninitialized_parameters_cannot_be_used(use: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        use(nn.LazyLinear(3))


def test_an_optimizer_waits_for_parameters_to_come() -> None:
    model = gt.nn.Sequential(gt.nn.LazyLinear(3))
    optimizer = gt.optim.Adam(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    model(gt.ones(2, 4)).sum().backward()
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert not model[0].weight.equal(before)
    assert optimizer.state_dict()["state"][0]["exp_avg"].shape == (3, 4)
