"""Writes scikit-learn's handwritten digits as CSV for digits.c: 64 pixels and the digit per line."""

import sys

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    digits = load_digits()
    np.savetxt(sys.argv[1], np.column_stack([digits.data, digits.target]), fmt="%d", delimiter=",")


if __name__ == "__main__":
    main()
