"""Recurrent layers against their definition step by step, and packed sequences against each sequence alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn
from gt.nn.utils import rnn


def fill(module: nn.Module) -> nn.Module:
    """Fills the parameters with numbers that any framework can reproduce."""
    with gt.no_grad():
        for i, p in enumerate(module.parameters()):
            values = np.sin(np.arange(p.numel(), dtype=np.float64) + i) * 0.3
            p.copy_(gt.tensor(values.reshape(tuple(p.shape))))
    return module


def cosines(*shape: int) -> gt.Tensor:
    return gt.tensor(np.cos(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def one_layer(mode: str, module: nn.Module, x: np.ndarray) -> np.ndarray:
    """Computes one layer in one direction by its definition."""
    w = {name: p.detach().numpy() for name, p in module.named_parameters()}
    size = module.hidden_size
    h, c, outputs = np.zeros((x.shape[1], size)), np.zeros((x.shape[1], size)), []
    for row in x:
        a, b = row @ w["weight_ih_l0"].T + w["bias_ih_l0"], h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        if mode == "RNN":
            h = np.tanh(a + b)
        elif mode == "LSTM":
            i, f, g, o = np.split(a + b, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (ra, za, na), (rb, zb, nb) = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
            z = sigmoid(za + zb)
            h = (1 - z) * np.tanh(na + sigmoid(ra + rb) * nb) + z * h
        outputs.append(h)
    return np.stack(outputs)


MODES = ("RNN", "LSTM", "GRU")


@pytest.mark.parametrize("mode", MODES)
def test_a_layer_is_what_its_definition_says(mode: str) -> None:
    module = fill(getattr(nn, mode)(4, 3, dtype=gt.float64))
    x = cosines(5, 2, 4)
    output, state = module(x)
    wanted = one_layer(mode, module, x.numpy())
    assert_close(output, wanted)
    assert_close((state[0] if mode == "LSTM" else state)[0], wanted[-1])


# The first six elements of PyTorch 2.15's results.
OF_PYTORCH = {
    "LSTM": [
        -0.08481057796312,
        -0.11443281123744,
        -0.04872091677397,
        0.17267512107431,
        0.10986952421284,
        -0.09706582706544,
    ],
    "GRU": [
        -0.06495794316267,
        -0.11556680641423,
        -0.05402732762706,
        0.41088635582592,
        0.25707834769095,
        -0.05956185969581,
    ],
    "RNN": [
        -0.45980648755323,
        -0.51590588614317,
        -0.20875178302536,
        0.32341471248218,
        -0.01693866087500,
        -0.41784816521849,
    ],
}


@pytest.mark.parametrize("mode", MODES)
def test_layers_and_directions_are_pytorch_s(mode: str) -> None:
    module = fill(getattr(nn, mode)(4, 3, 2, bidirectional=True, dtype=gt.float64))
    output, _ = module(cosines(3, 2, 4))
    assert_close(output.flatten()[:6], OF_PYTORCH[mode])


@pytest.mark.parametrize("mode", MODES)
def test_gradients_flow_through_all_steps(mode: str) -> None:
    module = fill(getattr(nn, mode)(2, 2, 2, bidirectional=True, dtype=gt.float64))
    x = cosines(3, 1, 2).requires_grad_()
    assert gt.autograd.gradcheck(lambda t: module(t)[0], x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_a_packed_sequence_is_each_sequence_alone(mode: str, options: dict[str, Any]) -> None:
    module = fill(getattr(nn, mode)(4, 3, **options, dtype=gt.float64))
    parts = [cosines(length, 4) + length for length in (2, 5, 3)]
    output, state = module(rnn.pack_sequence(parts, enforce_sorted=False))
    for i, (part, found) in enumerate(zip(parts, rnn.unpack_sequence(output), strict=True)):
        wanted, last = module(part)
        assert_close(found, wanted.detach().numpy())
        pair = (state, last) if mode != "LSTM" else (state[1], last[1])
        assert_close(pair[0][:, i], pair[1].detach().numpy())


@pytest.mark.parametrize("mode", MODES)
def test_a_cell_is_one_step(mode: str) -> None:
    module = fill(getattr(nn, mode)(4, 3, dtype=gt.float64))
    cell = getattr(nn, f"{mode}Cell")(4, 3, dtype=gt.float64)
    cell.load_state_dict({name.removesuffix("_l0"): p for name, p in module.state_dict().items()})
    x = cosines(2, 2, 4)
    output, _ = module(x)
    first = cell(x[0])
    second = cell(x[1], first)
    assert_close(second[0] if mode == "LSTM" else second, output[1].detach().numpy())
    assert (cell(x[0, 0])[0] if mode == "LSTM" else cell(x[0, 0])).shape == (3,)


def test_the_batch_may_come_first_and_the_state_be_given() -> None:
    module = fill(nn.LSTM(4, 3, batch_first=True, proj_size=2, dtype=gt.float64))
    x = cosines(2, 6, 4)
    whole, _ = module(x)
    first, state = module(x[:, :4])
    second, _ = module(x[:, 4:], state)
    assert_close(gt.cat([first, second], 1), whole.detach().numpy())
    assert (state[0].shape, state[1].shape) == ((1, 2, 2), (1, 2, 3))


def test_dropout_lies_between_layers_and_in_training_alone() -> None:
    module = nn.GRU(4, 3, 2, dropout=1.0)
    x = gt.ones(2, 1, 4)
    assert module(x)[0].tolist() != module.eval()(x)[0].tolist()


def test_invalid_operands_are_refused() -> None:
    module = nn.LSTM(4, 3)
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expected 4, got 5"):
        module(gt.ones(2, 1, 5))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 1, 3\), got \[2, 1, 3\]"):
        module(gt.ones(2, 1, 4), (gt.ones(2, 1, 3), gt.ones(2, 1, 3)))
    with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM"):
        nn.RNNBase("GRU", 4, 3, proj_size=2)
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order when `enforce_sorted` is True"):
        rnn.pack_padded_sequence(gt.ones(3, 2, 1), [1, 3])


def test_padding_and_back() -> None:
    parts = [gt.tensor([1, 2]), gt.tensor([3])]
    assert rnn.pad_sequence(parts, batch_first=True, padding_value=-1).tolist() == [[1, 2], [3, -1]]
    assert rnn.pad_sequence(parts, batch_first=True, padding_side="left").tolist() == [[1, 2], [0, 3]]
    packed = rnn.pack_sequence(parts)
    assert (packed.data.tolist(), packed.batch_sizes.tolist()) == ([1, 3, 2], [2, 1])
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, total_length=3)
    assert (padded.tolist(), lengths.tolist()) == ([[1, 2, 0], [3, 0, 0]], [2, 1])
    assert [t.tolist() for t in rnn.unpad_sequence(padded, lengths, batch_first=True)] == [[1, 2], [3]]


def test_their_repr_is_pytorch_s() -> None:
    assert repr(nn.LSTM(3, 4, 2, bidirectional=True)) == "LSTM(3, 4, num_layers=2, bidirectional=True)"
    assert repr(nn.GRUCell(2, 3)) == "GRUCell(2, 3)"


def stepped(layer: nn.LSTM, cell: nn.LSTMCell, x: gt.Tensor, state: tuple[gt.Tensor, gt.Tensor]) -> Any:
    """The layer's hidden states and last cell state, by the cell one step at a time."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = {name: getattr(layer, f"{name}_l0") for name in names}
    outputs = []
    for row in x:
        state = gt.func.functional_call(cell, weights, (row, state))
        outputs.append(state[0])
    return gt.stack(outputs), state[1]


