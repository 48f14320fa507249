"""Trains a small GPT on the bytes of the standard library's source, and generates text from it.

The same file runs on both: `python -m gt.torch examples/gpt.py` on GT, `python examples/gpt.py` on PyTorch.
"""

import argparse
import contextlib
import inspect
import math
import os
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    """The sizes of a GPT, named as in GPT-2."""

    block_size: int = 64
    vocab_size: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = False
    flash: bool = True


class LayerNorm(nn.Module):
    """A layer norm whose bias is optional."""

    def __init__(self, size, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which each token attends to itself and earlier ones.

    Shape: `(batch, length, n_embd)` to the same.
    """

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.flash = config.flash and hasattr(F, "scaled_dot_product_attention")
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("mask", mask.view(1, 1, config.block_size, config.block_size), persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        if self.flash:
            p = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    """The feed-forward network of a block, four times as wide inside."""

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    """A pre-norm transformer block: attention and feed-forward network, each with a residual connection."""

    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A decoder-only transformer (Radford et al. 2019)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(config.vocab_size, config.n_embd),
                wpe=nn.Embedding(config.block_size, config.n_embd),
                drop=nn.Dropout(config.dropout),
                h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                ln_f=LayerNorm(config.n_embd, config.bias),
            )
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        # The token embedding and the output projection share their weight (Press & Wolf 2017).
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        # Each block adds to the residual stream twice; smaller initial weights keep its variance independent of depth.
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        """Returns logits and loss; without targets, the logits of the last token only, and `None`.

        Args:
            idx: token ids, `(batch, length)`.
            targets: the next token of each, `(batch, length)`; -1 is ignored.
        """
        _, t = idx.size()
        assert t <= self.config.block_size, f"{t} tokens, but the context is {self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizer(self, weight_decay, learning_rate, betas):
        """Returns AdamW with weight decay for matrices and embeddings only, not for biases and norms."""
        params = {name: p for name, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = {"fused": True} if torch.cuda.is_available() and _takes(torch.optim.AdamW, "fused") else {}
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **fused)

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        """Appends sampled tokens to `idx`; `top_k` samples from the most probable ones only."""
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.config.block_size :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
        return idx


def _takes(function, name):
    return name in inspect.signature(function).parameters


def write_tokens(folder):
    """Writes the source of the standard library as bytes to `train.bin` and, a tenth of it, to `val.bin`."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_bytes() for path in sorted(library.glob("*.py"))[:60]]
    data = np.frombuffer(b"\n".join(texts), dtype=np.uint8).astype(np.uint16)
    split = int(0.9 * len(data))
    for name, part in {"train": data[:split], "val": data[split:]}.items():
        part.tofile(Path(folder) / f"{name}.bin")


def get_batch(folder, split, config, batch_size, device):
    """Returns random pieces of a split and the same pieces one byte later, each `(batch_size, block_size)`."""
    # The file is opened for each batch, since a memmap keeps every page that it has touched.
    data = np.memmap(Path(folder) / f"{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - config.block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + config.block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + config.block_size]).astype(np.int64)) for i in ix])
    if "cuda" in device:
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


def learning_rate(step, args):
    """Linear warm-up, then cosine decay to a tenth of the peak (Loshchilov & Hutter 2017)."""
    if step < args.warmup_steps:
        return args.lr * (step + 1) / (args.warmup_steps + 1)
    if step > args.steps:
        return args.lr / 10
    done = (step - args.warmup_steps) / max(1, args.steps - args.warmup_steps)
    return args.lr / 10 + 0.5 * (1.0 + math.cos(math.pi * done)) * (args.lr - args.lr / 10)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=1, help="batches per optimizer step (gradient accumulation)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--bias", action="store_true", help="use biases in linear layers and layer norms")
    parser.add_argument("--by-hand", action="store_true", help="compute attention by matmul, masked_fill and softmax")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--eval-every", type=int, default=50)
    parser.add_argument("--eval-batches", type=int, default=5)
    parser.add_argument("--checkpoint", help="a file to resume from and to save to")
    parser.add_argument("--sample", type=int, default=200, help="bytes to generate at the end")
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = Config(n_layer=args.layers, dropout=args.dropout, bias=args.bias, flash=not args.by_hand)
    mixed = args.dtype == "bfloat16"
    context = torch.autocast(device_type=device, dtype=torch.bfloat16) if mixed else contextlib.nullcontext()

    step, checkpoint = 0, None
    if args.checkpoint and os.path.exists(args.checkpoint):
        checkpoint = torch.load(args.checkpoint, map_location=device)
        config, step = Config(**checkpoint["config"]), checkpoint["step"]
        print(f"going on from step {step}")
    model = GPT(config).to(device)
    optimizer = model.configure_optimizer(weight_decay=0.1, learning_rate=args.lr, betas=(0.9, 0.99))
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    run = torch.compile(model) if args.compile else model
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")

    with tempfile.TemporaryDirectory() as folder:
        write_tokens(folder)

        @torch.no_grad()
        def estimate_loss():
            model.eval()
            means = {}
            for split in ("train", "val"):
                losses = torch.zeros(args.eval_batches)
                for k in range(args.eval_batches):
                    x, y = get_batch(folder, split, config, args.batch_size, device)
                    with context:
                        _, loss = run(x, y)
                    losses[k] = loss.item()
                means[split] = losses.mean()
            model.train()
            return means

        started = time.perf_counter()
        while True:
            if step % args.eval_every == 0 or step >= args.steps:
                losses = estimate_loss()
                seconds = time.perf_counter() - started
                print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}, {seconds:.1f} s")
            if step >= args.steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, args)
            for _ in range(args.accumulate):
                x, y = get_batch(folder, "train", config, args.batch_size, device)
                with context:
                    _, loss = run(x, y)
                    loss = loss / args.accumulate
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1

    if args.checkpoint:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": asdict(config)}
        torch.save({**state, "step": step}, args.checkpoint)
    if args.sample:
        model.eval()
        start = torch.tensor([list(b"\ndef ")], dtype=torch.long, device=device)
        with context:
            generated = model.generate(start, args.sample, temperature=0.8, top_k=50)[0].tolist()
        print(bytes(generated).decode("utf-8", "replace"))


if __name__ == "__main__":
    main()
