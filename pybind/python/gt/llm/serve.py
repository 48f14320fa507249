"""Serves completions of a model over HTTP, in the form of OpenAI's API.

    python -m gt.llm.serve -e model.bin -p tokenizer.bin --port 8000
    curl localhost:8000/v1/completions -d '{"model": "gpt2", "prompt": "Once", "max_tokens": 9, "stream": true}'

Requests that come at the same time are computed in one batch. Ctrl-C ends the server.
"""

from __future__ import annotations

import argparse
import codecs
import json
import sys
import time
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gt.llm.checkpoint import load
from gt.llm.engine import Engine, Request
from gt.llm.files import FileError
from gt.llm.tokenizer import Tokenizer, read_tokenizer

BODY_BYTES_MAX = 4 << 20
# The options of a request, with the types and the default of each.
OPTIONS: dict[str, tuple[tuple[type, ...], Any]] = {
    "max_tokens": ((int,), 16),
    "temperature": ((int, float), 1.0),
    "top_p": ((int, float), 1.0),
    "top_k": ((int,), 0),
    "seed": ((int, type(None)), None),
    "n": ((int,), 1),
    "stream": ((bool, type(None)), False),
    "echo": ((bool, type(None)), False),
    "stop": ((str, list, type(None)), None),
}
IGNORED = {"model", "prompt", "user", "stream_options"}
# Options of OpenAI's that do something only with other values than these.
NEUTRAL = {"best_of": (1, None), "frequency_penalty": (0, None), "presence_penalty": (0, None)}
NEUTRAL |= {"logit_bias": ({}, None), "logprobs": (None,), "suffix": (None, "")}


class RequestError(ValueError):
    """A request that cannot be served; the message says why."""


