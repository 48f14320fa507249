"""The older import path of `Tensor` and its constructors: `from gt.client.tensor import from_numpy`."""

from gt import Tensor, arange, empty, eye, from_numpy, full, linspace, ones, rand, randint, randn, tensor, zeros

__all__ = [
    "Tensor",
    "arange",
    "empty",
    "eye",
    "from_numpy",
    "full",
    "linspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "tensor",
    "zeros",
]
