"""A variational autoencoder on the handwritten digits that scikit-learn ships: what it has learnt, it can dream.

    python -m gt.torch examples/vae.py      # on GT
    python examples/vae.py                  # on PyTorch

The encoder says where in a small space an image lies, and how surely; the decoder draws the image of a point there
(Kingma and Welling 2014). The loss is what the drawing lacks, and how far the places are from a normal distribution.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

PIXELS = 64


class VAE(nn.Module):
    def __init__(self, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, PIXELS))

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.encoder(x)
        return self.mean(h), self.log_variance(h)

    def reparameterize(self, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
        std = torch.exp(0.5 * log_variance)
        return mean + torch.randn_like(std) * std

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(x)
        return self.decoder(self.reparameterize(mean, log_variance)), mean, log_variance


def loss_of(logits: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    missing = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    apart = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return missing + apart


def show(images: torch.Tensor) -> None:
    """Images of 8 x 8 pixels as text, side by side."""
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
        dreamt = torch.sigmoid(model.decoder(torch.randn(5, args.latent, device=device)))
    show(dreamt.view(5, 8, 8).cpu())


if __name__ == "__main__":
    main()
