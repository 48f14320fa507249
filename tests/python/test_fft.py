"""Discrete Fourier transforms, against NumPy, with all norms, lengths and axes, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import gt

RNG = np.random.default_rng(0)
NORMS = (None, "backward", "ortho", "forward")


def drawn(*shape: int, real: bool = False) -> np.ndarray:
    return RNG.standard_normal(shape) + (0 if real else 1j * RNG.standard_normal(shape))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [1, 2, 5, 8, 12, 97])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name: str, size: int, norm: str | None) -> None:
    array = drawn(3, size, real=name in ("rfft", "ihfft"))
    if name in ("irfft", "hfft") and size == 1:
        pytest.skip("a spectrum of one number is that of no numbers")
    expected = getattr(np.fft, name)(array, norm=norm)
    np.testing.assert_allclose(getattr(gt.fft, name)(gt.tensor(array), norm=norm).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("n", [3, 6, 7, 10])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_lengths_and_axes(name: str, dim: int, n: int) -> None:
    array = drawn(6, 7, real=name in ("rfft", "ihfft"))
    expected = getattr(np.fft, name)(array, n, dim)
    np.testing.assert_allclose(getattr(gt.fft, name)(gt.tensor(array), n, dim).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(name: str, norm: str | None) -> None:
    array = drawn(4, 5, 6, real=name.startswith("rfft"))
    x = gt.tensor(array)
    function, reference = getattr(gt.fft, name), getattr(np.fft, name)
    np.testing.assert_allclose(function(x, norm=norm).numpy(), reference(array, norm=norm), atol=1e-10)
    found = function(x, (4, 7), (0, 1), norm=norm)
    np.testing.assert_allclose(found.numpy(), reference(array, (4, 7), (0, 1), norm=norm), atol=1e-10)


def test_halves_of_signals_of_several_axes_are_inverse() -> None:
    array = drawn(4, 6, real=True)
    for forward, back in (("hfftn", "ihfftn"), ("hfft2", "ihfft2")):
        half = getattr(gt.fft, back)(gt.tensor(array))
        assert half.shape == (4, 4)
        np.testing.assert_allclose(getattr(gt.fft, forward)(half, (4, 6)).numpy(), array, atol=1e-10)


def test_dtypes_and_long_rows() -> None:
    array = drawn(1000, real=True).astype(np.float32)
    assert gt.fft.fft(gt.tensor(array)).dtype == gt.complex64
    np.testing.assert_allclose(gt.fft.rfft(gt.tensor(array)).numpy(), np.fft.rfft(array), rtol=1e-4, atol=1e-3)
    assert gt.fft.fft(gt.tensor([1, 2])).tolist() == [3, -1]
    assert gt.fft.fft(gt.ones(0, 4)).shape == (0, 4)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "irfftn"])
def test_gradients(name: str) -> None:
    function = getattr(gt.fft, name)
    leaf = gt.tensor(drawn(4, 5, real=name in ("rfft", "ihfft")), requires_grad=True)
    result = function(leaf)
    weight = gt.tensor(drawn(*result.shape, real=not gt.is_complex(result)))
    (gt.view_as_real(result * weight).sum() if gt.is_complex(result) else (result * weight).sum()).backward()
    assert leaf.grad is not None
    step = 1e-6
    change = gt.zeros_like(leaf.detach())
    change[1, 2] = step

    def loss(x: gt.Tensor) -> float:
        found = function(x) * weight
        return (gt.view_as_real(found) if gt.is_complex(found) else found).sum().item()

    difference = (loss(leaf.detach() + change) - loss(leaf.detach() - change)) / (2 * step)
    assert gt.real(leaf.grad)[1, 2].item() == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_errors() -> None:
    x = gt.ones(4)
    for call, text in [
        (lambda: gt.fft.fft(x, norm="none"), "Invalid normalization mode"),
        (lambda: gt.fft.fft(x, 0), "Invalid number of data points"),
        (lambda: gt.fft.irfft(x, -1), r"Invalid number of data points \(-1\)"),
        (lambda: gt.fft.rfft(x + 1j), "expects a real input tensor"),
        (lambda: gt.fft.fftn(gt.ones(2, 2), dim=(0, 0)), "FFT dims must be unique"),
        (lambda: gt.fft.fftn(x, (2, 2)), "only has 1 dimensions"),
        (lambda: gt.fft.fft(x.half()), "Unsupported dtype Half"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "irfft2", "hfft2"])
def test_a_single_number_has_no_axis_to_transform(name: str) -> None:
    with pytest.raises(IndexError, match="but tensor has no dimensions"):
        getattr(gt.fft, name)(gt.tensor(1.0))
