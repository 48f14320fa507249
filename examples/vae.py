"""Trains a variational autoencoder (Kingma & Welling 2014) on scikit-learn's handwritten digits, and samples from it.

    python -m gt.torch examples/vae.py      # on GT
    python examples/vae.py                  # on PyTorch

The encoder maps an image to a normal distribution over a latent space, and the decoder maps a latent vector to an
image. The loss is the negative evidence lower bound: reconstruction error plus the divergence from a standard normal.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

PIXELS = 64


class VAE(nn.Module):
    """Encoder and decoder with one hidden layer each, for images of shape `(batch, 64)`."""

    def __init__(self, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, PIXELS))

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and log-variance of the latent vectors, each `(batch, latent)`."""
        h = self.encoder(x)
        return self.mean(h), self.log_variance(h)

    def reparameterize(self, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
        """Samples latent vectors as `mean + std * noise`, through which gradients flow."""
        std = torch.exp(0.5 * log_variance)
        return mean + torch.randn_like(std) * std

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the logits of the pixels, and mean and log-variance of the latent vectors."""
        mean, log_variance = self.encode(x)
        return self.decoder(self.reparameterize(mean, log_variance)), mean, log_variance


def loss_of(logits: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """Returns the negative evidence lower bound, summed over the batch."""
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return reconstruction + divergence


def show(images: torch.Tensor) -> None:
    """Prints images of 8 x 8 pixels side by side as text."""
    shades = " .:-=+*#%@"
    for row in range(8):
        print("  ".join("".join(shades[int(v * 9.999)] * 2 for v in image[row]) for image in images.tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.from_numpy(load_digits().data / 16.0).float()
    loader = DataLoader(TensorDataset(images), batch_size=args.batch_size, shuffle=True)
    model = VAE(args.hidden, args.latent).to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for (x,) in loader:
            x = x.to(device)
            optimizer.zero_grad()
            logits, mean, log_variance = model(x)
            loss = loss_of(logits, x, mean, log_variance)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:3d}   loss {total / len(images):.3f}")

    model.eval()
    with torch.no_grad():
        samples = torch.sigmoid(model.decoder(torch.randn(5, args.latent, device=device)))
    show(samples.view(5, 8, 8).cpu())


if __name__ == "__main__":
    main()
