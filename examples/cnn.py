"""Trains a convolutional network to classify handwritten digits: 1,797 images of 8 x 8 pixels from scikit-learn.

The program is written for PyTorch. It runs unchanged on PyTorch and on GT:

    python examples/cnn.py --epochs 10
    python -m gt.torch examples/cnn.py --epochs 10
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Images of shape `(1, 16, 16)`, scaled up from 8 x 8, with their digits; every fourth image is for the test."""

    def __init__(self, train):
        digits = load_digits()
        chosen = [i for i in range(len(digits.target)) if (i % 4 != 0) == train]
        pixels = torch.tensor(digits.images[chosen], dtype=torch.float32).unsqueeze(1) / 16  # 0 is white, 1 is black
        self.images = F.interpolate(pixels, scale_factor=2, mode="bilinear", align_corners=False)
        self.labels = torch.tensor(digits.target[chosen], dtype=torch.long)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    """Two convolutions with batch norm and pooling, then two linear layers with dropout.

    Shape: images `(batch, 1, 16, 16)` to log-probabilities `(batch, 10)`.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        x = self.pool(F.relu(self.norm2(self.conv2(x))))
        x = self.dropout1(torch.flatten(x, 1))
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, loader, optimizer, epoch):
    """Trains for one epoch."""
    model.train()
    for batch, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0:
            print(
                f"epoch {epoch:2}  image {batch * args.batch_size:4} of {len(loader.dataset)}  loss {loss.item():.4f}"
            )
        if args.dry_run:
            break


def test(model, loader):
    """Returns the accuracy on the test images, and prints it with the mean loss."""
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            log_probs = model(images)
            loss += F.nll_loss(log_probs, labels, reduction="sum").item()
            correct += log_probs.argmax(dim=1, keepdim=True).eq(labels.view(-1, 1)).sum().item()
    count = len(loader.dataset)
    print(f"test: mean loss {loss / count:.4f}, {correct} of {count} right ({correct / count:.1%})")
    return correct / count


def main():
    parser = argparse.ArgumentParser(description="A convolutional network for handwritten digits")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N")
    parser.add_argument("--epochs", type=int, default=8, metavar="N")
    parser.add_argument("--lr", type=float, default=1.0, metavar="LR", help="learning rate")
    parser.add_argument("--gamma", type=float, default=0.7, metavar="M", help="factor of the learning rate per epoch")
    parser.add_argument("--adam", action="store_true", help="use Adam instead of Adadelta")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--log-interval", type=int, default=10, metavar="N", help="batches between two log lines")
    parser.add_argument("--dry-run", action="store_true", help="run one batch per epoch")
    parser.add_argument("--save", metavar="FILE", help="save the weights to FILE")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader = DataLoader(Digits(train=True), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Digits(train=False), batch_size=256)
    model = Net()
    optimizer = (optim.Adam if args.adam else optim.Adadelta)(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_loader, optimizer, epoch)
        test(model, test_loader)
        scheduler.step()
    if args.save:
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
