"""The random numbers of PyTorch on a CPU and of llm.c: MT19937, the Mersenne Twister (Matsumoto, Nishimura 1998)."""

from __future__ import annotations

import numpy as np

STATE_WORDS = 624


class Mersenne:
    """The generator of `torch.manual_seed(seed)`.

    Example:
        >>> gt.llm.Mersenne(42).integers(2).tolist()
        [1608637542, 3421126067]
    """

    def __init__(self, seed: int) -> None:
        self.words = np.random.RandomState(seed)

    @property
    def state(self) -> tuple[np.ndarray, int]:
        """The 624 words of the state as uint32, and the index of the next one."""
        _, words, index, *_ = self.words.get_state(legacy=True)
        return words.astype(np.uint32), int(index)

    @state.setter
    def state(self, state: tuple[np.ndarray, int]) -> None:
        words, index = state
        self.words.set_state(("MT19937", words.astype(np.uint32), int(index)))

    def integers(self, count: int) -> np.ndarray:
        """Returns 32 random bits, `count` times, as uint64."""
        return np.frombuffer(self.words.bytes(4 * count), "<u4").astype(np.uint64)

    def permuted(self, items: np.ndarray) -> np.ndarray:
        """Returns the items in a random order (Fisher, Yates 1938)."""
        order = items.copy()
        draws = self.integers(max(len(order) - 1, 0))
        for at, draw in zip(range(len(order) - 1, 0, -1), draws, strict=True):
            other = int(draw) % (at + 1)
            order[at], order[other] = order[other], order[at]
        return order

    def normal(self, count: int, deviation: float) -> np.ndarray:
        """Returns the numbers of `torch.empty(count).normal_(0, deviation)`, by the method of Box and Muller (1958).

        Raises:
            ValueError: There are fewer than 16 numbers, for which PyTorch has another method.
        """
        if count < 16:
            raise ValueError(f"16 numbers at least are drawn at a time, not {count}")
        uniform = self._uniform(count)
        whole = count // 16 * 16
        blocks = [uniform[:whole].reshape(-1, 2, 8)]
        if whole < count:
            # PyTorch draws the last 16 again.
            blocks.append(self._uniform(16).reshape(1, 2, 8))
        drawn = np.concatenate(blocks)
        radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - drawn[:, 0]))
        angle = np.float32(2 * np.pi) * drawn[:, 1]
        made = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1) * np.float32(deviation)
        return made if whole == count else np.concatenate([made[: count - 16], made[-16:]])

    def _uniform(self, count: int) -> np.ndarray:
        bits = (self.integers(count) & np.uint64((1 << 24) - 1)).astype(np.float32)
        return bits * np.float32(2.0**-24)
