"""`ctc_loss` (Graves et al. 2006) sums the probabilities of all alignments of labels and time steps."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn
from gt.nn import functional as F  # noqa: N812

RNG = np.random.default_rng(3)


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    """Returns the labels of a path: repetitions are merged, then blanks removed."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def loss_of(probabilities: np.ndarray, labels: list[int], blank: int) -> float:
    """Returns the negative log-probability of all paths with these labels, by enumeration."""
    moments, classes = probabilities.shape
    paths = itertools.product(range(classes), repeat=moments)
    total = sum(
        math.prod(probabilities[t, c] for t, c in enumerate(path)) for path in paths if collapsed(path, blank) == labels
    )
    return -math.log(total) if total else math.inf


CASES = [
    (5, [[1, 2], [2, 2]], [5, 5], 0),
    (5, [[1, 1, 1], [2, 1, 2]], [5, 4], 0),
    (4, [[0, 1], [1]], [4, 2], 2),
    (4, [[], [0, 2]], [3, 4], 1),
    (4, [[1], []], [0, 0], 0),
]


@pytest.mark.parametrize(("moments", "labels", "lengths", "blank"), CASES)
@pytest.mark.parametrize("joined", [False, True])
def test_it_is_the_probability_of_all_paths(
    moments: int, labels: list[list[int]], lengths: list[int], blank: int, joined: bool
) -> None:
    scores = gt.tensor(RNG.standard_normal((moments, 2, 3)))
    longest = max(map(len, labels))
    # The padding behind a sample's labels is ignored.
    rows = [label + [-7] * (longest - len(label)) for label in labels]
    targets = gt.tensor(list(itertools.chain(*labels)) if joined else rows, dtype=gt.int64)
    sizes = [len(label) for label in labels]
    log_probs = scores.log_softmax(2)
    losses = F.ctc_loss(log_probs, targets, lengths, sizes, blank, "none")
    probabilities = log_probs.exp().numpy()
    want = [loss_of(probabilities[:n, i], labels[i], blank) for i, n in enumerate(lengths)]
    assert_close(losses, want, "float64", 1e-12)
    mean = F.ctc_loss(log_probs, targets, gt.tensor(lengths), gt.tensor(sizes), blank)
    assert_close(mean, np.mean([w / max(size, 1) for w, size in zip(want, sizes, strict=True)]), "float64", 1e-12)


def test_its_gradient_is_that_of_the_scores() -> None:
    scores = gt.tensor(RNG.standard_normal((6, 3, 4)), requires_grad=True)
    targets, moments, sizes = gt.tensor([[1, 2, 2], [3, 1, 0], [2, 0, 0]]), [6, 5, 3], [3, 2, 1]
    weights = gt.tensor([1.0, -2.0, 0.5], dtype=gt.float64)

    def loss(scores: gt.Tensor) -> gt.Tensor:
        return (F.ctc_loss(scores.log_softmax(2), targets, moments, sizes, reduction="none") * weights).sum()

    assert gt.autograd.gradcheck(loss, (scores,))


def test_numbers_of_pytorch() -> None:
    log_probs = gt.arange(24.0).reshape(4, 2, 3).sin().log_softmax(2).requires_grad_()
    loss = nn.CTCLoss(blank=1)(log_probs, gt.tensor([[0, 2], [2, 2]]), gt.tensor([4, 3]), gt.tensor([2, 2]))
    loss.backward()
    assert_close(loss, 1.74379373, "float32", 1e-6)
    assert_close(log_probs.grad.abs().sum((1, 2)), [0.65634096, 0.49744546, 0.50087976, 0.06524307], "float32", 1e-6)


def test_labels_without_room_are_infinite_or_nothing() -> None:
    log_probs = gt.zeros(2, 2, 3).log_softmax(2).requires_grad_()
    arguments = (gt.tensor([[1, 1], [1, 2]]), [2, 2], [2, 2])
    assert F.ctc_loss(log_probs, *arguments, reduction="none").tolist()[0] == math.inf
    losses = F.ctc_loss(log_probs, *arguments, reduction="none", zero_infinity=True)
    losses.sum().backward()
    assert losses.tolist()[0] == 0
    assert log_probs.grad[:, 0].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert log_probs.grad[:, 1].abs().sum().item() > 0


