"""Writes a debug state for `python -m gt.llm.test` with PyTorch: what PyTorch computes of one batch and a model file.

    python -m gt.llm.train … -o log              # or any model file of llm.c
    python examples/gpt2/write_debug_state.py model.bin debug_state.bin --batch 4 --length 64
    python -m gt.llm.test -e model.bin -d debug_state.bin

Beside it are the losses of ten steps of AdamW on the batch, one a line, in `debug_state.bin.losses`. The model is
written here in PyTorch alone, so that nothing of GT is part of the reference.
"""

import argparse

import numpy as np
import torch
from torch.nn import functional as F

HEADER = 256
MODEL, DEBUG_STATE = 20240326, 20240327


def shapes(context, vocabulary, layers, channels):
    """Returns the kinds of parameters in the order of the file, with their shapes."""
    c = channels
    return {
        "wte": (vocabulary, c),
        "wpe": (context, c),
        "ln_1.w": (layers, c),
        "ln_1.b": (layers, c),
        "qkv.w": (layers, 3 * c, c),
        "qkv.b": (layers, 3 * c),
        "proj.w": (layers, c, c),
        "proj.b": (layers, c),
        "ln_2.w": (layers, c),
        "ln_2.b": (layers, c),
        "fc.w": (layers, 4 * c, c),
        "fc.b": (layers, 4 * c),
        "out.w": (layers, c, 4 * c),
        "out.b": (layers, c),
        "ln_f.w": (c,),
        "ln_f.b": (c,),
    }


def read(path):
    """Returns the sizes and the parameters of a float32 model file; rows that pad the vocabulary are left out."""
    header = np.fromfile(path, "<i4", HEADER)
    assert tuple(header[:2]) == (MODEL, 3), f"{path} is no float32 model of llm.c"
    context, vocabulary, layers, heads, channels, padded = map(int, header[2:8])
    numbers = torch.from_numpy(np.fromfile(path, "<f4", offset=4 * HEADER))
    parameters, at = {}, 0
    for name, shape in shapes(context, padded, layers, channels).items():
        size = int(np.prod(shape))
        parameters[name] = numbers[at : at + size].view(shape).clone()
        at += size
    assert at == len(numbers), f"{path} has {len(numbers)} parameters, not {at}"
    parameters["wte"] = parameters["wte"][:vocabulary].clone()
    return (context, vocabulary, layers, heads, channels, padded), parameters


def forward(p, tokens, targets, layers, heads, channels):
    """Returns logits and loss."""
    batch, length = tokens.shape
    x = p["wte"][tokens] + p["wpe"][:length]
    for i in range(layers):
        y = F.layer_norm(x, (channels,), p["ln_1.w"][i], p["ln_1.b"][i])
        q, k, v = F.linear(y, p["qkv.w"][i], p["qkv.b"][i]).split(channels, 2)
        q, k, v = (t.view(batch, length, heads, channels // heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, channels)
        x = x + F.linear(y, p["proj.w"][i], p["proj.b"][i])
        y = F.layer_norm(x, (channels,), p["ln_2.w"][i], p["ln_2.b"][i])
        y = F.gelu(F.linear(y, p["fc.w"][i], p["fc.b"][i]), approximate="tanh")
        x = x + F.linear(y, p["out.w"][i], p["out.b"][i])
    logits = F.linear(F.layer_norm(x, (channels,), p["ln_f.w"], p["ln_f.b"]), p["wte"])
    return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("state")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    (_, vocabulary, layers, heads, channels, padded), parameters = read(args.model)
    sizes = (layers, heads, channels)
    p = {name: value.requires_grad_() for name, value in parameters.items()}
    text = np.random.default_rng(0).integers(0, vocabulary, (args.batch, args.length + 1))
    tokens, targets = torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())
    logits, loss = forward(p, tokens, targets, *sizes)
    loss.backward()

    header = np.zeros(HEADER, "<i4")
    header[:4] = DEBUG_STATE, 2, args.batch, args.length
    with open(args.state, "wb") as file:
        file.write(header.tobytes())
        for part in (tokens.int(), targets.int(), logits.detach(), loss.detach().reshape(1)):
            file.write(part.numpy().tobytes())
        for name, value in p.items():
            file.write(value.grad.numpy().tobytes())
            if name == "wte":
                file.write(bytes(4 * (padded - vocabulary) * channels))

    # As in llm.c, weight decay is for matrices and embeddings: what has two axes in one block.
    decayed = [value for name, value in p.items() if name in ("wte", "wpe") or value.dim() == 3]
    others = [value for name, value in p.items() if name not in ("wte", "wpe") and value.dim() < 3]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        _, loss = forward(p, tokens, targets, *sizes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(f"{args.state}.losses", "w") as file:
        file.writelines(f"{loss:.6f}\n" for loss in losses)


if __name__ == "__main__":
    main()
