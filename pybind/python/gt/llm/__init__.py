"""GPT-2 in the files of llm.c (github.com/karpathy/llm.c): train, resume, sample, compare.

`python -m gt.llm.train`, `test`, `sample` and `serve` are the programs; this module has their parts.
"""

from __future__ import annotations

from gt.llm.checkpoint import from_hugging_face, load, read_model, save, to_hugging_face, write_model
from gt.llm.debug_state import DebugState, gradients_of, read_debug_state, write_debug_state
from gt.llm.engine import Engine, Request
from gt.llm.files import FileError
from gt.llm.hellaswag import Example, hellaswag_accuracy, read_hellaswag, write_hellaswag
from gt.llm.mersenne import Mersenne
from gt.llm.model import GPT2, Cache, Config
from gt.llm.sampling import choose, generate
from gt.llm.schedules import OutlierDetector, learning_rate
from gt.llm.tokenizer import Tokenizer, read_tokenizer, write_tokenizer
from gt.llm.tokens import Position, TokenLoader, read_tokens, write_tokens
from gt.llm.train_state import read_train_state, write_train_state

__all__ = [
    "GPT2",
    "Cache",
    "Config",
    "DebugState",
    "Engine",
    "Example",
    "FileError",
    "Mersenne",
    "OutlierDetector",
    "Position",
    "Request",
    "TokenLoader",
    "Tokenizer",
    "choose",
    "from_hugging_face",
    "generate",
    "gradients_of",
    "hellaswag_accuracy",
    "learning_rate",
    "load",
    "read_debug_state",
    "read_hellaswag",
    "read_model",
    "read_tokenizer",
    "read_tokens",
    "read_train_state",
    "save",
    "to_hugging_face",
    "write_debug_state",
    "write_hellaswag",
    "write_model",
    "write_tokenizer",
    "write_tokens",
    "write_train_state",
]
