"""Writes the handwritten digits that scikit-learn ships as a file for digits.c: a line an image, its digit last."""

import sys

import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    digits = load_digits()
    np.savetxt(sys.argv[1], np.column_stack([digits.data, digits.target]), fmt="%d", delimiter=",")


if __name__ == "__main__":
    main()
