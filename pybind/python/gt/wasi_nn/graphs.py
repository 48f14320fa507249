"""The graphs that a guest computes: a GPT-2, or any function of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import gt
from gt import Tensor
from gt.llm.model import GPT2, Cache

Function = Callable[..., Tensor | Sequence[Tensor]]
# The dtypes of outputs that have no type in WASI-NN, each with the one that the guest gets.
CONVERTED = {gt.bfloat16: gt.float32, gt.bool: gt.uint8}


class InputError(ValueError):
    """Inputs that do not fit a graph. A function that raises it gives the guest `INVALID_ARGUMENT`."""


class NextToken:
    """The execution of a GPT-2: what may follow a sequence of tokens.

    The one input is the whole sequence, int32 or int64, shape `(length,)` or `(1, length)`. The outputs are the logits
    of the token after it, float32, shape `(vocabulary,)`, and the number of tokens for which the model's context has
    room after the sequence, int32, shape `(1,)`. Keys and values are kept: a sequence that begins as the one before it
    costs its other tokens alone.

    Example:
        >>> import gt.wasi_nn
        >>> model = gt.llm.GPT2(gt.llm.Config(context=8, vocabulary=20, layers=1, heads=2, channels=16))
        >>> logits, room = gt.wasi_nn.NextToken(model)(np.array([3, 1, 4]))
        >>> logits.shape, room.tolist()
        ((20,), [5])
    """

    def __init__(self, model: GPT2) -> None:
        self.model = model
        self.cache = Cache(model.config, 1, model.wte.weight.dtype)
        self.seen: list[int] = []

    @gt.no_grad()
    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Computes the outputs of one input.

        Raises:
            InputError: The sequence is empty, is longer than the model's context, or has a token that is not in the
                model's vocabulary; or the inputs are no sequence of tokens.
        """
        c = self.model.config
        if len(inputs) != 1 or inputs[0].ndim == 0 or inputs[0].size != inputs[0].shape[-1]:
            shapes = [array.shape for array in inputs]
            raise InputError(f"a GPT-2 has one input of shape (length,) or (1, length), but the shapes are {shapes}")
        if inputs[0].dtype not in (np.int32, np.int64):
            raise InputError(f"tokens are int32 or int64, not {inputs[0].dtype}")
        tokens = inputs[0].reshape(-1).tolist()
        if not 0 < len(tokens) <= c.context:
            raise InputError(f"the sequence has {len(tokens)} tokens, but 1 to {c.context} fit the model's context")
        if min(tokens) < 0 or max(tokens) >= c.vocabulary:
            raise InputError(f"the tokens are to be 0 to {c.vocabulary - 1}")
        # The last token is computed in any case: its logits are the result.
        known = 0
        for one, other in zip(tokens[:-1], self.seen, strict=False):
            if one != other:
                break
            known += 1
        self.seen, self.cache.length = tokens[:known], known
        logits, _ = self.model(gt.tensor([tokens[known:]]), cache=self.cache)
        self.seen = tokens
        return [logits[0, -1].float().numpy(), np.array([c.context - len(tokens)], np.int32)]


def new_execution(graph: GPT2 | Function) -> Callable[..., list[np.ndarray]]:
    """Returns the function of arrays that one execution context of a guest calls."""
    if isinstance(graph, GPT2):
        return NextToken(graph)

    def execution(*inputs: np.ndarray) -> list[np.ndarray]:
        made = graph(*(gt.tensor(array) for array in inputs))
        outputs = [made] if isinstance(made, Tensor) else made
        return [t.detach().to(CONVERTED.get(t.dtype, t.dtype)).numpy() for t in outputs]

    return execution


def execution_bytes(graph: GPT2 | Function) -> int:
    """Returns the memory that an execution takes as long as it exists: the keys and values of a GPT-2."""
    if not isinstance(graph, GPT2):
        return 0
    c = graph.config
    return 2 * c.layers * c.context * c.channels * graph.wte.weight.element_size()