@pytest.mark.parametrize("wanted", ["outputs", "cell", "both"])
def test_the_gradients_of_an_lstm_are_those_of_its_cell_step_by_step(wanted: str) -> None:
    layer, cell = fill(nn.LSTM(3, 4, dtype=gt.float64)), nn.LSTMCell(3, 4, dtype=gt.float64)
    x = cosines(5, 2, 3).requires_grad_()
    h, c = (cosines(2, 4).add(i).requires_grad_() for i in (1, 2))
    leaves = [x, h, c, *layer.parameters()]

    def gradients(outputs: gt.Tensor, last: gt.Tensor) -> list[gt.Tensor]:
        parts = {"outputs": (outputs**2).sum(), "cell": (last**3).sum()}
        loss = sum(part for name, part in parts.items() if wanted in (name, "both"))
        first = gt.autograd.grad(loss, leaves, create_graph=True)
        return [*first, *gt.autograd.grad(sum((grad**2).sum() for grad in first), leaves)]

    output, (_, last) = layer(x, (h[None], c[None]))
    found, expected = gradients(output, last[0]), gradients(*stepped(layer, cell, x, (h, c)))
    assert all(grad.abs().max() > 0 for grad in expected)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b.detach().numpy())


def test_an_lstm_layer_names_operands_that_do_not_fit() -> None:
    from gt._functions._recurrent import lstm_layer

    gates, weight, state = gt.zeros(5, 2, 16), gt.zeros(16, 4), gt.zeros(2, 4)
    assert [tuple(t.shape) for t in lstm_layer(gates, weight, state, state)] == [(5, 2, 4)] * 2
    for operands in (
        (gates[0], weight, state, state),
        (gates, weight[:8], state, state),
        (gates, weight, state, gates[0]),
    ):
        with pytest.raises(RuntimeError, match=r"expected gates \(L, N, 4 H\), weight \(4 H, H\) and states \(N, H\)"):
            lstm_layer(*operands)


