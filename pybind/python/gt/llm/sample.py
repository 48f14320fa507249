"""Prints text that a model makes.

python -m gt.llm.sample -e model.bin -p tokenizer.bin --prompt 'Once upon a time' -g 100
"""

from __future__ import annotations

import argparse
import sys

import gt
from gt.llm.checkpoint import load
from gt.llm.files import FileError
from gt.llm.sampling import generate
from gt.llm.tokenizer import read_tokenizer


def main() -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.llm.sample", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-e", dest="model", required=True, metavar="FILE", help="the model")
    parser.add_argument("-p", dest="tokenizer", required=True, metavar="FILE", help="the tokenizer")
    parser.add_argument("--prompt", default="", help="the text to go on from")
    parser.add_argument("-g", dest="count", type=int, default=64, metavar="N", help="tokens to make [64]")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the most likely token [1.0]")
    parser.add_argument("--top-k", type=int, help="draw from the N most likely tokens")
    parser.add_argument("--top-p", type=float, help="draw from the most likely tokens of this probability")
    parser.add_argument("--seed", type=int, help="the seed of the random numbers")
    arguments = parser.parse_args()
    try:
        tokenizer = read_tokenizer(arguments.tokenizer)
        model = load(arguments.model).eval()
        if arguments.seed is not None:
            gt.manual_seed(arguments.seed)
        prompt = tokenizer.encode(arguments.prompt) or [tokenizer.end_of_text]
        print(arguments.prompt, end="")
        for token in generate(model, prompt, arguments.count, arguments.temperature, arguments.top_k, arguments.top_p):
            sys.stdout.buffer.write(tokenizer.bytes_of(token))
            sys.stdout.flush()
        print()
    except (FileError, FileNotFoundError, ValueError) as error:
        print(f"gt.llm.sample: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
