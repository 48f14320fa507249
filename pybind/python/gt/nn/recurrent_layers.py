"""The steps and layers of recurrent networks, from their weights: what the modules and PyTorch's functions share.

The input's contribution is computed for all time steps at once; a step is then one matrix product with the state and a
few elementwise operations. Start at the steps, `_lstm` and its siblings, then `_direction`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._functions._recurrent import lstm_cell, lstm_layer
from gt._gt import Tensor

State = tuple[Tensor, ...]


class Weights:
    """The weights of one direction of one layer, prepared once for all time steps.

    Args:
        mode: One of PyTorch's modes, as `"LSTM"`.
        ih: The weights of the input, `(gates * hidden_size, input_size)`.
        hh: Those of the hidden state, `(gates * hidden_size, hidden_size)`.
        biases: The biases of both, or none.
        hr: The projection of an LSTM's hidden state, if there is one.
    """

    def __init__(self, mode: str, ih: Tensor, hh: Tensor, biases: Sequence[Tensor], hr: Tensor | None = None) -> None:
        gates, self.step = MODES[mode]
        self.ih, self.weight_hh, self.hh, self.hr = ih, hh, hh.T, None if hr is None else hr.T
        self.bias: Tensor | None = None
        self.new_bias: Tensor | None = None
        if biases:
            self.bias = biases[0] + biases[1]
            if gates == 3:  # a GRU's reset gate also multiplies the bias of the state's part of the candidate
                size = hh.shape[0] // 3
                self.new_bias = biases[1][2 * size :]
                self.bias = gt.cat([self.bias[: 2 * size], biases[0][2 * size :]])


Step = Callable[[Tensor, State, Weights], State]


def _tanh(x: Tensor, state: State, w: Weights) -> State:
    return ((x + state[0] @ w.hh).tanh(),)


def _relu(x: Tensor, state: State, w: Weights) -> State:
    return ((x + state[0] @ w.hh).relu(),)


def _lstm(x: Tensor, state: State, w: Weights) -> State:
    h, c = state
    h, c = lstm_cell(x + h @ w.hh, c)
    return (h if w.hr is None else h @ w.hr), c


def _gru(x: Tensor, state: State, w: Weights) -> State:
    (h,) = state
    size = h.shape[-1]
    inner = h @ w.hh
    # PyTorch's order of the gates: reset, update, new.
    opened = (x.narrow(-1, 0, 2 * size) + inner.narrow(-1, 0, 2 * size)).sigmoid()
    kept = inner.narrow(-1, 2 * size, size)
    if w.new_bias is not None:
        kept = kept + w.new_bias
    new = gt.addcmul(x.narrow(-1, 2 * size, size), opened.narrow(-1, 0, size), kept).tanh()
    return (gt.addcmul(new, opened.narrow(-1, size, size), h - new),)


# The number of gates and the step function of each of PyTorch's modes.
MODES: dict[str, tuple[int, Step]] = {
    "RNN_TANH": (1, _tanh),
    "RNN_RELU": (1, _relu),
    "LSTM": (4, _lstm),
    "GRU": (3, _gru),
}


def first_step(input: Tensor, state: State, w: Weights) -> State:
    """The state after one step, of a cell."""
    return w.step(functional.linear(input, w.ih, w.bias), state, w)


def _direction(x: Tensor, running: list[int], state: State, w: Weights, backwards: bool) -> tuple[Tensor, State]:
    """All time steps of one direction; `x` holds the rows of the sequences still running at each step, in order."""
    x = functional.linear(x, w.ih, w.bias)
    constant = running[0] == running[-1]
    if w.step is _lstm and w.hr is None and constant:
        gates = x.unflatten(0, (len(running), running[0]))
        output, cells = lstm_layer(gates.flip(0) if backwards else gates, w.weight_hh, *state)
        return (output.flip(0) if backwards else output).flatten(0, 1), (output[-1], cells[-1])
    starts = [0]
    for count in running:
        starts.append(starts[-1] + count)
    whole, ended, outputs = state, [], []
    if backwards:
        state = tuple(s[: running[-1]] for s in state) if not constant else state
    for t in range(len(running) - 1, -1, -1) if backwards else range(len(running)):
        count, now = running[t], state[0].shape[0]
        if count > now:  # backwards: shorter sequences begin at this step
            state = tuple(gt.cat([s, first[now:count]]) for s, first in zip(state, whole, strict=True))
        elif count < now:  # forwards: the shortest sequences ended before this step
            ended.append(tuple(s[count:] for s in state))
            state = tuple(s[:count] for s in state)
        state = w.step(x.narrow(0, starts[t], count), state, w)
        outputs.append(state[0])
    if ended:
        state = tuple(gt.cat(parts) for parts in zip(*[state, *reversed(ended)], strict=True))
    return gt.cat(outputs[::-1] if backwards else outputs), state


def layers(
    rows: Tensor, running: list[int], state: State, weights: Sequence[Sequence[Weights]], dropout: float, training: bool
) -> tuple[Tensor, State]:
    """Runs all layers over all sequences.

    Args:
        rows: The elements of the sequences still running at each step, step after step: `(rows, input_size)`.
        running: The number of these sequences at each step, which does not grow.
        state: The initial state: each tensor `(directions of all layers, sequences, size)`.
        weights: Those of each layer, of its one or two directions.
        dropout: The probability of dropout between layers.
        training: Whether there is dropout.

    Returns:
        The rows of the last layer, and the final state.
    """
    finals: list[State] = []
    for number, directions in enumerate(weights):
        if number and dropout:
            rows = functional.dropout(rows, dropout, training)
        outputs = []
        for direction, w in enumerate(directions):
            own = tuple(s[len(finals)] for s in state)
            output, final = _direction(rows, running, own, w, direction == 1)
            outputs.append(output)
            finals.append(final)
        rows = outputs[0] if len(outputs) == 1 else gt.cat(outputs, -1)
    return rows, tuple(gt.stack(parts) for parts in zip(*finals, strict=True))
