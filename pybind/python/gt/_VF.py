"""PyTorch's `torch._VF`: recurrent networks as functions of their weights, and all other functions by their names.

Modules are the usual way, `gt.nn.LSTM` and its siblings. Libraries that compute the weights themselves, as for dropout
of weights (Merity et al. 2017), call these.
"""  # noqa: N999

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.nn.recurrent_layers import Weights, first_step, layers

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell"]

_OPTIONS = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_OF_A_TENSOR = ("input", *_OPTIONS, "batch_first")
_OF_PACKED_SEQUENCES = ("data", "batch_sizes", *_OPTIONS)


def __getattr__(name: str) -> Any:
    return getattr(gt, name)


def _arguments(function: str, args: tuple[Any, ...], given: dict[str, Any], is_packed: bool) -> dict[str, Any]:
    names = _OF_PACKED_SEQUENCES if is_packed else _OF_A_TENSOR
    if len(args) > len(names):
        raise TypeError(f"{function}() takes {len(names)} positional arguments but {len(args)} were given")
    found = dict(zip(names, args, strict=False))
    for name, value in given.items():
        if name not in names:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
        if name in found:
            raise TypeError(f"{function}() got multiple values for argument '{name}'")
        found[name] = value
    for name in names:
        if name not in found:
            raise TypeError(f"{function}() missing required argument: '{name}'")
    return found


def _run(
    mode: str, states: int, args: tuple[Any, ...], given: dict[str, Any], projects: bool = False
) -> tuple[Tensor, ...]:
    """Runs all layers of a network, over a tensor or packed sequences, as the arguments say."""
    function = mode.lower()
    # PyTorch tells its two signatures apart by the place of the list of weights.
    is_packed = "batch_sizes" in given or (len(args) > 3 and not isinstance(args[3], bool | int))
    found = _arguments(function, args, given, is_packed)
    batch_first = not is_packed and found["batch_first"]
    if is_packed:
        rows, running = found["data"], found["batch_sizes"].tolist()
    else:
        x = found["input"].transpose(0, 1) if batch_first else found["input"]
        if x.ndim != 3:
            raise RuntimeError(f"{function}(): input must have 3 dimensions, got {x.ndim}")
        rows, running = x.reshape(-1, x.shape[-1]), [x.shape[1]] * x.shape[0]
    if not running:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    state = tuple(found["hx"]) if states == 2 else (found["hx"],)
    if len(state) != states:
        raise RuntimeError(f"{function}() expects {states} hidden states, got {len(state)}")
    params, directions = found["params"], 2 if found["bidirectional"] else 1
    count, has_biases = directions * found["num_layers"], bool(found["has_biases"])
    plain = 4 if has_biases else 2
    sizes = (plain, plain + 1) if projects else (plain,)
    each = len(params) // max(count, 1)
    if each not in sizes or each * count != len(params):
        wanted = " or ".join(str(size * count) for size in sizes)
        raise RuntimeError(f"{function}() expects {wanted} weights for {count} directions of layers, got {len(params)}")
    parts = [list(params[each * number : each * (number + 1)]) for number in range(count)]
    weights = [Weights(mode, own[0], own[1], own[2:plain], own[plain] if each > plain else None) for own in parts]
    by_layer = [weights[first : first + directions] for first in range(0, count, directions)]
    rows, last = layers(rows, running, state, by_layer, found["dropout"], found["train"])
    if not is_packed:
        rows = rows.reshape(len(running), running[0], rows.shape[-1])
        rows = rows.transpose(0, 1) if batch_first else rows
    return rows, *last


def _cell(
    mode: str,
    input: Tensor,
    state: tuple[Tensor, ...],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, ...]:
    given = b_hh if b_ih is None else b_ih
    # One of the two may be missing.
    biases = [] if given is None else [gt.zeros_like(given) if b is None else b for b in (b_ih, b_hh)]
    return first_step(input, state, Weights(mode, w_ih, w_hh, biases))


def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over sequences, from its weights.

    It takes PyTorch's two signatures: `(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)`, and `(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)` for the
    parts of a `PackedSequence`. `hx` is the pair of the initial hidden and cell states, and `params` the list of the
    weights of all directions of all layers: `w_ih`, `w_hh`, `b_ih`, `b_hh` and perhaps `w_hr`.

    Returns:
        The last layer's hidden state at each step, and the final hidden and cell states.

    Raises:
        RuntimeError: If there are too few or too many weights.

    Example:
        >>> layer = gt.nn.LSTM(3, 4)
        >>> zeros = gt.zeros(1, 2, 4)
        >>> output, h, c = gt.lstm(
        ...     gt.ones(5, 2, 3), (zeros, zeros), list(layer.parameters()), True, 1, 0.0, False, False, False
        ... )
        >>> output.shape
        gt.Size([5, 2, 4])
    """
    output, h, c = _run("LSTM", 2, args, kwargs, projects=True)
    return output, h, c


def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """A GRU over sequences, from its weights: see `lstm`. `hx` is one tensor.

    Returns:
        The last layer's hidden state at each step, and the final hidden state.
    """
    output, h = _run("GRU", 1, args, kwargs)
    return output, h


def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """An Elman network with tanh over sequences, from its weights: see `gru`."""
    output, h = _run("RNN_TANH", 1, args, kwargs)
    return output, h


def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """An Elman network with ReLU over sequences, from its weights: see `gru`."""
    output, h = _run("RNN_RELU", 1, args, kwargs)
    return output, h


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, from its weights.

    Args:
        input: `(N, input_size)`.
        hx: The hidden state and the cell state, each `(N, hidden_size)`.
        w_ih: `(4 * hidden_size, input_size)`.
        w_hh: `(4 * hidden_size, hidden_size)`.
        b_ih: `(4 * hidden_size)`, if there are biases.
        b_hh: The same.

    Returns:
        The next hidden state and cell state.

    Example:
        >>> cell, zeros = gt.nn.LSTMCell(3, 4), gt.zeros(2, 4)
        >>> h, c = gt.lstm_cell(gt.ones(2, 3), (zeros, zeros), *cell.parameters())
        >>> h.shape, c.shape
        (gt.Size([2, 4]), gt.Size([2, 4]))
    """
    if len(hx) != 2:
        raise RuntimeError(f"lstm_cell() expects 2 hidden states, got {len(hx)}")
    h, c = _cell("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a GRU, from its weights: see `lstm_cell`. Returns the next hidden state."""
    return _cell("GRU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of an Elman network with tanh, from its weights: see `gru_cell`."""
    return _cell("RNN_TANH", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of an Elman network with ReLU, from its weights: see `gru_cell`."""
    return _cell("RNN_RELU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
