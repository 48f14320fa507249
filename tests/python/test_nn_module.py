"""The whole API of modules: hooks, state, look-up by name, containers."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

import gt
from gt import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.scale = nn.Parameter(gt.ones(1))
        self.register_buffer("seen", gt.zeros(1))
        self.register_buffer("cache", gt.zeros(1), persistent=False)

    def forward(self, x: gt.Tensor, *, shift: float = 0.0) -> gt.Tensor:
        return self.fc(x) * self.scale + shift


def test_forward_hooks_see_and_replace() -> None:
    net, x = Net(), gt.ones(1, 2)
    plain = net(x)
    before = net.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    twice = net(x)
    before.remove()
    after = net.register_forward_hook(lambda _module, _args, output: output * 0)
    assert net(x).tolist() == [[0, 0, 0]]
    after.remove()
    net.register_forward_pre_hook(lambda _, args, kwargs: (args, {**kwargs, "shift": 1.0}), with_kwargs=True)
    assert gt.allclose(net(x), plain + 1)
    assert not gt.allclose(twice, plain)


def test_a_hook_that_is_always_called_sees_a_failure() -> None:
    seen = []
    net = Net()
    net.register_forward_hook(lambda *_: seen.append("tidy"), always_call=True)
    with pytest.raises(RuntimeError):
        net(gt.ones(1, 5))
    assert seen == ["tidy"]


def test_backward_hooks_see_and_replace() -> None:
    seen: list[Any] = []
    layer = nn.Linear(2, 1, bias=False)
    nn.init.ones_(layer.weight)

    def look(module: nn.Module, grad_input: Any, grad_output: Any) -> tuple[gt.Tensor]:
        seen.append((module is layer, grad_input[0].tolist(), grad_output[0].tolist()))
        return (grad_input[0] * 10,)

    layer.register_full_backward_hook(look)
    layer.register_full_backward_pre_hook(lambda _, grads: (grads[0] * 2,))
    x = gt.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen == [(True, [[2, 2]], [[2]])]
    assert x.grad.tolist() == [[20, 20]]
    assert layer.weight.grad.tolist() == [[2, 2]]


def test_the_older_backward_hook_is_the_full_one() -> None:
    layer = nn.ReLU()
    with pytest.warns(FutureWarning, match="register_full_backward_hook"):
        handle = layer.register_backward_hook(lambda _module, grad_input, _output: (grad_input[0].clamp(min=0),))
    x = gt.tensor([-1.0, 1.0, 2.0], requires_grad=True)
    factors = gt.tensor([1.0, -1.0, 1.0])
    (layer(x) * factors).sum().backward()
    assert x.grad.tolist() == [0, 0, 1]
    handle.remove()
    (layer(x) * factors).sum().backward()
    assert x.grad.tolist() == [0, -1, 2]
    seen: list[str] = []
    with pytest.warns(FutureWarning, match="register_full_backward_hook"):
        handle = nn.modules.module.register_module_backward_hook(lambda module, *_: seen.append(type(module).__name__))
    nn.Sequential(nn.Linear(3, 3), layer)(x).sum().backward()
    handle.remove()
    layer(x).sum().backward()
    assert seen == ["ReLU", "Linear", "Sequential"]


def test_a_backward_hook_of_a_module_whose_input_needs_no_gradient() -> None:
    seen = []
    layer = nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda _, grad_input, grad_output: seen.append((grad_input, len(grad_output))))
    layer(gt.ones(1, 2)).sum().backward()
    assert seen == [((None,), 1)]


def test_modules_and_parameters_are_found_by_name() -> None:
    net = nn.Sequential(Net())
    assert net.get_submodule("0.fc") is net[0].fc
    assert net.get_parameter("0.fc.weight") is net[0].fc.weight
    assert net.get_buffer("0.seen") is net[0].seen
    with pytest.raises(AttributeError, match="Linear has no attribute `x`"):
        net.get_submodule("0.fc.x")
    with pytest.raises(AttributeError, match=r"`scale` is not an nn.Module"):
        net.get_submodule("0.scale")
    with pytest.raises(AttributeError, match=r"`fc` is not an nn.Parameter"):
        net.get_parameter("0.fc")
    net.set_submodule("0.fc", nn.Identity())
    assert isinstance(net[0].fc, nn.Identity)


def test_a_shared_module_is_named_once_or_as_often_as_it_is_there() -> None:
    layer = nn.Linear(1, 1)
    net = nn.Sequential(layer, layer)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4


def test_state_takes_hooks_prefixes_and_extra_state() -> None:
    class Counting(nn.Linear):
        calls = 3

        def get_extra_state(self) -> int:
            return self.calls

        def set_extra_state(self, state: int) -> None:
            self.calls = state

    net = nn.ModuleDict({"a": Counting(1, 1)})
    net["a"].calls = 7
    state = net.state_dict(prefix="net.")
    assert list(state) == ["net.a.weight", "net.a.bias", "net.a._extra_state"]
    other = nn.ModuleDict({"a": Counting(1, 1)})

    def rename(state: dict[str, Any], *_: Any) -> None:
        for key in list(state):
            state[key.removeprefix("net.")] = state.pop(key)

    other._register_load_state_dict_pre_hook(rename)
    assert repr(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert other["a"].calls == 7
    assert next(iter(state)) == "net.a.weight"


def test_assigning_a_state_takes_its_tensors_as_they_are() -> None:
    net = Net()
    state = {name: t.double() for name, t in net.state_dict().items()}
    net.load_state_dict(state)
    assert net.fc.weight.dtype == gt.float32
    net.load_state_dict(state, assign=True)
    assert net.fc.weight.dtype == gt.float64
    assert isinstance(net.fc.weight, nn.Parameter)
    assert net.fc.weight.requires_grad


def test_state_that_is_no_state_is_refused() -> None:
    net = Net()
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'list'>"):
        net.load_state_dict([1])
    with pytest.raises(RuntimeError, match='While copying the parameter named "scale", expected'):
        net.load_state_dict({**net.state_dict(), "scale": 5})


def test_invalid_assignments_to_modules() -> None:
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'int' as child module 'fc'"):
        net.fc = 3
    with pytest.raises(TypeError, match=r"cannot assign 'gt.FloatTensor' as parameter 'scale'"):
        net.scale = gt.ones(1)
    with pytest.raises(KeyError, match="attribute 'fc' already exists"):
        net.register_buffer("fc", None)
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = net.nothing


def test_copies_and_pickles_are_modules_of_their_own() -> None:
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.fc.weight is not net.fc.weight
        assert other.fc.weight.tolist() == net.fc.weight.tolist()
        assert list(other.state_dict()) == ["scale", "seen", "fc.weight", "fc.bias"]


def test_lists_of_modules_are_lists() -> None:
    layers = nn.ModuleList([nn.Linear(1, 1), nn.ReLU()])
    layers.insert(1, nn.Tanh())
    layers += [nn.ReLU()]
    assert [type(m).__name__ for m in layers] == ["Linear", "Tanh", "ReLU", "ReLU"]
    assert isinstance(layers.pop(), nn.ReLU)
    del layers[0]
    layers[0] = nn.Sigmoid()
    assert [name for name, _ in layers.named_children()] == ["0", "1"]
    assert len(layers[:1] + nn.ModuleList([nn.ReLU()])) == 2
    assert repr(nn.ModuleList([nn.ReLU(), nn.ReLU()])) == "ModuleList(\n  (0-1): 2 x ReLU()\n)"


def test_parameters_in_lists_and_dicts_are_trained() -> None:
    many = nn.ParameterDict({"a": gt.ones(2), "b": nn.Parameter(gt.ones(3), requires_grad=False)})
    assert {name: p.requires_grad for name, p in many.named_parameters()} == {"a": True, "b": False}
    assert many.pop("b").shape == (3,)
    assert list(many) == ["a"]
    some = nn.ParameterList([gt.ones(1), "text"])
    assert ([name for name, _ in some.named_parameters()], some[1]) == (["0"], "text")


def test_data_parallel_is_the_module() -> None:
    layer = nn.Linear(2, 3)
    wrapped = nn.DataParallel(layer, device_ids=[0, 1])
    x = gt.ones(4, 2)
    assert gt.equal(wrapped(x), layer(x))
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert (wrapped.module, wrapped.device_ids) == (layer, [0, 1] if gt.cuda.is_available() else [])


def test_buffers_are_assigned() -> None:
    module = nn.Module()
    module.kept = nn.Buffer(gt.ones(2))
    module.lost = nn.Buffer(gt.ones(2), persistent=False)
    assert list(dict(module.named_buffers())) == ["kept", "lost"]
    assert list(module.state_dict()) == ["kept"]
    assert isinstance(module.kept, nn.Buffer)
    assert not isinstance(module.kept * 1, nn.Buffer)
    module.kept = nn.Buffer(gt.ones(1), persistent=False)
    assert list(module.state_dict()) == []
    module.weight = nn.Parameter(gt.ones(2))
    with pytest.raises(TypeError, match="as parameter 'weight'"):
        module.weight = nn.Buffer(gt.ones(2))


def test_elements_are_left_as_they_come() -> None:
    layer = nn.Linear(2, 3).to_empty(device="cpu")
    assert layer.weight.shape == (3, 2)
    assert isinstance(layer.weight, nn.Parameter)


def test_parameters_in_containers_are_shown() -> None:
    assert repr(nn.ParameterList([gt.ones(2), "x"])) == (
        "ParameterList(\n    (0): Parameter containing: [gt.float32 of size 2]\n    (1): Object of type: str\n)"
    )
    held = nn.ParameterDict({"a": gt.ones(2, 3)})
    assert repr(held) == "ParameterDict(  (a): Parameter containing: [gt.FloatTensor of size 2x3])"


def test_a_program_s_layer_may_derive_from_a_declared_one() -> None:
    class Scaled(nn.LeakyReLU):
        factor: float  # an annotation of the program's own, which declares nothing

        def __init__(self, factor: float) -> None:
            super().__init__(negative_slope=0.5)
            self.factor = factor

        def forward(self, x: gt.Tensor) -> gt.Tensor:
            return super().forward(x) * self.factor

    layer = Scaled(2.0)
    assert layer(gt.tensor([-1.0, 1.0])).tolist() == [-1.0, 2.0]
    assert repr(layer) == "Scaled(negative_slope=0.5)"
    with pytest.raises(TypeError, match="unexpected keyword argument 'slope'"):
        nn.LeakyReLU(slope=1.0)
    assert not isinstance(nn.MaxPool2d(2), nn.MaxPool1d)


def test_hooks_of_all_modules_run_before_the_module_s_own() -> None:
    net = gt.nn.Sequential(gt.nn.Linear(2, 2), gt.nn.Tanh())
    seen: list[str] = []

    def noting(word: str) -> Any:
        return lambda module, *_: seen.append(f"{word} {type(module).__name__}")

    kinds = ("forward_pre", "forward", "full_backward_pre", "full_backward")
    registered = [getattr(gt.nn.modules, f"register_module_{kind}_hook")(noting(kind)) for kind in kinds]
    net[1].register_forward_hook(noting("own"))
    net(gt.ones(1, 2, requires_grad=True)).sum().backward()
    forwards = ["forward_pre Sequential", "forward_pre Linear", "forward Linear", "forward_pre Tanh", "forward Tanh"]
    assert seen[:7] == [*forwards, "own Tanh", "forward Sequential"]
    backwards = [f"full_backward{kind} {name}" for name in ("Tanh", "Linear") for kind in ("_pre", "")]
    assert seen[7:] == ["full_backward_pre Sequential", *backwards, "full_backward Sequential"]
    for handle in registered:
        handle.remove()
    seen.clear()
    doubled = gt.nn.modules.register_module_forward_hook(lambda _module, _args, _kw, out: out * 2, with_kwargs=True)
    assert net[1](gt.ones(1)).item() == pytest.approx(2 * math.tanh(1))
    doubled.remove()
    assert net[1](gt.ones(1)).item() == pytest.approx(math.tanh(1))
    assert seen == ["own Tanh", "own Tanh"]


def test_a_hook_of_all_modules_also_runs_when_one_raises() -> None:
    seen: list[object] = []
    note = lambda _module, _args, output: seen.append(output)  # noqa: E731 (one line for one use)
    with gt.nn.modules.register_module_forward_hook(note, always_call=True), pytest.raises(NotImplementedError):
        gt.nn.Module()(1)
    assert seen == [None]


def test_hooks_see_what_any_module_registers_and_may_replace_it() -> None:
    seen: list[tuple[str, str, object]] = []
    modules = gt.nn.modules.module

    def noting(kind: str) -> Any:
        return lambda _module, name, value: seen.append((kind, name, None if value is None else type(value).__name__))

    kinds = ("parameter", "buffer", "module")
    handles = [getattr(modules, f"register_module_{kind}_registration_hook")(noting(kind)) for kind in kinds]
    net = gt.nn.Module()
    net.norm = gt.nn.BatchNorm1d(2)
    net.register_parameter("scale", None)
    net.scale = gt.nn.Parameter(gt.ones(1))
    net.register_buffer("count", None)
    net.count = gt.zeros(1)
    net.norm = None
    net.other = 3
    assert seen == [
        *(("parameter", name, "Parameter") for name in ("weight", "bias")),
        *(("buffer", name, "Tensor") for name in ("running_mean", "running_var", "num_batches_tracked")),
        ("module", "norm", "BatchNorm1d"),
        ("parameter", "scale", "Parameter"),
        ("buffer", "count", None),
        ("buffer", "count", "Tensor"),
        ("module", "norm", None),
    ]
    for handle in handles:
        handle.remove()
    with modules.register_module_module_registration_hook(lambda *_: gt.nn.Tanh()):
        net.last = gt.nn.ReLU()
        net.add_module("more", gt.nn.ReLU())
    assert repr(net.last) == repr(net.more) == "Tanh()"
    assert len(seen) == 10
