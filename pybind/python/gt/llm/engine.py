"""Continuous batching (Orca, Yu et al. 2022): requests join and leave a batch between two tokens."""

from __future__ import annotations

import contextlib
import queue
import threading
from dataclasses import dataclass, field

import numpy as np

import gt
from gt import Tensor
from gt.llm.model import GPT2, Cache
from gt.llm.sampling import quantile


@dataclass
class Request:
    """A prompt to go on from.

    Args:
        prompt: Tokens, one at least.
        count: The most tokens to make.
        temperature: What logits are divided by; 0 takes the most likely token.
        top_k: The number of most likely tokens to draw from; 0 for all.
        top_p: The least probability of the most likely tokens to draw from.
        seed: The seed of the draws.
        stop: A token that ends the text.

    Attributes:
        made: The tokens as they are made, then the reason of the end: `"stop"`, `"length"` or an exception.
        cancelled: Set it when nobody reads the tokens any more.
    """

    prompt: list[int]
    count: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: int | None = None
    made: queue.SimpleQueue[int | str | Exception] = field(default_factory=queue.SimpleQueue)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.left = self.count
        self.position = len(self.prompt)
        self.last = 0


def choose_each(logits: Tensor, requests: list[Request]) -> list[int]:
    """Returns a token for each row of logits, drawn as its request says. It does not depend on the other rows."""
    greedy = [not request.temperature for request in requests]
    if all(greedy):
        return logits.argmax(-1).tolist()

    def column(numbers: list[float]) -> Tensor:
        return gt.tensor(numbers)[:, None]

    limits = None
    if any((request.top_k or request.top_p < 1) and request.temperature for request in requests):
        top_ks = column([request.top_k or logits.shape[-1] for request in requests])
        limits = top_ks, column([float(request.top_p) for request in requests])
    temperatures = column([float(request.temperature or 1) for request in requests])
    draws = column([request.random.random() for request in requests])
    found = quantile(logits, temperatures, limits, draws)
    return gt.where(gt.tensor(greedy), logits.argmax(-1), found[:, 0]).tolist()


class Engine:
    """Makes the tokens of many requests, as many at a time as there are rows.

    Args:
        model: The model.
        rows: The most requests at a time; others wait.

    Example:
        >>> model = gt.llm.GPT2(gt.llm.Config(context=8, vocabulary=20, layers=1, heads=2, channels=16))
        >>> engine = gt.llm.Engine(model, rows=2)
        >>> request = engine.submit(gt.llm.Request([1, 2], count=3))
        >>> tokens = list(iter(request.made.get, "length"))
        >>> len(tokens)
        3
        >>> engine.close()
    """

    def __init__(self, model: GPT2, rows: int = 8) -> None:
        self.model, self.rows = model, rows
        self.cache = Cache(model.config, rows, model.wte.weight.dtype)
        self.waiting: queue.Queue[Request | None] = queue.Queue()
        self.active: dict[int, Request] = {}
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name="gt.llm.Engine", daemon=True)
        self.thread.start()

    def submit(self, request: Request) -> Request:
        """Adds a request.

        Raises:
            ValueError: The prompt is empty, has a token that the model does not have, or fills the context.
        """
        c = self.model.config
        if not 0 < len(request.prompt) < c.context:
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens, but the model's context of {c.context} has room for 1 "
                f"to {c.context - 1} before new ones: shorten it"
            )
        if min(request.prompt) < 0 or max(request.prompt) >= c.vocabulary:
            raise ValueError(f"the prompt's tokens are to be 0 to {c.vocabulary - 1}")
        self.waiting.put(request)
        return request

    def close(self) -> None:
        """Ends the engine; requests that are not done end with an error."""
        self.closing.set()
        # Wakes the thread up.
        self.waiting.put(None)
        self.thread.join()

    @gt.no_grad()
    def _run(self) -> None:
        while not self.closing.is_set():
            self._admit()
            self.active = {row: request for row, request in self.active.items() if not request.cancelled.is_set()}
            if not self.active:
                continue
            try:
                self._step()
            except Exception as error:
                self._fail(error)
        ended = RuntimeError("the server ends")
        self._fail(ended)
        with contextlib.suppress(queue.Empty):
            while True:
                if request := self.waiting.get(block=False):
                    request.made.put(ended)

    def _fail(self, error: Exception) -> None:
        for request in self.active.values():
            request.made.put(error)
        self.active.clear()

    def _admit(self) -> None:
        """Gives free rows to waiting requests; waits if there is nothing to do."""
        while len(self.active) < self.rows:
            try:
                request = self.waiting.get(block=not self.active)
            except queue.Empty:
                return
            if request is None:
                return
            if request.cancelled.is_set():
                continue
            row = min(set(range(self.rows)) - set(self.active))
            try:
                logits, _ = self.model(gt.tensor([request.prompt]), cache=self.cache.part(row, row + 1))
                self._give(row, request, choose_each(logits[:, -1], [request])[0])
            except Exception as error:
                self.active.pop(row, None)
                request.made.put(error)

    def _step(self) -> None:
        """Makes a token for each active request."""
        rows = range(max(self.active) + 1)
        found = [self.active.get(row) for row in rows]
        tokens = gt.tensor([[request.last if request else 0] for request in found])
        # Free rows compute something that is not used.
        positions = [request.position if request else 0 for request in found]
        part = self.cache.part(0, len(found))
        part.length, part.positions = max(positions), gt.tensor(positions)
        logits, _ = self.model(tokens, cache=part)
        for request in self.active.values():
            request.position += 1
        active = dict(self.active)
        chosen = choose_each(logits[:, -1][gt.tensor(list(active))], list(active.values()))
        for (row, request), token in zip(active.items(), chosen, strict=True):
            self._give(row, request, token)

    def _give(self, row: int, request: Request, token: int) -> None:
        """Passes a token on; the request leaves its row if that was the last."""
        ended = ""
        if token == request.stop:
            ended = "stop"
        else:
            request.made.put(token)
            request.last, request.left = token, request.left - 1
            if request.left <= 0 or request.position >= self.model.config.context:
                ended = "length"
        if ended:
            self.active.pop(row, None)
            request.made.put(ended)
        else:
            self.active[row] = request
