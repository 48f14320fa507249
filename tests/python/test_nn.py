"""`gt.nn`: modules register, iterate and print as in PyTorch; layers and losses compute the same numbers."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import scipy.special
from support import assert_close, numeric_gradient, to_numpy

import gt
from gt import nn
from gt.nn import functional as F  # noqa: N812 (PyTorch's users know it by this letter)

RNG = np.random.default_rng(30)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout(0.5))
        self.scale = nn.Parameter(gt.ones(3))
        self.register_buffer("mean", gt.zeros(2))
        self.register_buffer("scratch", gt.zeros(1), persistent=False)
        self.name = "net"

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        return self.body(self.fc(x - self.mean)) * self.scale


NAMES = ["scale", "fc.weight", "fc.bias", "body.0.weight", "body.0.bias"]


# Modules ----------------------------------------------------------------------------------------------------------


def test_assignment_registers() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "scratch"]
    assert [name for name, _ in net.named_modules()] == ["", "fc", "body", "body.0", "body.1", "body.2"]
    assert [name for name, _ in net.named_children()] == ["fc", "body"]
    assert len(list(net.parameters())) == 5
    assert len(list(net.modules())) == 6
    assert all(isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf for p in net.parameters())
    assert net.fc is net._modules["fc"]
    assert net.name == "net"
    assert "fc" in dir(net)


def test_only_parameters_are_parameters() -> None:
    net = nn.Module()
    net.plain = gt.ones(2, requires_grad=True)
    assert not isinstance(net.plain, nn.Parameter)
    assert list(net.parameters()) == []
    net.p = nn.Parameter(net.plain)
    assert len(list(net.parameters())) == 1
    assert not isinstance(net.p * 2, nn.Parameter)
    assert not isinstance(net.p.detach(), nn.Parameter)
    with pytest.raises(TypeError, match="expected a Tensor"):
        nn.Parameter([1.0])


def test_an_in_place_change_leaves_a_parameter_a_parameter() -> None:
    p = nn.Parameter(gt.ones(2))
    with gt.no_grad():
        p -= 0.5
    assert isinstance(p, nn.Parameter)
    assert p.tolist() == [0.5, 0.5]


def test_names_may_be_replaced_and_deleted() -> None:
    net = Net()
    net.fc = nn.Linear(5, 5, bias=False)
    assert net.fc.weight.shape == (5, 5)
    assert net.fc.bias is None
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    del net.body
    assert [name for name, _ in net.named_parameters()] == ["fc.weight"]
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'body'"):
        _ = net.body
    net.mean = gt.ones(2)
    assert net._buffers["mean"].tolist() == [1, 1]


def test_registering_invalid_objects_is_refused() -> None:
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'str' as parameter 'scale'"):
        net.scale = "wide"
    with pytest.raises(KeyError, match="module name can"):
        net.add_module("a.b", nn.ReLU())
    with pytest.raises(TypeError, match="is not a Module subclass"):
        net.add_module("x", 5)
    with pytest.raises(TypeError, match="buffer 'x'"):
        net.register_buffer("x", [1.0])

    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Forgetful()
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_shared_parameters_count_once() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(net.state_dict()) == 4


def test_train_and_eval_reach_every_module() -> None:
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())


def test_apply_visits_children_first() -> None:
    seen = []
    Net().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "ReLU", "Dropout", "Sequential", "Net"]


def test_zero_grad_and_freezing() -> None:
    net = Net()
    net(gt.ones(4, 2)).sum().backward()
    assert net.fc.weight.grad is not None
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    assert not net(gt.ones(1, 2)).requires_grad


def test_conversion_keeps_the_parameters_that_an_optimizer_holds() -> None:
    net = Net()
    weight = net.fc.weight
    assert net.double() is net
    assert net.fc.weight is weight
    assert weight.dtype == gt.float64
    assert net.mean.dtype == gt.float64
    assert isinstance(weight, nn.Parameter)
    assert net(gt.ones(1, 2, dtype=gt.float64)).dtype == gt.float64
    net.to(gt.float32)
    assert net(gt.ones(1, 2)).dtype == gt.float32
    with pytest.raises(TypeError, match="floating point"):
        net.to(gt.int64)


def test_the_tree_is_printed() -> None:
    assert repr(Net()) == (
        "Net(\n"
        "  (fc): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (body): Sequential(\n"
        "    (0): Linear(in_features=3, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "    (2): Dropout(p=0.5, inplace=False)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"


# State ------------------------------------------------------------------------------------------------------------


def test_state_moves_from_one_model_to_another() -> None:
    a, b = Net(), Net()
    state = a.state_dict()
    assert list(state) == ["scale", "mean", "fc.weight", "fc.bias", "body.0.weight", "body.0.bias"]
    assert not any(t.requires_grad for t in state.values())
    result = b.load_state_dict(state)
    assert str(result) == "<All keys matched successfully>"
    for name, value in b.state_dict().items():
        np.testing.assert_array_equal(to_numpy(value), to_numpy(state[name]))
    x = gt.randn(3, 2)
    assert a.eval()(x).tolist() == b.eval()(x).tolist()
    with gt.no_grad():
        a.fc.weight += 1  # Loading copied the values into b.
    assert a.eval()(x).tolist() != b.eval()(x).tolist()


def test_state_of_another_framework_or_dtype_is_converted() -> None:
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": np.array([[1.0, 2.0]]), "bias": gt.tensor([3.0], dtype=gt.float64)})
    assert_close(net.weight, [[1, 2]], "float32")
    assert net(gt.tensor([1.0, 1.0])).tolist() == [6]


def test_state_that_does_not_fit_is_refused_whole() -> None:
    net = Net()
    before = net.fc.bias.tolist()
    state = {**net.state_dict(), "fc.bias": gt.ones(3), "fc.weight": gt.ones(9, 9), "extra": gt.ones(1)}
    del state["scale"]
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "scale". \n'
        '\tUnexpected key(s) in state_dict: "extra". \n'
        "\tsize mismatch for fc.weight: copying a param with shape gt.Size([9, 9]) from checkpoint, "
        "the shape in current model is gt.Size([3, 2])."
    )
    assert net.fc.bias.tolist() == before
    del state["fc.weight"]
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["scale", "fc.weight"]
    assert result.unexpected_keys == ["extra"]
    assert net.fc.bias.tolist() == [1, 1, 1]


def test_models_are_copied_and_pickled() -> None:
    net = Net().eval()
    x = gt.ones(1, 2)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other(x).tolist() == net(x).tolist()
        assert [name for name, _ in other.named_parameters()] == NAMES
        with gt.no_grad():
            other.scale.zero_()
        assert net.scale.tolist() == [1, 1, 1]


# Layers -----------------------------------------------------------------------------------------------------------


def test_linear_is_a_matrix_and_a_bias() -> None:
    layer = nn.Linear(4, 3, dtype=gt.float64)
    assert layer.weight.shape == (3, 4)
    x = RNG.standard_normal((2, 5, 4))
    assert_close(layer(gt.tensor(x)), x @ to_numpy(layer.weight).T + to_numpy(layer.bias))
    layer(gt.tensor(x)).sum().backward()
    assert_close(layer.weight.grad, np.tile(x.sum((0, 1)), (3, 1)))
    assert_close(layer.bias.grad, [10, 10, 10])
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x5 and 4x3\)"):
        layer(gt.ones(2, 5, dtype=gt.float64))


def test_linear_starts_within_one_over_the_root_of_its_inputs() -> None:
    gt.manual_seed(1)
    layer = nn.Linear(400, 300)
    for t in (layer.weight, layer.bias):
        values = to_numpy(t)
        bound = 1 / math.sqrt(400)
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.98 * bound
        assert abs(values.mean()) < 6 * bound / math.sqrt(3 * values.size)
        assert t.is_leaf
        assert t.requires_grad


@pytest.mark.parametrize(
    ("layer", "reference"),
    [
        (nn.ReLU(), lambda a: np.maximum(a, 0)),
        (nn.Sigmoid(), scipy.special.expit),
        (nn.Tanh(), np.tanh),
        (nn.GELU(), lambda a: a * scipy.special.ndtr(a)),
        (nn.Softmax(dim=1), lambda a: scipy.special.softmax(a, 1)),
        (nn.LogSoftmax(dim=-1), lambda a: scipy.special.log_softmax(a, -1)),
        (nn.Flatten(), lambda a: a.reshape(4, -1)),
        (nn.Identity(1, extra=2), lambda a: a),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_without_parameters(layer: nn.Module, reference: object) -> None:
    x = RNG.standard_normal((4, 3, 2))
    assert_close(layer(gt.tensor(x)), reference(x))


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "gelu"])
def test_functional_activations(name: str) -> None:
    x = gt.tensor(RNG.standard_normal((3, 4)))
    np.testing.assert_array_equal(to_numpy(getattr(F, name)(x)), to_numpy(getattr(x, name)()))


def test_sequential_holds_modules_in_order() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    assert len(net) == 3
    assert isinstance(net[1], nn.ReLU)
    assert net[-1] is net[2]
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear"]
    assert len(net[:2]) == 2
    named = nn.Sequential({"first": nn.Linear(2, 2), "second": nn.ReLU()})
    assert [name for name, _ in named.named_children()] == ["first", "second"]
    assert named.first.weight.shape == (2, 2)
    x = gt.ones(3, 2)
    assert net(x).tolist() == net[2](net[1](net[0](x))).tolist()
    with pytest.raises(IndexError):
        net[3]


def test_dropout_drops_in_training_alone() -> None:
    gt.manual_seed(3)
    layer = nn.Dropout(0.25)
    x = gt.ones(400, 100)
    dropped = to_numpy(layer(x))
    assert abs((dropped == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
    assert layer.eval()(x) is x
    assert not np.array_equal(to_numpy(layer.train()(x)), dropped)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)
    assert nn.Dropout(1.0)(x).sum().item() == 0


def test_dropout_passes_gradients_through_kept_elements() -> None:
    x = gt.ones(1000, requires_grad=True)
    y = nn.Dropout(0.5)(x)
    y.sum().backward()
    np.testing.assert_array_equal(to_numpy(x.grad), to_numpy(y))


# Losses -----------------------------------------------------------------------------------------------------------

SCORES = RNG.standard_normal((6, 4))
CLASSES = RNG.integers(0, 4, 6)
SHARES = scipy.special.softmax(RNG.standard_normal((6, 4)), 1)
CHANCES = RNG.uniform(0.05, 0.95, (6, 4))


def _nll(a: np.ndarray, classes: np.ndarray = CLASSES) -> np.ndarray:
    return -np.take_along_axis(a, classes[:, None], 1)[:, 0]


def _cross_entropy(a: np.ndarray) -> np.ndarray:
    return _nll(scipy.special.log_softmax(a, 1))


LOSSES = {
    "mse_loss": (SCORES, SHARES, lambda a: (a - SHARES) ** 2),
    "l1_loss": (SCORES, SHARES, lambda a: np.abs(a - SHARES)),
    "binary_cross_entropy": (CHANCES, SHARES, lambda a: -SHARES * np.log(a) - (1 - SHARES) * np.log(1 - a)),
    "binary_cross_entropy_with_logits": (
        SCORES,
        SHARES,
        lambda a: -SHARES * np.log(scipy.special.expit(a)) - (1 - SHARES) * np.log(scipy.special.expit(-a)),
    ),
    "nll_loss": (SCORES, CLASSES, _nll),
    "cross_entropy": (SCORES, CLASSES, _cross_entropy),
    "cross_entropy_loss": (SCORES, SHARES, lambda a: -(SHARES * scipy.special.log_softmax(a, 1)).sum(1)),
}
MODULES = {
    "mse_loss": nn.MSELoss,
    "l1_loss": nn.L1Loss,
    "binary_cross_entropy": nn.BCELoss,
    "binary_cross_entropy_with_logits": nn.BCEWithLogitsLoss,
    "nll_loss": nn.NLLLoss,
    "cross_entropy": nn.CrossEntropyLoss,
    "cross_entropy_loss": nn.CrossEntropyLoss,
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name: str, reduction: str) -> None:
    values, target, reference = LOSSES[name]
    reduce = {"mean": np.mean, "sum": np.sum, "none": lambda a: a}[reduction]
    x = gt.tensor(values, requires_grad=True)
    loss = getattr(F, name)(x, gt.tensor(target), reduction=reduction)
    assert_close(loss, np.asarray(reduce(reference(values))))
    loss.sum().backward()
    wanted = numeric_gradient(lambda a: np.asarray(reduce(reference(a))), [values], 0)
    np.testing.assert_allclose(to_numpy(x.grad), wanted, rtol=1e-5, atol=1e-6)
    assert_close(MODULES[name](reduction=reduction)(gt.tensor(values), gt.tensor(target)), to_numpy(loss))


def test_losses_are_in_nn_too() -> None:
    assert nn.cross_entropy_loss is nn.cross_entropy is F.cross_entropy
    assert nn.mse_loss is F.mse_loss
    assert nn.binary_cross_entropy is F.binary_cross_entropy


def test_cross_entropy_of_more_axes_and_of_one_sample() -> None:
    scores = RNG.standard_normal((2, 3, 4, 5))
    classes = RNG.integers(0, 3, (2, 4, 5))
    logs = scipy.special.log_softmax(scores, 1)
    wanted = -np.take_along_axis(logs, classes[:, None], 1)[:, 0]
    assert_close(F.cross_entropy(gt.tensor(scores), gt.tensor(classes), reduction="none"), wanted)
    shares = scipy.special.softmax(RNG.standard_normal(scores.shape), 1)
    assert_close(F.cross_entropy(gt.tensor(scores), gt.tensor(shares)), np.mean(-(shares * logs).sum(1)))
    assert_close(F.cross_entropy(gt.tensor(SCORES[0]), gt.tensor(CLASSES[0])), _cross_entropy(SCORES)[0])


def test_cross_entropy_ignores_an_index_and_smooths_labels() -> None:
    counted = CLASSES != 1
    wanted = _cross_entropy(SCORES)[counted].mean()
    assert_close(F.cross_entropy(gt.tensor(SCORES), gt.tensor(CLASSES), ignore_index=1), np.asarray(wanted))
    marked = np.where(counted, CLASSES, -100)
    assert_close(F.cross_entropy(gt.tensor(SCORES), gt.tensor(marked), ignore_index=-100), np.asarray(wanted))
    spread = 0.9 * np.eye(4)[CLASSES] + 0.1 / 4
    smooth = -(spread * scipy.special.log_softmax(SCORES, 1)).sum(1).mean()
    assert_close(F.cross_entropy(gt.tensor(SCORES), gt.tensor(CLASSES), label_smoothing=0.1), np.asarray(smooth))


def test_cross_entropy_takes_any_integers_and_survives_large_scores() -> None:
    scores = gt.tensor([[1000.0, 0.0], [0.0, -1000.0]])
    assert F.cross_entropy(scores, gt.tensor([0, 0], dtype=gt.int32)).item() == 0
    assert F.cross_entropy(scores, gt.tensor([1, 1], dtype=gt.uint8)).item() == 1000
    assert F.cross_entropy(gt.tensor([[math.inf, 0.0]]), gt.tensor([0])).isnan().item()


def test_a_class_that_is_not_there_is_found_at_the_fetch() -> None:
    loss = F.cross_entropy(gt.tensor(SCORES), gt.tensor([0, 1, 2, 3, 4, 0]))
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 1 with size 4"):
        loss.item()
    assert F.cross_entropy(gt.tensor(SCORES), gt.tensor(CLASSES)).item() > 0


def test_certain_probabilities_cost_a_hundred_at_most() -> None:
    loss = F.binary_cross_entropy(gt.tensor([0.0, 1.0]), gt.tensor([1.0, 1.0]), reduction="none")
    assert loss.tolist() == [100, 0]


def test_losses_refuse_mismatched_operands() -> None:
    scores = gt.tensor(SCORES)
    with pytest.raises(ValueError, match=r"Expected input batch_size \(6\) to match target batch_size \(5\)"):
        F.cross_entropy(scores, gt.zeros(5, dtype=gt.int64))
    with pytest.raises(ValueError, match="class probabilities"):
        F.cross_entropy(scores, gt.zeros(6))
    with pytest.raises(RuntimeError, match=r"Expected target size \[6\], got \[6, 1\]"):
        F.cross_entropy(scores, gt.zeros(6, 1, dtype=gt.int64))
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.mse_loss(scores, scores, reduction="median")
    with pytest.raises(ValueError, match="different to the input size"):
        F.binary_cross_entropy(gt.rand(3), gt.rand(2))
    with pytest.warns(UserWarning, match="mse_loss: a target of size"):
        F.mse_loss(gt.ones(3, 1), gt.ones(3))


# Initial values --------------------------------------------------------------------------------------------------


def test_starting_values() -> None:
    gt.manual_seed(4)
    t = gt.empty(300, 200)
    assert nn.init.zeros_(t) is t
    assert t.sum().item() == 0
    assert nn.init.constant_(t, 2.5).amin().item() == 2.5
    assert nn.init.ones_(t).amax().item() == 1
    for fill, std in [
        (lambda: nn.init.uniform_(t, -2, 2), 2 / math.sqrt(3)),
        (lambda: nn.init.normal_(t, 0, 3), 3),
        (lambda: nn.init.xavier_uniform_(t), math.sqrt(2 / 500)),
        (lambda: nn.init.xavier_normal_(t), math.sqrt(2 / 500)),
        (lambda: nn.init.kaiming_uniform_(t), math.sqrt(2 / 200)),
        (lambda: nn.init.kaiming_normal_(t, nonlinearity="relu"), math.sqrt(2 / 200)),
        (lambda: nn.init.kaiming_normal_(t, mode="fan_out"), math.sqrt(2 / 300)),
    ]:
        values = to_numpy(fill())
        assert abs(values.std() / std - 1) < 0.03
        assert abs(values.mean()) < 6 * std / math.sqrt(values.size)
    p = nn.Parameter(gt.empty(2, 2))
    assert nn.init.ones_(p) is p  # It is still a trainable leaf.
    assert p.requires_grad
    with pytest.raises(ValueError, match="Fan in"):
        nn.init.xavier_uniform_(gt.empty(3))


# Import paths -----------------------------------------------------------------------------------------------------


def test_other_import_paths() -> None:
    from gt.client.nn import SGD, Linear, Module, mse_loss
    from gt.client.tensor import Tensor, from_numpy, ones, randn, zeros

    assert (Linear, Module, SGD, mse_loss) == (nn.Linear, nn.Module, gt.optim.SGD, F.mse_loss)
    assert (Tensor, from_numpy, ones, randn, zeros) == (gt.Tensor, gt.from_numpy, gt.ones, gt.randn, gt.zeros)