def parsed(body: bytes) -> dict[str, Any]:
    """Returns the options of a request.

    Raises:
        RequestError: The body is no JSON object, or an option is unknown or has an impossible value.
    """
    try:
        given = json.loads(body)
    except ValueError as error:
        raise RequestError(f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise RequestError("the body is no JSON object")
    for name in given:
        if name in NEUTRAL and given[name] not in NEUTRAL[name]:
            raise RequestError(f"{name} is not supported: leave it out")
        if name not in OPTIONS and name not in IGNORED and name not in NEUTRAL:
            raise RequestError(f"there is no option {name!r}")
    found = {}
    for name, (types, default) in OPTIONS.items():
        value = given.get(name, default)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise RequestError(f"{name} is {value!r}, which has the wrong type")
        found[name] = value
    if not (found["max_tokens"] >= 0 and found["temperature"] >= 0 and 0 < found["top_p"] <= 1 and found["top_k"] >= 0):
        raise RequestError("max_tokens ≥ 0, temperature ≥ 0, 0 < top_p ≤ 1 and top_k ≥ 0 are needed")
    if not 1 <= found["n"] <= 128:
        raise RequestError("n is 1 to 128")
    stop = [found["stop"]] if isinstance(found["stop"], str) else found["stop"] or []
    if not all(isinstance(text, str) and text for text in stop):
        raise RequestError("stop is a text, or a list of texts that are not empty")
    prompt = given.get("prompt", "")
    return {**found, "stop": stop, "prompts": prompts(prompt)}


def prompts(prompt: Any) -> list[str | list[int]]:
    """Returns the prompts of a request: a text, tokens, or a list of texts or of tokens.

    Raises:
        RequestError: It is something else.
    """
    several = prompt if isinstance(prompt, list) and not (prompt and isinstance(prompt[0], int)) else [prompt]
    for one in several:
        tokens = isinstance(one, list) and all(type(token) is int for token in one)
        if not isinstance(one, str) and not tokens:
            raise RequestError("prompt is a text, a list of tokens, or a list of these")
    return several


def texts(request: Request, tokenizer: Tokenizer, stop: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yields pieces of text as they are made, and with the last one the reason of the end.

    Text that may become a text of `stop` is held back until it is known.

    Raises:
        Exception: What went wrong in the engine.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    while True:
        made = request.made.get()
        if isinstance(made, Exception):
            raise made
        last = isinstance(made, str)
        held += decoder.decode(b"" if isinstance(made, str) else tokenizer.bytes_of(made), last)
        ends = [at for at in (held.find(text) for text in stop) if at >= 0]
        if ends:
            request.cancelled.set()
            yield held[: min(ends)], "stop"
            return
        keep = 0 if last else max((overlap(held, text) for text in stop), default=0)
        yield held[: len(held) - keep], str(made) if last else None
        held = held[len(held) - keep :]
        if last:
            return


def overlap(text: str, stop: str) -> int:
    """Returns how many of the last letters of `text` begin `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


class Server(ThreadingHTTPServer):
    """The server of one model.

    Args:
        address: Host and port; port 0 takes any.
        engine: What makes the tokens.
        tokenizer: The model's tokenizer.
        name: The model's name.
    """

    daemon_threads = True
    # Connections of a burst wait here for their thread.
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], engine: Engine, tokenizer: Tokenizer, name: str) -> None:
        self.engine, self.tokenizer, self.name = engine, tokenizer, name
        self.started = int(time.time())
        try:
            super().__init__(address, Handler)
        except OSError as error:
            host, port = address
            raise OSError(f"it cannot listen at {host}:{port} ({error.strerror}): take another --port") from error


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: a line for each request would be as long as its answer."""

    def do_GET(self) -> None:
        """Lists the model, or says that the server is there."""
        model = {"id": self.server.name, "object": "model", "created": self.server.started, "owned_by": "gt"}
        if self.path == "/health":
            self._answer({"status": "ok"})
        elif self.path == "/v1/models":
            self._answer({"object": "list", "data": [model]})
        elif self.path == f"/v1/models/{self.server.name}":
            self._answer(model)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}: GET /v1/models, POST /v1/completions")

    def do_POST(self) -> None:
        """Answers with completions of the prompts in the body."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of at most {BODY_BYTES_MAX} bytes is needed")
            return
        body = self.rfile.read(int(length))
        if self.path != "/v1/completions":
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}: POST /v1/completions")
            return
        requests: list[Request] = []
        try:
            options = parsed(body)
            given, requests = self._submit(options)
            if options["stream"]:
                self._stream(options, given, requests)
            else:
                self._complete(options, given, requests)
        except (RequestError, ValueError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except OSError:
            self.close_connection = True
        except Exception as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        finally:
            for request in requests:
                request.cancelled.set()

    def _submit(self, options: dict[str, Any]) -> tuple[list[list[int]], list[Request]]:
        tokenizer, stop = self.server.tokenizer, self.server.tokenizer.end_of_text
        given = [tokenizer.encode(one) if isinstance(one, str) else one for one in options["prompts"]]
        given = [tokens or [stop] for tokens in given]
        seed = options["seed"]
        requests = [
            Request(
                list(tokens),
                options["max_tokens"],
                options["temperature"],
                options["top_k"],
                options["top_p"],
                None if seed is None else seed % (1 << 64) + i,
                stop,
            )
            for tokens in given
            for i in range(options["n"])
        ]
        if options["max_tokens"]:
            for request in requests:
                self.server.engine.submit(request)
        else:
            for request in requests:
                request.made.put("length")
        return given, requests

    def _frame(self) -> dict[str, Any]:
        made = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        return {**made, "model": self.server.name}

    def _complete(self, options: dict[str, Any], given: list[list[int]], requests: list[Request]) -> None:
        choices = []
        for index, request in enumerate(requests):
            pieces = list(texts(request, self.server.tokenizer, options["stop"]))
            echoed = self.server.tokenizer.decode(request.prompt) if options["echo"] else ""
            text = echoed + "".join(piece for piece, _ in pieces)
            choices.append({"index": index, "text": text, "logprobs": None, "finish_reason": pieces[-1][1]})
        asked, made = sum(map(len, given)), sum(request.count - request.left for request in requests)
        usage = {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}
        self._answer({**self._frame(), "choices": choices, "usage": usage})

    def _stream(self, options: dict[str, Any], given: list[list[int]], requests: list[Request]) -> None:
        del given
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        frame = self._frame()
        for index, request in enumerate(requests):
            pieces = texts(request, self.server.tokenizer, options["stop"])
            if options["echo"]:
                self._event({**frame, "choices": [_piece(index, self.server.tokenizer.decode(request.prompt), None)]})
            for text, reason in pieces:
                if text or reason:
                    self._event({**frame, "choices": [_piece(index, text, reason)]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, content: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(content)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, content: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
        self._answer({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)


def _piece(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def main() -> int:
    """Runs the server until Ctrl-C; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.llm.serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-e", dest="model", required=True, metavar="FILE", help="the model")
    parser.add_argument("-p", dest="tokenizer", required=True, metavar="FILE", help="the tokenizer")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8000, help="the port; 0 takes any [8000]")
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="requests computed at a time [8]")
    arguments = parser.parse_args()
    try:
        tokenizer = read_tokenizer(arguments.tokenizer)
        engine = Engine(load(arguments.model).eval(), arguments.rows)
        server = Server((arguments.host, arguments.port), engine, tokenizer, Path(arguments.model).stem)
    except (FileError, OSError, ValueError) as error:
        print(f"gt.llm.serve: {error}", file=sys.stderr)
        return 1
    print(f"serving {server.name} at http://{arguments.host}:{server.server_address[1]}/v1", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
