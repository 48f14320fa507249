"""Text from a model, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gt
from gt import Tensor
from gt.llm.model import GPT2, Cache


def choose(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Returns a token drawn for each row of logits, shape `(batch, 1)`.

    Args:
        logits: Shape `(batch, vocabulary)`.
        temperature: What logits are divided by; 0 takes the most likely token.
        top_k: The number of most likely tokens to draw from.
        top_p: The least probability of the most likely tokens to draw from (Holtzman et al. 2020).

    Raises:
        ValueError: A temperature below 0, `top_k` below 1, `top_p` outside (0, 1].
    """
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError(f"temperature {temperature} ≥ 0, top_k {top_k} ≥ 1 and 0 < top_p {top_p} ≤ 1 are needed")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    restricted = top_k is not None or top_p is not None
    limits = (top_k or logits.shape[-1], top_p or 1.0) if restricted else None
    return quantile(logits, temperature, limits, gt.rand(len(logits), 1))


def quantile(
    logits: Tensor, temperature: Tensor | float, limits: tuple[Tensor | int, Tensor | float] | None, draws: Tensor
) -> Tensor:
    """Returns the token of each row at which the cumulative probability exceeds a uniform number.

    Args:
        logits: Shape `(batch, vocabulary)`.
        temperature: What logits are divided by, above 0; a number, or one for each row, shape `(batch, 1)`.
        limits: `top_k` and `top_p`, each like `temperature`; None if all tokens may be drawn.
        draws: Numbers from 0 to 1, shape `(batch, 1)`.
    """
    probabilities, order = (logits.float() / temperature).softmax(-1), None
    if limits:
        top_k, top_p = limits
        probabilities, order = probabilities.sort(-1, descending=True)
        # Those before a token may already have the probability.
        likely = probabilities.cumsum(-1) - probabilities < top_p
        probabilities = probabilities * (likely & (gt.arange(logits.shape[-1]) < top_k))
    sums = probabilities.cumsum(-1)
    found = (sums <= draws * sums[:, -1:]).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    return found if order is None else order.gather(-1, found)


@gt.no_grad()
def generate(
    model: GPT2,
    tokens: Sequence[int],
    count: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | None = None,
) -> Iterator[int]:
    """Yields up to `count` tokens that follow `tokens`, as far as the model's context goes.

    Args:
        model: The model.
        tokens: The prompt, of one token at least.
        count: The most tokens.
        temperature: As for `choose`.
        top_k: As for `choose`.
        top_p: As for `choose`.
        stop: A token that ends the text; it is not yielded.

    Raises:
        ValueError: The prompt is empty or longer than the model's context.

    Example:
        >>> model = gt.llm.GPT2(gt.llm.Config(context=8, vocabulary=20, layers=1, heads=2, channels=16))
        >>> len(list(gt.llm.generate(model, [1, 2], 4)))
        4
    """
    context = model.config.context
    if not 0 < len(tokens) <= context:
        raise ValueError(f"the prompt has {len(tokens)} tokens, but 1 to {context} fit the model's context: shorten it")
    cache = Cache(model.config, 1, model.wte.weight.dtype)
    logits, _ = model(gt.tensor([list(tokens)]), cache=cache)
    for _ in range(count):
        token = choose(logits[:, -1], temperature, top_k, top_p)
        number = int(token)
        if number == stop:
            return
        yield number
        if cache.length == context:
            return
        logits, _ = model(token, cache=cache)
