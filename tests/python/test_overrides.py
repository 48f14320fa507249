"""`__torch_function__`: classes derived from `Tensor`, other classes and modes override operations."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import gt
from gt import overrides
from gt.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from gt.utils.flop_counter import FlopCounterMode


class Plain(gt.Tensor):
    """A class without a `__torch_function__` of its own."""


class Logged(gt.Tensor):
    """A class that notes the functions that are called."""

    calls: list[Any] = []  # noqa: RUF012 (there is one for all)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Metres:
    """A class that is no tensor, and overrides what it has an answer for."""

    answers: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, value: gt.Tensor) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.answers or not all(issubclass(kind, (gt.Tensor, cls)) for kind in types):
            return NotImplemented
        return cls.answers[func](*args, **(kwargs or {}))


Metres.answers[gt.add] = lambda a, b: Metres(a.value + b.value)
Metres.answers[gt.cat] = lambda parts, dim=0: Metres(gt.cat([part.value for part in parts], dim))


def plain() -> Plain:
    return gt.arange(6.0).reshape(2, 3).as_subclass(Plain)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: 2**x,
        lambda x: gt.ones(2, 3) + x,
        lambda x: -x,
        lambda x: x @ x.T,
        lambda x: x > 1,
        lambda x: x[0, 1:],
        lambda x: x.T,
        lambda x: x.data,
        lambda x: x.sum(0),
        lambda x: x.clone(),
        lambda x: x.detach(),
        lambda x: x.to(gt.float64),
        lambda x: x.view(-1),
        lambda x: x.add_(1),
        lambda x: gt.exp(x),
        lambda x: gt.cat([gt.ones(2, 3), x]),
        lambda x: gt.stack((x, x)),
        lambda x: gt.nn.functional.relu(x),
        lambda x: gt.nn.functional.linear(gt.ones(1, 3), x),
        lambda x: gt.where(x > 1, x, 0),
        lambda x: gt.zeros_like(x),
        lambda x: x.max(1)[0],
        lambda x: x.split(1)[1],
        lambda x: copy.copy(x),
        lambda x: copy.deepcopy(x),
    ],
)
def test_results_have_the_class(call: Any) -> None:
    result = call(plain())
    assert type(result) is Plain
    expected = call(gt.arange(6.0).reshape(2, 3))
    assert result.tolist() == expected.tolist()


def test_results_that_are_no_tensors_stay_as_they_are() -> None:
    x = plain()
    assert (x.shape, x.dim(), x.dtype, x.tolist()[0], float(x[0, 1])) == ((2, 3), 2, gt.float32, [0, 1, 2], 1)
    assert repr(x) == str(x) == "Plain([[0., 1., 2.],\n       [3., 4., 5.]])"
    assert type(pickle.loads(pickle.dumps(x))) is Plain


def test_gradients_flow_through_instances() -> None:
    w = gt.ones(2, 3, requires_grad=True)
    (w.as_subclass(Plain) * plain()).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_function_is_the_method_or_function_that_was_called() -> None:
    x = gt.ones(2).as_subclass(Logged)
    y = gt.ones(2)
    for call, expected in [
        (lambda: x + 1, gt.Tensor.add),
        (lambda: y + x, gt.Tensor.add),
        (lambda: x / 2, gt.Tensor.div),
        (lambda: x % 2, gt.Tensor.remainder),
        (lambda: x.clone(), gt.Tensor.clone),
        (lambda: x.to(gt.float64), gt.Tensor.to),
        (lambda: x[0], gt.Tensor.__getitem__),
        (lambda: x.sum(), gt.Tensor.sum),
        (lambda: gt.sum(x), gt.sum),
        (lambda: gt.cat([y, x]), gt.cat),
        (lambda: gt.nn.functional.relu(x), gt.nn.functional.relu),
        (lambda: x.mul_(2), gt.Tensor.mul_),
    ]:
        Logged.calls.clear()
        call()
        assert Logged.calls == [expected], expected
    Logged.calls.clear()
    x[0] = 1
    x += 1
    assert Logged.calls == [gt.Tensor.__setitem__, gt.Tensor.add_]
    Logged.calls.clear()
    with overrides.DisableTorchFunctionSubclass():
        assert type(x.exp()) is gt.Tensor
    assert Logged.calls == []


def test_a_method_of_the_class_comes_first() -> None:
    class Named(gt.Tensor):
        def clone(self, *_: Any, **__: Any) -> str:  # type: ignore[override]
            return "mine"

    class Inner(Named):
        pass

    for cls in (Named, Inner):
        assert gt.ones(1).as_subclass(cls).clone() == "mine"
        assert type(gt.ones(1).as_subclass(cls).exp()) is cls


def test_the_more_derived_class_decides() -> None:
    class Other(gt.Tensor):
        pass

    class Derived(Plain):
        pass

    x, y = gt.ones(2).as_subclass(Plain), gt.ones(2).as_subclass(Derived)
    assert type(gt.add(x, y)) is Derived
    assert type(gt.add(y, x)) is Derived
    with pytest.raises(TypeError, match=r"no implementation found for 'torch\.add'"):
        gt.add(x, gt.ones(2).as_subclass(Other))


def test_a_class_that_overrides_nothing() -> None:
    class Quiet(gt.Tensor):
        __torch_function__ = gt._C._disabled_torch_function_impl

    assert type(gt.ones(2).as_subclass(Quiet) + 1) is gt.Tensor
    p = gt.nn.Parameter(gt.ones(2))
    assert type(p) is gt.nn.Parameter
    assert type(p * 2) is type(p.detach()) is type(p.data) is gt.Tensor
    assert isinstance(p, gt.Tensor)
    assert not has_torch_function((p, gt.ones(1), 3))

    class Own(gt.nn.Parameter):
        pass

    own = Own(gt.ones(2))
    assert isinstance(own, gt.nn.Parameter)
    assert type(copy.deepcopy(own)) is Own
    module = gt.nn.Module()
    module.p = own
    assert next(module.parameters()) is own


def test_classes_that_are_no_tensors() -> None:
    a, b = Metres(gt.ones(2)), Metres(gt.full((2,), 3.0))
    assert gt.add(a, b).value.tolist() == [4, 4]
    assert gt.cat([a, b]).value.tolist() == [1, 1, 3, 3]
    with pytest.raises(TypeError, match=r"no implementation found for 'torch\.sub'"):
        gt.sub(a, b)
    assert has_torch_function((a,))
    assert overrides.is_tensor_like(a)
    assert not overrides.is_tensor_like(3)


def test_functions_in_python_that_are_overridden() -> None:
    @overrides.wrap_torch_function(lambda x, **_: (x,))
    def double(x: Any, *, times: int = 2) -> Any:
        return x * times

    Metres.answers[double] = lambda _, times=2: ("metres", times)
    assert double(Metres(gt.ones(1)), times=3) == ("metres", 3)
    assert double(gt.ones(1)).item() == 2
    assert handle_torch_function(double, (Metres(gt.ones(1)),), Metres(gt.ones(1))) == ("metres", 2)


def test_modes_see_every_function() -> None:
    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    outer, inner = Names(), Names()
    with outer:
        x = gt.ones(2)
        with inner:
            gt.exp(x).sum()
        gt.tensor([1.0])
    gt.cos(x)
    assert inner.seen == ["exp", "sum"]
    assert outer.seen == ["ones", "exp", "sum", "tensor"]


def test_operations_are_counted() -> None:
    with FlopCounterMode(display=False) as counter:
        gt.nn.functional.linear(gt.ones(5, 3), gt.ones(4, 3))
        gt.conv2d(gt.ones(1, 2, 5, 5), gt.ones(3, 2, 3, 3))
        gt.addmm(gt.ones(2, 2), gt.ones(2, 3), gt.ones(3, 2))
    counts = counter.get_flop_counts()["Global"]
    assert counts == {"linear": 2 * 5 * 4 * 3, "conv2d": 2 * 27 * 18, "addmm": 2 * 4 * 3}
    assert counter.get_total_flops() == sum(counts.values())