def test_an_lstm_of_an_empty_batch_and_under_mixed_precision() -> None:
    layer = fill(nn.LSTM(3, 4))
    output, (h, c) = layer(gt.zeros(5, 0, 3))
    output.sum().backward()
    assert (output.shape, h.shape, c.shape) == ((5, 0, 4), (1, 0, 4), (1, 0, 4))
    assert all((p.grad == 0).all() for p in layer.parameters())
    x = cosines(5, 2, 3).float()
    wanted, cell = layer(x)[0], nn.LSTMCell(3, 4)
    with gt.autocast("cpu", dtype=gt.bfloat16):
        found, _ = layer(x)
        found.sum().backward()
        state = cell(x[0], (gt.zeros(2, 4), gt.zeros(2, 4)))
    assert_close(found.float(), wanted.detach().numpy(), tolerance=0.02)
    # As in PyTorch: the layer computes as its products do, and the cell promotes their sums to its state's dtype.
    assert (found.dtype, *(t.dtype for t in state)) == (gt.bfloat16, gt.float32, gt.float32)
    assert all(p.grad.dtype == gt.float32 for p in layer.parameters())


@gt.no_grad()
@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}]
)
def test_the_functions_are_the_layers_from_their_weights(mode: str, options: dict[str, Any]) -> None:
    layer = fill(getattr(nn, mode)(3, 4, dtype=gt.float64, **options))
    function = getattr(gt, "rnn_tanh" if mode == "RNN" else mode.lower())
    state = cosines(layer.num_layers * (2 if layer.bidirectional else 1), 2, 4)
    hx = (state, state * 2) if mode == "LSTM" else state
    x = cosines(2, 5, 3) if layer.batch_first else cosines(5, 2, 3)
    given = (list(layer.parameters()), layer.bias, layer.num_layers, 0.0, False, layer.bidirectional)
    expected, last = layer(x, hx)
    output, *states = function(x, hx, *given, layer.batch_first)
    assert_close(output, expected)
    for found, wanted in zip(states, last if mode == "LSTM" else [last], strict=True):
        assert_close(found, wanted)
    packed = rnn.pack_padded_sequence(x, [5, 3] if not layer.batch_first else [5, 2], batch_first=layer.batch_first)
    output, *states = function(packed.data, packed.batch_sizes, hx, *given)
    expected, last = layer(packed, hx)
    assert_close(output, expected.data)
    assert_close(states[0], last[0] if mode == "LSTM" else last)