def forward_backward(log_probs: np.ndarray, labels: list[int], blank: int) -> tuple[float, np.ndarray]:
    """Returns the loss of one sample and the posterior probability of each class at each time step."""
    states = [blank, *itertools.chain(*((label, blank) for label in labels))]
    moments, count = len(log_probs), len(states)
    skips = [s >= 2 and states[s] not in (blank, states[s - 2]) for s in range(count)]
    before, after = np.full((2, moments, count), -np.inf)
    with np.errstate(all="ignore"):
        for t in range(moments):
            for s in range(count):
                sources = before[t - 1, max(0, s - 1 - skips[s]) : s + 1] if t else np.zeros(int(s < 2))
                before[t, s] = np.logaddexp.reduce(sources, initial=-np.inf) + log_probs[t, states[s]]
        for t in reversed(range(moments)):
            for s in range(count):
                ends = np.zeros(int(s >= count - 2))
                if t + 1 < moments:
                    ends = np.array(
                        [
                            after[t + 1, to] + log_probs[t + 1, states[to]]
                            for to in range(s, min(s + 3, count))
                            if to < s + 2 or skips[to]
                        ]
                    )
                after[t, s] = np.logaddexp.reduce(ends, initial=-np.inf)
        loss = -np.logaddexp.reduce(before[-1, -2:])
        posteriors = np.zeros_like(log_probs)
        for s, label in enumerate(states):
            posteriors[:, label] += np.exp(before[:, s] + after[:, s] + loss)
    return float(loss), posteriors


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_losses_and_gradients_are_those_of_the_algorithm(dtype: str, scale: float) -> None:
    """Samples of many states and of none, shorter than the longest, and probabilities far below the smallest number."""
    scores = (RNG.standard_normal((30, 4, 6)) * scale).astype(dtype)
    labels = [[1, 1, 2, 3, 3, 5, 1], [4], [2, 5, 2, 5, 2, 5, 2, 5, 2, 5, 2, 5], []]
    moments, sizes = [30, 3, 29, 11], [len(own) for own in labels]
    leaf = gt.tensor(scores.transpose(1, 0, 2).copy(), requires_grad=True)
    # The axes are exchanged, so that the operand is not contiguous.
    log_probs = leaf.transpose(0, 1).log_softmax(2)
    losses = F.ctc_loss(log_probs, gt.tensor(list(itertools.chain(*labels))), moments, sizes, reduction="none")
    weights = gt.tensor([1.0, 2.0, -0.5, 3.0], dtype=losses.dtype)
    (losses * weights).sum().backward()
    assert leaf.grad is not None
    exact = scores.astype(np.float64)
    exact -= np.logaddexp.reduce(exact, axis=2, keepdims=True)
    wanted = np.zeros((4, 30, 6))
    for i, (own, n) in enumerate(zip(labels, moments, strict=True)):
        loss, posteriors = forward_backward(exact[:n, i], own, 0)
        tolerance = (1e-5 if dtype == "float32" else 1e-13) * max(abs(loss), 1)
        assert abs(losses[i].item() - loss) <= tolerance, f"sample {i}"
        wanted[i, :n] = (np.exp(exact[:n, i]) - posteriors) * weights[i].item()
    assert_close(leaf.grad, wanted, dtype, (2e-2 if scale > 1 else 2e-4) if dtype == "float32" else 1e-10)


def test_inputs_without_time_steps_have_no_gradient() -> None:
    scores = gt.zeros(3, 3, 2, requires_grad=True)
    arguments = (gt.tensor([[1], [1], [1]]), [0, 0, 3], [0, 1, 1])
    losses = F.ctc_loss(scores.log_softmax(2), *arguments, reduction="none", zero_infinity=True)
    assert losses.tolist()[:2] == [0, 0]
    losses.sum().backward()
    assert scores.grad is not None
    assert scores.grad[:, :2].abs().sum().item() == 0
    assert scores.grad[:, 2].abs().sum().item() > 0
    infinite = F.ctc_loss(scores.log_softmax(2), *arguments, reduction="none")
    assert infinite.tolist()[:2] == [0, math.inf]
    infinite[1].backward()
    # PyTorch's gradient of an infinite loss is NaN at the sample's own time steps, of which there are none.
    assert not scores.grad.isnan().any()


def test_labels_that_are_no_classes_are_refused() -> None:
    with pytest.raises(IndexError, match="index 3"):
        F.ctc_loss(gt.zeros(4, 1, 3).log_softmax(2), gt.tensor([[3]]), [4], [1]).item()


def test_one_sample_needs_no_axis() -> None:
    log_probs = gt.zeros(4, 1, 3).log_softmax(2)
    alone = F.ctc_loss(log_probs[:, 0], gt.tensor([1, 2]), gt.tensor(4), gt.tensor(2), reduction="none")
    assert alone.shape == ()
    assert alone.item() == F.ctc_loss(log_probs, gt.tensor([[1, 2]]), (4,), (2,), reduction="sum").item()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"input_lengths": (6, 5)}, RuntimeError, "Expected input_lengths to have value at most 5, but got value 6"),
        ({"input_lengths": (-1, 5)}, RuntimeError, "Expected input_lengths to have value at least 0"),
        ({"input_lengths": gt.tensor([5.0, 5.0])}, RuntimeError, "input_lengths must be integral"),
        ({"target_lengths": (3,)}, RuntimeError, "target_lengths must be of size batch_size"),
        ({"target_lengths": (4, 2)}, RuntimeError, "at least 4 at dimension 1, but got size 3"),
        ({"targets": gt.tensor([1, 2])}, RuntimeError, "size 5 at dimension 0"),
        ({"blank": 4}, RuntimeError, "blank must be in label range"),
        ({"reduction": "abc"}, ValueError, "abc is not a valid value for reduction"),
        ({"log_probs": gt.zeros(5, 0, 4)}, RuntimeError, "log_probs tensor must not be empty"),
    ],
)
def test_invalid_operands_are_refused(change: Any, error: type[Exception], words: str) -> None:
    arguments = {
        "log_probs": gt.zeros(5, 2, 4),
        "targets": gt.tensor([[1, 2, 3], [1, 1, 0]]),
        "input_lengths": (5, 5),
        "target_lengths": (3, 2),
    }
    with pytest.raises(error, match=words):
        F.ctc_loss(**{**arguments, **change})
