"""Recurrent layers: `RNN`, `LSTM` and `GRU` over sequences, and their cells for single steps.

`gt.nn.recurrent_layers` computes them, from their weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.nn import init
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.nn.recurrent_layers import MODES, State, Weights, first_step, layers
from gt.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


def _empty_parameter(size: Sequence[int], device: Any, dtype: Any) -> Tensor:
    return Parameter(gt.empty(*size, device=device, dtype=dtype))


def _check_sizes(shape: Sequence[int], wanted: Sequence[int], what: str) -> None:
    if tuple(shape) != tuple(wanted):
        raise RuntimeError(f"Expected {what} size {tuple(wanted)}, got {list(shape)}")


class RNNBase(Module):
    """The base of `RNN`, `LSTM` and `GRU`, which choose the mode.

    Args:
        mode: `"RNN_TANH"`, `"RNN_RELU"`, `"LSTM"` or `"GRU"`.
        input_size: The features of an input element.
        hidden_size: The features of the hidden state.
        num_layers: The number of stacked layers.
        bias: Whether there are biases.
        batch_first: Whether tensors are `(N, L, features)` rather than `(L, N, features)`.
        dropout: The probability of dropout between layers.
        bidirectional: Whether each layer also runs backwards; the outputs are concatenated.
        proj_size: The size that an LSTM's hidden state is projected to; 0 for no projection (Sak et al. 2014).
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        if not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"dropout is between layers, and num_layers=1: dropout={dropout} has no effect.", stacklevel=3
            )
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows = MODES[mode][0] * hidden_size
        out = proj_size or hidden_size
        for layer in range(num_layers):
            columns = input_size if layer == 0 else out * (2 if bidirectional else 1)
            for end in self._suffixes(layer):
                sizes = {"weight_ih": (rows, columns), "weight_hh": (rows, out)}
                if bias:
                    sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    sizes["weight_hr"] = (proj_size, hidden_size)
                for name, size in sizes.items():
                    self.register_parameter(name + end, _empty_parameter(size, device, dtype))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        """The suffixes of the names of a layer's parameters, one for each direction."""
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        """Initializes all parameters uniformly within ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: parameters need not be contiguous in memory."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each direction of each layer."""
        return [self._own(end) for layer in range(self.num_layers) for end in self._suffixes(layer)]

    def _pytorch_state(self) -> dict[str, Any]:
        ends = [end for layer in range(self.num_layers) for end in self._suffixes(layer)]
        names = [[name for name in self._parameters if name.partition("_l")[2] == end[2:]] for end in ends]
        flat = [name for some in names for name in some]
        weights = [self._parameters[name] for name in flat]
        return {"_all_weights": names, "_flat_weights_names": flat, "_flat_weights": weights}

    def _own(self, end: str) -> list[Tensor]:
        return [p for name, p in self._parameters.items() if name.partition("_l")[2] == end[2:]]

    def _weights(self, end: str) -> Weights:
        biases = [getattr(self, name + end) for name in ("bias_ih", "bias_hh")] if self.bias else []
        ih, hh = (getattr(self, name + end) for name in ("weight_ih", "weight_hh"))
        return Weights(self.mode, ih, hh, biases, getattr(self, f"weight_hr{end}", None))

    def _state_count(self) -> int:
        """The number of tensors in a state: 2 for an LSTM."""
        return 2 if self.mode == "LSTM" else 1

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Runs the layers over a sequence.

        Args:
            input: `(L, N, input_size)`, `(N, L, input_size)` if `batch_first`, `(L, input_size)` without a batch, or a
                `PackedSequence`.
            hx: The initial state, `(D * num_layers, N, hidden_size)`, where `D` is 2 if `bidirectional` and otherwise
                1; zeros if not given. An `LSTM` takes the pair `(h_0, c_0)`.

        Returns:
            A pair. First, the last layer's hidden state at each step: `(L, N, D * hidden_size)`, `(N, L, …)` if
            `batch_first`, or a `PackedSequence`, as the input is. Second, each layer's final state, of the shape of
            `hx`.
        """
        packed = input if isinstance(input, PackedSequence) else None
        single = packed is None and input.ndim == 2
        if packed is not None:
            rows, running = packed.data, packed.batch_sizes.tolist()
            batch = running[0]
        else:
            if input.ndim not in (2, 3):
                raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
            x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
            length, batch = x.shape[:2]
            if length == 0:
                raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
            rows, running = x.reshape(length * batch, x.shape[2]), [batch] * length
        if rows.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {rows.shape[-1]}"
            )
        state = self._initial_state(hx, batch, rows.dtype, single, packed)
        weights = [[self._weights(end) for end in self._suffixes(layer)] for layer in range(self.num_layers)]
        rows, last = layers(rows, running, state, weights, self.dropout, self.training)
        if packed is not None:
            if packed.unsorted_indices is not None:
                last = tuple(s.index_select(1, packed.unsorted_indices) for s in last)
            output = packed._with(rows)
        else:
            output = rows.reshape(length, batch, rows.shape[-1])
            if single:
                output, last = output.squeeze(1), tuple(s.squeeze(1) for s in last)
            elif self.batch_first:
                output = output.transpose(0, 1)
        return output, last if self._state_count() == 2 else last[0]

    def _initial_state(self, hx: Any, batch: int, dtype: Any, single: bool, packed: PackedSequence | None) -> State:
        """The initial state, checked and in the order of the packed sequence."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size, self.hidden_size][: self._state_count()]
        if hx is None:
            return tuple(gt.zeros(count, batch, size, dtype=dtype) for size in sizes)
        given = tuple(hx) if self._state_count() == 2 else (hx,)
        if single:
            if any(s.ndim != 2 for s in given):
                raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {given[0].ndim}-D tensor")
            given = tuple(s.unsqueeze(1) for s in given)
        elif any(s.ndim != 3 for s in given):
            raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {given[0].ndim}-D tensor")
        names = ("hidden[0]", "hidden[1]") if self._state_count() == 2 else ("hidden",)
        for s, size, name in zip(given, sizes, names, strict=True):
            _check_sizes(s.shape, (count, batch, size), name)
        if packed is not None and packed.sorted_indices is not None:
            given = tuple(s.index_select(1, packed.sorted_indices) for s in given)
        return given

    def extra_repr(self) -> str:
        words = [str(self.input_size), str(self.hidden_size)]
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        usual["bidirectional"] = False
        words += [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join(words)


class RNN(RNNBase):
    """Elman recurrent network: `h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)`, in one or more layers.

    Args:
        input_size: The features of an input element.
        hidden_size: The features of the hidden state.
        num_layers: The number of stacked layers.
        nonlinearity: `"tanh"` or `"relu"`.
        bias: Whether there are biases.
        batch_first: Whether tensors are `(N, L, features)` rather than `(L, N, features)`.
        dropout: The probability of dropout between layers.
        bidirectional: Whether each layer also runs backwards; the outputs are concatenated.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> rnn = gt.nn.RNN(input_size=10, hidden_size=20, batch_first=True)
        >>> output, h_n = rnn(gt.ones(3, 5, 10))
        >>> output.shape, h_n.shape
        (gt.Size([3, 5, 20]), gt.Size([1, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        options = (num_layers, bias, batch_first, dropout, bidirectional)
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, *options, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), in one or more layers.

    At each step, for the input `x_t`, the hidden state `h_{t-1}` and the cell state `c_{t-1}`:

    - input gate `i = sigmoid(W_i x_t + U_i h_{t-1} + b_i)`, forget gate `f` and output gate `o` likewise;
    - candidate `g = tanh(W_g x_t + U_g h_{t-1} + b_g)`;
    - `c_t = f * c_{t-1} + i * g` and `h_t = o * tanh(c_t)`.

    Each further layer takes the `h_t` of the layer before as its input.

    Args:
        input_size: The features of an input element.
        hidden_size: The features of the hidden state.
        num_layers: The number of stacked layers.
        bias: Whether there are biases.
        batch_first: Whether inputs and outputs are `(N, L, features)` rather than `(L, N, features)`; states are not
            affected.
        dropout: The probability of dropout between layers, in training mode.
        bidirectional: Whether each layer also runs backwards in time; the outputs are concatenated.
        proj_size: The size that the hidden state is projected to; 0 for no projection (Sak et al. 2014).
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Attributes:
        weight_ih_l0: The matrices `W_i, W_f, W_g, W_o` of the first layer in this order, `(4 hidden_size, input_size)`.
        weight_hh_l0: The matrices `U`, `(4 hidden_size, hidden_size)`.
        bias_ih_l0: `(4 hidden_size)`. There are two biases, `bias_hh_l0` is the other; `b` is their sum.

    Shape:
        The call `lstm(input, (h_0, c_0))` returns `output, (h_n, c_n)`. `(h_0, c_0)` may be left out: zeros.

        - `input`: `(L, N, input_size)`, `(L, input_size)` without a batch, or a `PackedSequence`.
        - `output`: `(L, N, D hidden_size)`, the last layer's `h_t` at each step; `D` is 2 if `bidirectional`, else 1.
        - `h_0`, `h_n`, `c_0`, `c_n`: `(D num_layers, N, hidden_size)`, the states of each layer before the first step
          and after the last. With a projection, `h_0`, `h_n` and `output` have `proj_size` for `hidden_size`.

    Example:
        >>> lstm = gt.nn.LSTM(input_size=10, hidden_size=20, num_layers=2, batch_first=True)
        >>> output, (h_n, c_n) = lstm(gt.ones(3, 5, 10))
        >>> output.shape, h_n.shape, c_n.shape
        (gt.Size([3, 5, 20]), gt.Size([2, 3, 20]), gt.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014), in one or more layers.

    At each step, for the input `x_t` and the hidden state `h_{t-1}`:

    - reset gate `r = sigmoid(W_r x_t + U_r h_{t-1} + b_r)`, update gate `z` likewise;
    - candidate `n = tanh(W_n x_t + b_in + r * (U_n h_{t-1} + b_hn))`;
    - `h_t = (1 - z) * n + z * h_{t-1}`.

    Each further layer takes the `h_t` of the layer before as its input.

    Args:
        input_size: The features of an input element.
        hidden_size: The features of the hidden state.
        num_layers: The number of stacked layers.
        bias: Whether there are biases.
        batch_first: Whether inputs and outputs are `(N, L, features)` rather than `(L, N, features)`; states are not
            affected.
        dropout: The probability of dropout between layers, in training mode.
        bidirectional: Whether each layer also runs backwards in time; the outputs are concatenated.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Shape:
        The call `gru(input, h_0)` returns `output, h_n`. `h_0` may be left out: zeros.

        - `input`: `(L, N, input_size)`, `(L, input_size)` without a batch, or a `PackedSequence`.
        - `output`: `(L, N, D hidden_size)`, the last layer's `h_t` at each step; `D` is 2 if `bidirectional`, else 1.
        - `h_0`, `h_n`: `(D num_layers, N, hidden_size)`, the states of each layer before the first step and after the
          last.

    Example:
        >>> gru = gt.nn.GRU(input_size=10, hidden_size=20, batch_first=True)
        >>> output, h_n = gru(gt.ones(3, 5, 10))
        >>> output.shape, h_n.shape
        (gt.Size([3, 5, 20]), gt.Size([1, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """The base of the cells, which compute one time step.

    Args:
        input_size: The features of an input.
        hidden_size: The features of the hidden state.
        bias: Whether there are biases.
        num_chunks: The number of gates.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.
    """

    mode: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = _empty_parameter((rows, input_size), device, dtype)
        self.weight_hh = _empty_parameter((rows, hidden_size), device, dtype)
        self.register_parameter("bias_ih", _empty_parameter((rows,), device, dtype) if bias else None)
        self.register_parameter("bias_hh", _empty_parameter((rows,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes all parameters uniformly within ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _next(self, input: Tensor, state: State | None) -> State:
        if input.ndim not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        single = input.ndim == 1
        x = input.unsqueeze(0) if single else input
        if state is None:
            zeros = gt.zeros(x.shape[0], self.hidden_size, dtype=x.dtype)
            state = (zeros,) * (2 if self.mode == "LSTM" else 1)
        elif single:
            state = tuple(s.unsqueeze(0) for s in state)
        for s in state:
            _check_sizes(s.shape, (x.shape[0], self.hidden_size), "hidden")
        biases = [self.bias_ih, self.bias_hh] if self.bias else []
        found = first_step(x, state, Weights(self.mode, self.weight_ih, self.weight_hh, biases))
        return tuple(s.squeeze(0) for s in found) if single else found

    def extra_repr(self) -> str:
        words = f"{self.input_size}, {self.hidden_size}"
        return words if self.bias else f"{words}, bias=False"


class RNNCell(RNNCellBase):
    """One time step of an `RNN`: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.

    Args:
        input_size: The features of an input.
        hidden_size: The features of the hidden state.
        bias: Whether there are biases.
        nonlinearity: `"tanh"` or `"relu"`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> gt.nn.RNNCell(10, 20)(gt.ones(3, 10)).shape
        gt.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.mode = f"RNN_{nonlinearity.upper()}"
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state.

        Args:
            input: `(N, input_size)` or `(input_size)`.
            hx: The hidden state, `(N, hidden_size)` or `(hidden_size)`; zeros if not given.

        Returns:
            A tensor of the shape of `hx`.
        """
        return self._next(input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One time step of an `LSTM`.

    Args:
        input_size: The features of an input.
        hidden_size: The features of the hidden state.
        bias: Whether there are biases.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> h, c = gt.nn.LSTMCell(10, 20)(gt.ones(3, 10))
        >>> h.shape, c.shape
        (gt.Size([3, 20]), gt.Size([3, 20]))
    """

    mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next hidden state and cell state.

        Args:
            input: `(N, input_size)` or `(input_size)`.
            hx: The pair of hidden state and cell state; zeros if not given.

        Returns:
            The pair `(h', c')`.
        """
        h, c = self._next(input, None if hx is None else tuple(hx))
        return h, c


class GRUCell(RNNCellBase):
    """One time step of a `GRU`.

    Args:
        input_size: The features of an input.
        hidden_size: The features of the hidden state.
        bias: Whether there are biases.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> gt.nn.GRUCell(10, 20)(gt.ones(3, 10)).shape
        gt.Size([3, 20])
    """

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state: see `RNNCell.forward` for the arguments."""
        return self._next(input, None if hx is None else (hx,))[0]
