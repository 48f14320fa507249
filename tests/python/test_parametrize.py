"""Parameters computed from others, as `nn.utils.parametrize` registers them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn
from gt.nn.utils import parametrizations, parametrize

RNG = np.random.default_rng(11)


class Symmetric(nn.Module):
    def forward(self, x: gt.Tensor) -> gt.Tensor:
        return x.triu() + x.triu(1).T

    def right_inverse(self, a: gt.Tensor) -> gt.Tensor:
        return a.triu()


class Doubled(nn.Module):
    def forward(self, x: gt.Tensor) -> gt.Tensor:
        return x * 2


class Product(nn.Module):
    def forward(self, a: gt.Tensor, b: gt.Tensor) -> gt.Tensor:
        return a * b

    def right_inverse(self, x: gt.Tensor) -> tuple[gt.Tensor, gt.Tensor]:
        return x, gt.ones_like(x)


def layer(rows: int = 3, columns: int = 3) -> nn.Linear:
    made = nn.Linear(columns, rows, dtype=gt.float64)
    with gt.no_grad():
        made.weight.copy_(gt.tensor(RNG.standard_normal((rows, columns))))
    return made


# Registration ----------------------------------------------------------------------------------------------------


def test_the_weight_is_computed_from_the_original_parameter() -> None:
    module = layer()
    before, parameter = module.weight.detach().numpy(), module.weight
    assert parametrize.register_parametrization(module, "weight", Symmetric()) is module
    upper = np.triu(before)
    assert_close(module.weight, upper + np.triu(before, 1).T)
    assert_close(module.parametrizations.weight.original, upper)
    assert [name for name, _ in module.named_parameters()] == ["bias", "parametrizations.weight.original"]
    # The parameter is the same object, which an optimizer may already hold.
    assert module.parametrizations.weight.original is parameter
    module(gt.ones(1, 3, dtype=gt.float64)).sum().backward()
    assert_close(parameter.grad, [[1, 2, 2], [0, 1, 2], [0, 0, 1]])


def test_a_parametrized_module_is_still_of_its_class() -> None:
    module = parametrize.register_parametrization(layer(), "weight", Symmetric())
    assert isinstance(module, nn.Linear)
    assert type(module).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(module) is nn.Linear
    assert parametrize.is_parametrized(module, "weight")
    assert not parametrize.is_parametrized(module, "bias")
    assert not parametrize.is_parametrized(layer())
    assert repr(module).splitlines()[2:4] == ["  (parametrizations): ModuleDict(", "    (weight): ParametrizationList("]


def test_assigning_goes_by_the_inverse() -> None:
    module = parametrize.register_parametrization(layer(), "weight", Symmetric())
    module.weight = gt.ones(3, 3, dtype=gt.float64)
    assert_close(module.parametrizations.weight.original, np.triu(np.ones((3, 3))))
    assert_close(module.weight, np.ones((3, 3)))
    with pytest.raises(KeyError, match="attribute 'weight' already exists"):
        module.weight = nn.Parameter(gt.ones(3, 3))
    parametrize.register_parametrization(module, "bias", Doubled())
    with pytest.raises(RuntimeError, match="parametrization Doubled does not implement right_inverse"):
        module.bias = gt.ones(3)


def test_one_after_the_other() -> None:
    module = layer()
    before = module.weight.detach().numpy()
    for _ in range(2):
        parametrize.register_parametrization(module, "weight", Doubled())
    assert_close(module.weight, before * 4)
    assert len(module.parametrizations.weight) == 2


def test_several_tensors_may_make_one() -> None:
    module = layer()
    before = module.weight.detach().numpy()
    parametrize.register_parametrization(module, "weight", Product())
    names = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(module.state_dict()) == names
    assert_close(module.weight, before)
    with pytest.raises(ValueError, match="parametrized in terms of a sequence of tensors"):
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(module, "weight")
    assert isinstance(module.weight, nn.Parameter)
    assert_close(module.weight, before)


def test_buffers_and_frozen_parameters_stay_what_they_are() -> None:
    module = layer()
    module.register_buffer("scale", gt.ones(2))
    parametrize.register_parametrization(module, "scale", Doubled())
    assert module.scale.tolist() == [2, 2]
    assert "parametrizations.scale.original" in dict(module.named_buffers())
    module.weight.requires_grad_(False)
    parametrize.register_parametrization(module, "weight", Product())
    assert not module.parametrizations.weight.original1.requires_grad
    parametrize.remove_parametrizations(module, "scale")
    assert dict(module.named_buffers())["scale"].tolist() == [2, 2]


@pytest.mark.parametrize("leave", [False, True])
def test_removing_leaves_the_value_or_the_original(leave: bool) -> None:
    module = parametrize.register_parametrization(layer(), "weight", Doubled())
    original, value = module.parametrizations.weight.original.detach().numpy(), module.weight.detach().numpy()
    parametrize.remove_parametrizations(module, "weight", leave_parametrized=leave)
    assert type(module) is nn.Linear
    assert_close(module.weight, value if leave else original)
    assert [name for name, _ in module.named_parameters()] == ["bias", "weight"]
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(module, "weight")


def test_cached_computes_once() -> None:
    module = parametrize.register_parametrization(layer(), "weight", Doubled())
    with parametrize.cached():
        first = module.weight
        with parametrize.cached():
            assert module.weight is first
        assert module.weight is first
    assert module.weight is not first


def test_copies_have_their_own() -> None:
    module = parametrize.register_parametrization(layer(), "weight", Doubled())
    twin = copy.deepcopy(module)
    parametrize.remove_parametrizations(module, "weight")
    assert_close(twin.weight, module.weight.detach().numpy())
    assert_close(pickle.loads(pickle.dumps(twin)).weight, twin.weight.detach().numpy())
    other = parametrize.transfer_parametrizations_and_params(twin, layer())
    assert other.parametrizations.weight.original is twin.parametrizations.weight.original


def test_a_state_dict_goes_back() -> None:
    first, second = (parametrize.register_parametrization(layer(), "weight", Symmetric()) for _ in range(2))
    second.load_state_dict(first.state_dict())
    assert_close(second.weight, first.weight.detach().numpy())


class Wrong(nn.Module):
    def __init__(self, forward: Any, back: Any = None) -> None:
        super().__init__()
        self.forward = forward
        if back is not None:
            self.right_inverse = back


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Wrong(lambda x: x[:2]), "may not change the shape"),
        (Wrong(lambda x: x.float()), "may not change the dtype"),
        (Wrong(lambda _: 3), "A parametrization must return a tensor. Got int."),
        (Wrong(lambda x: x, lambda _: 3), "'right_inverse' must return a Tensor or a Sequence of tensors"),
        (Wrong(lambda x, _: x, lambda x: [x, 3]), "Got element 1 of the sequence with type int"),
        (
            Wrong(lambda x: x, lambda x: x.float()),
            "`right_inverse` outputs one tensor, it may not change the dtype",
        ),
    ],
)
def test_invalid_operands_are_refused(wrong: nn.Module, words: str) -> None:
    module = layer()
    with pytest.raises(ValueError, match=words):
        parametrize.register_parametrization(module, "weight", wrong)
    assert not parametrize.is_parametrized(module)
    with pytest.raises(ValueError, match="a buffer, or a parametrized element with name 'x'"):
        parametrize.register_parametrization(module, "x", Doubled())


def test_unsafe_may_change_the_shape() -> None:
    module = parametrize.register_parametrization(layer(), "weight", Wrong(lambda x: x[:2]), unsafe=True)
    assert module.weight.shape == (2, 3)


# Constrained weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, None])
def test_a_weight_of_length_and_direction(dim: int | None) -> None:
    module = layer(2, 3)
    before = module.weight.detach().numpy().copy()
    parametrizations.weight_norm(module, dim=dim)
    assert_close(module.weight, before, "float64", 1e-12)
    known = module.parametrizations.weight
    axes = {0: 1, 1: 0, None: None}[dim]
    assert_close(known.original0, np.linalg.norm(before, axis=axes, keepdims=dim is not None), "float64", 1e-12)
    with gt.no_grad():
        known.original0.mul_(2)
        known.original1.mul_(5)
    assert_close(module.weight, before * 2, "float64", 1e-12)


def test_state_dicts_of_the_older_weight_norm_are_read() -> None:
    old, new = nn.utils.weight_norm(layer(2, 3)), parametrizations.weight_norm(layer(2, 3))
    new.load_state_dict(old.state_dict())
    assert_close(new.weight, old.weight.detach().numpy(), "float64", 1e-12)


@pytest.mark.parametrize("make", [lambda: layer(4, 5), lambda: nn.ConvTranspose2d(3, 4, 2, dtype=gt.float64)])
def test_a_weight_whose_largest_singular_value_is_one(make: Any) -> None:
    module = parametrizations.spectral_norm(make(), n_power_iterations=50)
    weight = module.weight
    matrix = (weight if weight.ndim == 2 else weight.transpose(0, 1)).detach().flatten(1).numpy()
    assert np.linalg.svd(matrix)[1][0] == pytest.approx(1.0, abs=1e-6)
    known = module.parametrizations.weight[0]._u.tolist()
    _ = module.eval().weight
    assert known == module.parametrizations.weight[0]._u.tolist()
    with pytest.raises(ValueError, match="Expected n_power_iterations to be positive"):
        parametrizations.spectral_norm(layer(), n_power_iterations=0)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
@pytest.mark.parametrize("kind", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivial", [True, False])
def test_an_orthogonal_weight_stays_so(shape: tuple[int, int], kind: str | None, trivial: bool) -> None:
    module = parametrizations.orthogonal(layer(*shape), orthogonal_map=kind, use_trivialization=trivial)
    optimizer = gt.optim.SGD(module.parameters(), lr=0.1)
    module(gt.ones(2, shape[1], dtype=gt.float64)).square().sum().backward()
    before = module.weight.detach().numpy()
    optimizer.step()
    assert np.abs(module.weight.detach().numpy() - before).max() > 1e-3
    weight = module.weight.detach().numpy()
    product = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    assert_close(gt.tensor(product), np.eye(min(shape)), "float64", 1e-12)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
@pytest.mark.parametrize(("kind", "trivial"), [("matrix_exp", True), ("cayley", True), ("householder", False)])
def test_an_orthogonal_matrix_can_be_assigned(shape: tuple[int, int], kind: str, trivial: bool) -> None:
    module = parametrizations.orthogonal(layer(*shape), orthogonal_map=kind, use_trivialization=trivial)
    want = np.linalg.qr(RNG.standard_normal((4, 4)))[0][: max(shape), : max(shape)]
    want = np.linalg.qr(want)[0][: shape[0], : shape[1]] if shape == (3, 3) else want[: shape[0], : shape[1]]
    module.weight = gt.tensor(want)
    assert_close(module.weight, want, "float64", 1e-10)


def test_orthogonal_weights_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"Expected a matrix or batch of matrices\. Got a tensor of 1 dimensions"):
        parametrizations.orthogonal(nn.LayerNorm(3))
    with pytest.raises(ValueError, match='orthogonal_map has to be one of "matrix_exp", "cayley", "householder"'):
        parametrizations.orthogonal(layer(), orthogonal_map="x")
    module = parametrizations.orthogonal(layer(), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="It is not possible to assign to the matrix exponential"):
        module.weight = gt.eye(3, dtype=gt.float64)
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices of shape"):
        module.weight = gt.eye(2, dtype=gt.float64)
