"""Training scripts in the manner of minGPT, nanoGPT, makemore and PyTorch's examples, with nothing but PyTorch."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.programs.catalogue import Training, Values, integers, normal, program

WORDS, BLOCK, WIDTH, HEADS = 65, 64, 64, 4


def _gpt() -> Any:
    """Makes a decoder with tied embeddings, whose attention is fused."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        """Causal self-attention of several heads."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.projection = nn.Linear(WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.size()
            q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).split(WIDTH, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.projection(y.transpose(1, 2).contiguous().view(batch, length, WIDTH))

    class Block(nn.Module):
        """Attention and a perceptron, each with a residual connection."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.attention = Attention()
            self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norms[0](x))
            return x + self.perceptron(self.norms[1](x))

    class Decoder(nn.Module):
        """A small GPT."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(BLOCK, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            self.tokens.weight = self.head.weight
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    torch.nn.init.normal_(module.weight, 0.0, 0.02)

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return logits, functional.cross_entropy(logits.view(-1, WORDS), targets.view(-1), ignore_index=-1)

    return Decoder()


@program("nanoGPT-like script", "torch", quick=True)
def nano() -> Values:
    import torch

    model = _gpt()
    weights: dict[str, Any] = {}

    def compute() -> Any:
        """Trains from a memory-mapped file: accumulation, clipping, a schedule, a checkpoint."""
        if not weights:
            weights.update({name: value.clone() for name, value in model.state_dict().items()})
        model.load_state_dict(weights)
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=False)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        compiled, context = torch.compile(model, backend="eager"), torch.amp.autocast("cpu", enabled=False)
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            np.random.default_rng(0).integers(0, WORDS, 4000).astype(np.uint16).tofile(f"{folder}/train.bin")
            data = np.memmap(f"{folder}/train.bin", dtype=np.uint16, mode="r")
            for step in range(6):
                for group in optimizer.param_groups:
                    group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * step / 6))
                for part in range(2):
                    starts = [(step * 631 + part * 97 + i * 211) % (len(data) - BLOCK - 1) for i in range(8)]
                    x, y = (
                        torch.stack(
                            [torch.from_numpy(data[i + shift : i + shift + BLOCK].astype(np.int64)) for i in starts]
                        )
                        for shift in (0, 1)
                    )
                    with context:
                        _, loss = compiled(x, y)
                    scaler.scale(loss / 2).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                losses.append(loss.item())
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder, "ckpt.pt"))
            checkpoint = torch.load(Path(folder, "ckpt.pt"), map_location="cpu")
        optimizer.load_state_dict(checkpoint["optimizer"])
        return losses, checkpoint["model"]["head.weight"]

    return Values(compute, model)


@program("minGPT-like step", "torch")
def mini() -> Training:
    model = _gpt()
    tokens = integers(8, BLOCK + 1, below=WORDS)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return Training(model, lambda: model(inputs, targets)[::-1])


@program("makemore-like step", "torch", quick=True)
def names() -> Training:
    import torch
    from torch import nn

    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(27, 10),
            "layers": nn.Sequential(nn.Linear(80, 100, bias=False), nn.BatchNorm1d(100), nn.Tanh(), nn.Linear(100, 27)),
        }
    )
    letters, following = integers(32, 8, below=27), integers(32, below=27, seed=1)

    def loss() -> Any:
        outputs = model["layers"](model["embedding"](letters).view(32, -1))
        return torch.nn.functional.cross_entropy(outputs, following), outputs

    return Training(model, loss)


@program("MNIST example's step", "torch")
def digits() -> Training:
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10), nn.LogSoftmax(1),
    )  # fmt: skip
    images, labels = normal(16, 1, 28, 28), integers(16, below=10)
    optimizer = torch.optim.Adadelta(model.parameters(), 1.0)
    return Training(model, lambda: torch.nn.functional.nll_loss(model(images), labels), optimizer)


@program("word language model's step (LSTM)", "torch")
def words() -> Training:
    import torch
    from torch import nn

    parts = {"embedding": nn.Embedding(100, 64), "lstm": nn.LSTM(64, 64, 2), "head": nn.Linear(64, 100)}
    model, tokens = nn.ModuleDict(parts), integers(21, 8, below=100)

    def loss() -> Any:
        outputs, _ = model["lstm"](model["embedding"](tokens[:-1]))
        logits = model["head"](outputs)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten()), logits

    return Training(model, loss)


@program("VAE example's step", "torch")
def autoencoder() -> Training:
    import torch
    from torch import nn
    from torch.nn import functional

    model = nn.ModuleDict(
        {
            "encode": nn.Linear(784, 200),
            "both": nn.Linear(200, 40),
            "decode": nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 784)),
        }
    )
    images, noise = normal(32, 784).sigmoid(), normal(32, 20, seed=1)

    def loss() -> Any:
        mean, log_variance = model["both"](functional.relu(model["encode"](images))).chunk(2, -1)
        found = torch.sigmoid(model["decode"](mean + noise * torch.exp(0.5 * log_variance)))
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = functional.binary_cross_entropy(found, images, reduction="sum") + divergence
        return loss / len(images), found

    return Training(model, loss)


@program("DCGAN example's generator", "torch")
def generator() -> Training:
    from torch import nn

    model = nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4, 1, 0, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
        nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    noise, images = normal(8, 32, 1, 1), normal(8, 3, 16, 16, seed=1)
    return Training(model, lambda: nn.functional.mse_loss(model(noise), images))


@program("fx-traced model with its batch norm fused", "torch")
def traced() -> Values:
    import torch
    from torch import fx, nn
    from torch.fx.experimental.optimization import fuse

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    images = normal(2, 3, 16, 16)

    def compute() -> Any:
        graph = fx.symbolic_trace(model)
        return (
            graph(images),
            fx.Interpreter(graph).run(images),
            fuse(model)(images),
            torch.tensor(len(graph.graph.nodes)),
        )

    return Values(compute, model)
