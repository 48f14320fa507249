"""Short-time Fourier transforms, against their definition in NumPy, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gt

RNG = np.random.default_rng(0)


def spectra(signal: np.ndarray, n: int, hop: int, window: np.ndarray, mode: str | None) -> np.ndarray:
    """The spectra of a signal's frames: `(frequencies, frames)`; the signal is padded if there is a mode."""
    if mode is not None:
        signal = np.pad(signal, n // 2, mode={"circular": "wrap", "replicate": "edge"}.get(mode, mode))
    before = (n - len(window)) // 2
    window = np.pad(window, (before, n - len(window) - before))
    frames = [signal[start : start + n] * window for start in range(0, len(signal) - n + 1, hop)]
    return np.fft.fft(frames).T


@pytest.mark.parametrize("mode", [None, "reflect", "constant", "replicate", "circular"])
@pytest.mark.parametrize(
    ("n", "hop", "length"), [(8, 2, 8), (16, 4, 11), (7, 3, 6), (10, 10, 10), (80, 32, 80), (64, 16, 50), (48, 64, 48)]
)
def test_spectra_of_frames(n: int, hop: int, length: int, mode: str | None) -> None:
    signal, window = RNG.standard_normal((2, 230)), RNG.random(length) + 0.1
    options: dict[str, Any] = {"center": mode is not None, "pad_mode": mode or "reflect", "return_complex": True}
    found = gt.stft(gt.tensor(signal), n, hop, length, gt.tensor(window), **options)
    expected = np.stack([spectra(row, n, hop, window, mode) for row in signal])
    np.testing.assert_allclose(found.numpy(), expected[:, : n // 2 + 1], atol=1e-12)
    whole = gt.tensor(signal[0]).stft(n, hop, length, gt.tensor(window), normalized=True, onesided=False, **options)
    np.testing.assert_allclose(whole.numpy(), expected[0] / np.sqrt(n), atol=1e-12)


def test_a_window_is_optional_and_parts_may_be_real() -> None:
    signal = RNG.standard_normal(40)
    expected = spectra(signal, 8, 2, np.ones(8), "reflect")[:5]
    found = gt.stft(gt.tensor(signal), 8, return_complex=False)
    np.testing.assert_allclose(found.numpy(), np.stack([expected.real, expected.imag], -1), atol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_the_inverse_gives_the_signal_back(normalized: bool, center: bool) -> None:
    signal, window = RNG.standard_normal((3, 64)), gt.hann_window(16, dtype=gt.float64) + 0.1
    there: dict[str, Any] = {"window": window, "center": center, "normalized": normalized}
    found = gt.istft(gt.stft(gt.tensor(signal), 16, return_complex=True, **there), 16, **there)
    np.testing.assert_allclose(found.numpy(), signal, atol=1e-12)
    turned = signal[0] + 1j * signal[1]
    both = gt.stft(gt.tensor(turned), 16, **there)
    assert both.shape[0] == 16
    np.testing.assert_allclose(both.istft(16, return_complex=True, **there).numpy(), turned, atol=1e-12)


@pytest.mark.parametrize("length", [50, 64, 70, 80])
def test_the_inverse_cuts_or_fills_to_a_length(length: int) -> None:
    signal = RNG.standard_normal(64)
    found = gt.istft(gt.stft(gt.tensor(signal), 16, return_complex=True), 16, length=length).numpy()
    # The padding of the transform follows the signal, then zeros.
    whole = np.pad(np.pad(signal, (0, 8), mode="reflect"), (0, 8))
    np.testing.assert_allclose(found, whole[:length], atol=1e-12)


def test_gradients() -> None:
    signal, window = gt.randn(2, 20, dtype=gt.float64, requires_grad=True), gt.hann_window(8, dtype=gt.float64) + 0.1
    assert gt.autograd.gradcheck(lambda x: gt.stft(x, 8, window=window, return_complex=True).abs(), [signal])
    parts = gt.randn(5, 6, 2, dtype=gt.float64, requires_grad=True)
    assert gt.autograd.gradcheck(lambda x: gt.istft(gt.view_as_complex(x), 8, window=window), [parts])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: gt.stft(x, 8), "stft requires the return_complex parameter be given for real inputs"),
        (lambda x: gt.stft(x, 0, return_complex=True), "expected n_fft > 0, but got 0"),
        (lambda x: gt.stft(x, 8, 0, return_complex=True), "expected hop_length > 0, but got 0"),
        (lambda x: gt.stft(x, 8, win_length=9, return_complex=True), "got win_length=9 and n_fft=8"),
        (lambda x: gt.stft(x, 8, window=gt.ones(5), return_complex=True), "size equal to win_length=8, but got window"),
        (lambda x: gt.stft(x, 40, center=False, return_complex=True), "0 < n_fft <= 20.*but got n_fft=40"),
        (lambda x: gt.stft(x + 0j, 8, onesided=True), "Cannot have onesided output if window or input is complex"),
        (lambda x: gt.istft(x, 8), "requires a complex-valued input tensor of 2 or 3 axes, but got float32 of rank 1"),
        (lambda x: gt.istft(gt.stft(x, 8, return_complex=True), 12), "when onesided=False: 7, but got 5"),
        (
            lambda x: gt.istft(gt.stft(x, 8, return_complex=True), 8, window=gt.zeros(8)),
            "the windows' squares add up to 0 somewhere",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(gt.ones(20))


def test_a_signal_too_short_to_be_padded_says_what_helps() -> None:
    with pytest.raises(RuntimeError, match="needs more than these, but got 4: pass a longer signal, a smaller n_fft"):
        gt.stft(gt.ones(4), 8, return_complex=True)
    assert gt.stft(gt.ones(4), 8, pad_mode="constant", return_complex=True).shape == (5, 3)
