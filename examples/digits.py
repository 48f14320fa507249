"""Trains a small network to classify handwritten digits: 1,797 images of 8 x 8 pixels from scikit-learn.

Run it with `make demo`, or with `python examples/digits.py` after `pip install scikit-learn rich`. You need not start
anything: the first tensor connects to the machine's daemon, or starts a private one.
"""

import numpy as np
from rich.progress import Progress
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gt
from gt.nn import Linear, Module, cross_entropy_loss
from gt.optim import SGD

EPOCHS = 60
BATCH_SIZE = 64
SEED = 7


class DigitReader(Module):
    """A perceptron with one hidden layer.

    Shape: pixels `(batch, 64)` to logits `(batch, 10)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = Linear(64, 128)
        self.fc2 = Linear(128, 10)

    def forward(self, pixels):
        return self.fc2(self.fc1(pixels).relu())


def load():
    """Returns training pixels, test pixels, training labels and test labels; the test has a quarter of the images."""
    digits = load_digits()
    pixels = (digits.data / 16.0).astype(np.float32)  # 0 is white, 1 is black
    labels = digits.target.astype(np.int64)
    return train_test_split(pixels, labels, test_size=0.25, stratify=labels, random_state=SEED)


def accuracy(model, pixels, labels) -> float:
    """Returns the fraction of images whose largest logit is that of the right digit."""
    with gt.no_grad():
        predicted = model(gt.from_numpy(pixels)).argmax(dim=1)
        return (predicted == gt.from_numpy(labels)).float().mean().item()


def main() -> None:
    gt.manual_seed(SEED)
    train_pixels, test_pixels, train_labels, test_labels = load()
    model = DigitReader()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(SEED)

    with Progress() as progress:
        task = progress.add_task("training", total=EPOCHS)
        for epoch in range(1, EPOCHS + 1):
            order = rng.permutation(len(train_labels))
            pixels, labels = gt.from_numpy(train_pixels[order]), gt.from_numpy(train_labels[order])
            losses = []
            for start in range(0, len(order), BATCH_SIZE):
                batch = slice(start, start + BATCH_SIZE)
                loss = cross_entropy_loss(model(pixels[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            # Everything above is asynchronous. Only `item()` waits for the daemon: once per epoch, for the mean loss.
            mean_loss = gt.stack(losses).mean().item()
            progress.update(task, advance=1, description=f"loss {mean_loss:.4f}")
            if epoch % 10 == 0 or epoch == 1:
                progress.console.print(f"epoch {epoch:2}  loss {mean_loss:.4f}")

    print(f"accuracy on {len(train_labels):,} training images: {accuracy(model, train_pixels, train_labels):.1%}")
    print(f"accuracy on {len(test_labels):,} unseen images: {accuracy(model, test_pixels, test_labels):.1%}")


if __name__ == "__main__":
    main()