@gt.no_grad()
def test_the_function_of_an_lstm_projects_its_state() -> None:
    layer = fill(nn.LSTM(3, 4, proj_size=2, dtype=gt.float64))
    x, hx = cosines(5, 2, 3), (cosines(1, 2, 2), cosines(1, 2, 4))
    expected, (h, c) = layer(x, hx)
    found = gt.lstm(x, hx, list(layer.parameters()), True, 1, 0.0, train=False, bidirectional=False, batch_first=False)
    for one, other in zip(found, (expected, h, c), strict=True):
        assert_close(one, other)


@gt.no_grad()
@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_the_functions_of_a_cell_are_the_cells(mode: str) -> None:
    cell = fill(getattr(nn, mode + "Cell")(3, 4, dtype=gt.float64))
    x, h = cosines(2, 3), cosines(2, 4)
    hx = (h, h * 2) if mode == "LSTM" else h
    function = getattr(gt, "rnn_tanh_cell" if mode == "RNN" else mode.lower() + "_cell")
    found, expected = function(x, hx, *cell.parameters()), cell(x, hx)
    for one, other in zip(*((found, expected) if mode == "LSTM" else ([found], [expected])), strict=True):
        assert_close(one, other)


@gt.no_grad()
@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_the_function_of_a_cell_takes_either_bias_alone(mode: str) -> None:
    cell = fill(getattr(nn, mode + "Cell")(3, 4, dtype=gt.float64))
    x, h = cosines(2, 3), cosines(2, 4)
    hx = (h, h * 2) if mode == "LSTM" else h
    function = getattr(gt, "rnn_tanh_cell" if mode == "RNN" else mode.lower() + "_cell")
    kept = {name: p.clone() for name, p in cell.named_parameters()}
    w_ih, w_hh, *biases = kept.values()
    for missing in (0, 1):
        cell.load_state_dict(kept)
        [cell.bias_ih, cell.bias_hh][missing].zero_()
        found = function(x, hx, w_ih, w_hh, *(None if i == missing else b for i, b in enumerate(biases)))
        expected = cell(x, hx)
        for one, other in zip(*((found, expected) if mode == "LSTM" else ([found], [expected])), strict=True):
            assert_close(one, other)


def test_the_functions_name_what_is_wrong() -> None:
    x, h = gt.ones(5, 2, 3), gt.zeros(1, 2, 4)
    weights = list(nn.GRU(3, 4).parameters())
    options = (True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match=r"gru\(\) expects 4 weights for 1 directions of layers, got 3"):
        gt.gru(x, h, weights[:3], *options)
    with pytest.raises(RuntimeError, match="input must have 3 dimensions, got 2"):
        gt.gru(x[0], h, weights, *options)
    with pytest.raises(TypeError, match="missing required argument: 'batch_first'"):
        gt.gru(x, h, weights, *options[:-1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'first'"):
        gt.gru(x, h, weights, *options, first=True)
    with pytest.raises(TypeError, match="multiple values for argument 'hx'"):
        gt.gru(x, h, weights, *options, hx=h)
    with pytest.raises(TypeError, match="takes 9 positional arguments but 10 were given"):
        gt.gru(x, h, weights, *options, 1)
    with pytest.raises(RuntimeError, match=r"lstm_cell\(\) expects 2 hidden states, got 1"):
        gt.lstm_cell(x[0], [h[0]], *nn.LSTMCell(3, 4).parameters())


def test_pytorch_s_module_of_them_has_all_functions() -> None:
    from gt import _VF

    assert _VF.lstm is gt.lstm
    assert _VF.cat is gt.cat
    with pytest.raises(AttributeError):
        _VF.no_such_function  # noqa: B018
