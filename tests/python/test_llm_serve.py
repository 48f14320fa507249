"""`gt.llm.serve`: completions in the form of OpenAI's API, many at a time."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import gt
import gt.llm
from gt.llm import Config, Engine, Request, Tokenizer
from gt.llm.engine import choose_each
from gt.llm.serve import Server, overlap

TINY = Config(context=32, vocabulary=30, layers=2, heads=2, channels=16)
# 26 letters, a space, half of "é" twice, and the end.
TOKENS = [*(bytes([97 + i]) for i in range(26)), b" ", b"\xc3", b"\xa9", b"<end>"]


def tokens_of(request: Request) -> tuple[list[int], str]:
    made: list[int] = []
    while True:
        found = request.made.get(timeout=60)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, str):
            return made, found
        made.append(found)


@pytest.fixture(scope="module")
def model() -> gt.llm.GPT2:
    return gt.llm.GPT2(TINY).initialise()


@pytest.fixture
def engine(model: gt.llm.GPT2) -> Iterator[Engine]:
    engine = Engine(model, rows=3)
    yield engine
    engine.close()


@pytest.fixture
def server(engine: Engine) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), engine, Tokenizer(TOKENS, end_of_text=29), "tiny")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server: Server, body: Any, path: str = "/v1/completions", method: str = "POST") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, json.loads(found) if answer.getheader("Content-Type") == "application/json" else found


def test_a_batch_gives_each_request_what_it_would_get_alone(model: gt.llm.GPT2, engine: Engine) -> None:
    prompts = [[1], [2, 3, 4], [5] * 20, [6, 7], [8], [9, 10]]
    requests = [engine.submit(Request(prompt, count=9 + i, temperature=0)) for i, prompt in enumerate(prompts)]
    for i, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
        alone = list(gt.llm.generate(model, prompt, 9 + i, temperature=0))
        assert tokens_of(request) == (alone, "length")


def test_a_seed_gives_the_same_tokens_beside_any_others(engine: Engine) -> None:
    def draw() -> list[int]:
        options = {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "seed": 7}
        return tokens_of(engine.submit(Request([1, 2], count=12, **options)))[0]

    alone = draw()
    others = [engine.submit(Request([3], count=25, temperature=2.0)) for _ in range(2)]
    assert draw() == alone
    assert [len(tokens_of(other)[0]) for other in others] == [25, 25]


def test_tokens_are_drawn_from_the_likely_ones() -> None:
    logits = gt.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(200, 4)

    def drawn(**options: Any) -> set[int]:
        return set(choose_each(logits, [Request([0], 1, seed=i, **options) for i in range(200)]))

    assert drawn(top_k=2) == {0, 1}
    # The first has 0.64 of the probability, the first two 0.88.
    assert drawn(top_p=0.6) == {0}
    assert drawn(top_p=0.7) == {0, 1}
    assert drawn(temperature=0) == {0}
    assert drawn(temperature=9.0) == {0, 1, 2, 3}
    mixed = [Request([0], 1, temperature=i % 2 * 9.0, top_k=i % 2 * 3, seed=i) for i in range(200)]
    chosen = choose_each(logits, mixed)
    assert set(chosen[::2]) == {0}
    assert set(chosen[1::2]) == {0, 1, 2}


def test_requests_end_at_the_context_at_the_stop_token_and_when_cancelled(engine: Engine) -> None:
    made, reason = tokens_of(engine.submit(Request([1] * 30, count=99)))
    assert (len(made), reason) == (2 + 1, "length")
    first = tokens_of(engine.submit(Request([1, 2], count=1, temperature=0)))[0][0]
    assert tokens_of(engine.submit(Request([1, 2], count=5, temperature=0, stop=first))) == ([], "stop")
    request = engine.submit(Request([1], count=10**9))
    request.cancelled.set()
    # Its row is free for others.
    assert all(len(tokens_of(engine.submit(Request([1], count=3)))[0]) == 3 for _ in range(5))
    with pytest.raises(
        ValueError, match="the prompt has 32 tokens, but the model's context of 32 has room for 1 to 31"
    ):
        engine.submit(Request([1] * 32, count=1))
    with pytest.raises(ValueError, match="0 to 29"):
        engine.submit(Request([30], count=1))


def test_the_end_of_an_engine_ends_its_requests() -> None:
    engine = Engine(gt.llm.GPT2(Config(context=8192, vocabulary=30, layers=1, heads=1, channels=8)), rows=1)
    running, waiting = (engine.submit(Request([1], count=10**9)) for _ in range(2))
    running.made.get(timeout=60)
    engine.close()
    for request in (running, waiting):
        with pytest.raises(RuntimeError, match="the server ends"):
            tokens_of(request)


def test_completions(server: Server) -> None:
    status, found = ask(server, {"model": "tiny", "prompt": "abc", "max_tokens": 5, "temperature": 0})
    assert status == 200
    assert found["object"] == "text_completion"
    (choice,) = found["choices"]
    assert (choice["finish_reason"], choice["index"]) == ("length", 0)
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    status, several = ask(
        server, {"prompt": ["abc", [0, 1, 2]], "max_tokens": 5, "temperature": 0, "n": 2, "echo": True}
    )
    assert [each["text"] for each in several["choices"]] == ["abc" + choice["text"]] * 4
    assert ask(server, {"prompt": "", "max_tokens": 0})[1]["choices"][0]["text"] == ""


def test_streams_give_the_same_text_in_pieces(server: Server) -> None:
    asked = {"prompt": "abc", "max_tokens": 20, "seed": 5, "temperature": 2.0}
    whole = ask(server, asked)[1]["choices"][0]
    status, found = ask(server, {**asked, "stream": True})
    events = found.decode().split("\n\n")
    assert (status, events[-2:]) == (200, ["data: [DONE]", ""])
    pieces = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-2]]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + [whole["finish_reason"]]


def test_a_stop_text_ends_the_completion_and_is_not_part_of_it(server: Server) -> None:
    asked = {"prompt": "abc", "max_tokens": 25, "seed": 11, "temperature": 2.0}
    text = ask(server, asked)[1]["choices"][0]["text"]
    stop = text[4:7]
    for stream in (False, True):
        found = ask(server, {**asked, "stop": [stop, "no such text"], "stream": stream})[1]
        if stream:
            pieces = [json.loads(event[6:])["choices"][0] for event in found.decode().split("\n\n")[:-2]]
            ended, reason = "".join(piece["text"] for piece in pieces), pieces[-1]["finish_reason"]
        else:
            ended, reason = found["choices"][0]["text"], found["choices"][0]["finish_reason"]
        assert (ended, reason) == (text[: text.index(stop)], "stop")
    assert [overlap("abcab", stop) for stop in ("abc", "b", "cabd", "x")] == [2, 0, 3, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "no JSON"),
        ([1], "no JSON object"),
        ({"prompt": 3}, "prompt is a text"),
        ({"prompt": "A"}, "no token begins with byte 65"),
        ({"prompt": "a" * 32}, "room for 1 to 31"),
        ({"prompt": [99]}, "0 to 29"),
        ({"prompt": "a", "max_tokens": "9"}, "max_tokens is '9', which has the wrong type"),
        ({"prompt": "a", "n": True}, "n is True"),
        ({"prompt": "a", "temperature": -1}, "temperature ≥ 0"),
        ({"prompt": "a", "logprobs": 2}, "logprobs is not supported: leave it out"),
        ({"prompt": "a", "max_token": 2}, "there is no option 'max_token'"),
        ({"prompt": "a", "stop": [""]}, "stop is a text"),
    ],
)
def test_wrong_requests_are_told(server: Server, body: Any, message: str) -> None:
    status, found = ask(server, body)
    assert status == 400
    assert message in found["error"]["message"]
    assert found["error"]["type"] == "invalid_request_error"


def test_paths(server: Server) -> None:
    assert ask(server, b"", "/health", "GET") == (200, {"status": "ok"})
    assert ask(server, b"", "/v1/models", "GET")[1]["data"][0]["id"] == "tiny"
    assert ask(server, b"", "/v1/models/tiny", "GET")[1]["id"] == "tiny"
    assert ask(server, b"", "/v1/none", "GET")[0] == 404
    assert ask(server, {"prompt": "a"}, "/v1/chat/completions")[0] == 404
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_many_clients_at_once_and_some_that_hang_up(server: Server) -> None:
    def client(i: int) -> int:
        if i % 4 == 0:
            connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 29, "stream": True}))
            connection.getresponse().read(10)
            connection.close()
            return 200
        return ask(server, {"prompt": "abc"[: 1 + i % 3], "max_tokens": 8})[0]

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert set(pool.map(client, range(48))) == {200}


def test_the_client_of_openai(server: Server) -> None:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_address[1]}/v1", api_key="none")
    asked = {"model": client.models.list().data[0].id, "prompt": "abc", "max_tokens": 6, "seed": 3}
    whole = client.completions.create(**asked)
    assert whole.usage.completion_tokens == 6
    pieces = client.completions.create(**asked, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    with pytest.raises(openai.BadRequestError, match="logprobs is not supported"):
        client.completions.create(**asked, logprobs=3)


def test_the_program_serves_until_it_is_interrupted(tmp_path: Path, model: gt.llm.GPT2) -> None:
    gt.llm.write_model(tmp_path / "tiny.bin", model)
    gt.llm.write_tokenizer(tmp_path / "tokenizer.bin", Tokenizer(TOKENS, 29))
    command = [sys.executable, "-m", "gt.llm.serve", "-e", tmp_path / "tiny.bin", "-p", tmp_path / "tokenizer.bin"]
    running = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    told = running.stdout.readline()
    assert told.startswith("serving tiny at http://127.0.0.1:")
    connection = http.client.HTTPConnection("127.0.0.1", int(told.rsplit(":", 1)[1].split("/")[0]), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "abc"}))
    assert connection.getresponse().status == 200
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [*command, "--port", port]
        wrong = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (wrong.returncode, f"it cannot listen at 127.0.0.1:{port} (" in wrong.stderr) == (1, True)
    wrong = subprocess.run([*command[:-1], tmp_path / "none"], capture_output=True, text=True, check=False, timeout=60)
    assert (wrong.returncode, wrong.stderr.startswith("gt.llm.serve: ")) == (1, True)
