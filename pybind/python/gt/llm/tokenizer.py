"""The vocabulary that llm.c writes: the bytes of every token."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from gt.llm.files import HEADER_BYTES, TOKENIZER, FileError, check_header, make_header, written

GPT2_END_OF_TEXT = 50256


class Tokenizer:
    """Decodes tokens, and encodes text by the longest token at each place.

    GPT-2's own encoder merges pairs by rank, and the file has no ranks: `tiktoken` gives its tokens. Both decode to the
    same text.

    Args:
        tokens: The bytes of each token.
        end_of_text: The token that separates documents.

    Example:
        >>> tokenizer = gt.llm.Tokenizer([b"a", b"b", b"ab"], end_of_text=2)
        >>> tokenizer.encode("aab"), tokenizer.decode([0, 2])
        ([0, 2], 'aab')
    """

    def __init__(self, tokens: Sequence[bytes], end_of_text: int = GPT2_END_OF_TEXT) -> None:
        self.tokens, self.end_of_text = list(tokens), end_of_text
        self._numbers = {text: number for number, text in reversed(list(enumerate(self.tokens)))}
        self._longest = max(map(len, self.tokens), default=0)

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens. Bytes that are no UTF-8 become U+FFFD.

        Raises:
            IndexError: A token is not in the vocabulary.
        """
        return b"".join(self.bytes_of(token) for token in tokens).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        """Returns the bytes of one token.

        Raises:
            IndexError: The token is not in the vocabulary.
        """
        if not 0 <= token < len(self.tokens):
            raise IndexError(f"token {token} is not in the vocabulary, which has {len(self.tokens):,} tokens")
        return self.tokens[token]

    def encode(self, text: str) -> list[int]:
        """Returns tokens whose text this is.

        Raises:
            ValueError: A byte of the text begins no token.
        """
        rest, made, at = text.encode(), [], 0
        while at < len(rest):
            for size in range(min(self._longest, len(rest) - at), 0, -1):
                token = self._numbers.get(rest[at : at + size])
                if token is not None:
                    made.append(token)
                    at += size
                    break
            else:
                raise ValueError(
                    f"no token begins with byte {rest[at]} of {text[:40]!r}: take the model's own tokenizer"
                )
        return made


def write_tokenizer(path: str | os.PathLike[str], tokenizer: Tokenizer) -> None:
    """Writes a tokenizer as a file of llm.c.

    Raises:
        ValueError: A token is empty or longer than 255 bytes.
    """
    for number, token in enumerate(tokenizer.tokens):
        if not 1 <= len(token) <= 255:
            raise ValueError(f"token {number} has {len(token)} bytes, but the format has room for 1 to 255")
    with written(path) as file:
        file.write(make_header(TOKENIZER, 2, {2: len(tokenizer.tokens), 3: tokenizer.end_of_text}))
        file.write(b"".join(bytes([len(token)]) + token for token in tokenizer.tokens))


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a file.

    Raises:
        FileError: The file holds something else, or is cut off.
    """
    with open(path, "rb") as file:
        header = check_header(file.read(HEADER_BYTES), path, TOKENIZER, (1, 2))
        rest = file.read()
    tokens: list[bytes] = []
    at = 0
    for number in range(int(header[2])):
        size = rest[at] if at < len(rest) else 0
        token = rest[at + 1 : at + 1 + size]
        if not size or len(token) < size:
            raise FileError(f"{path} is cut off: it has {number:,} of {int(header[2]):,} tokens")
        tokens.append(token)
        at += 1 + size
    end = GPT2_END_OF_TEXT if header[1] == 1 else int(header[3])
    return Tokenizer(tokens, end)
