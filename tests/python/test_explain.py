"""`gtctl explain` and `gt.debug.explain()`: real programs that are slow for a known reason."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import TOKEN, daemon, environment, eventually, gtd, line_of, output_of, server, started

import gt

GTCTL = gtd().with_name("gtctl")
# Each works until its input ends.
LOOP = """
import os, select, sys, gt
def goes_on(): return not select.select([sys.stdin], [], [], 0)[0]
"""
FETCHES = (
    LOOP + "x = gt.ones(3)\nprint('ready', flush=True)\nwhile goes_on():\n    for _ in range(50): (x + 1).sum().item()"
)
PRODUCTS = (
    LOOP + "x = gt.ones(500, 500)\ny = x @ x\nprint('ready', flush=True)\nwhile goes_on():\n"
    "    for _ in range(20): y = (x @ x)\n    gt.synchronize()"
)
PAUSES = (
    LOOP
    + "import time\nx = gt.ones(3)\nprint('ready', flush=True)\nwhile goes_on():\n    x = x + 1\n    time.sleep(0.003)"
)
IDLE = LOOP + "x = gt.ones(3).sum().item()\nprint('ready', flush=True)\nsys.stdin.read()"


def explained(socket: Path | str, session: int, *options: str, program: tuple[str, ...] = ()) -> dict[str, Any]:
    words = [*(program or (str(GTCTL), "explain")), str(session), "--socket", str(socket), "--json", *options]
    done = subprocess.run(
        words, env=environment(GT_DAEMON=str(gtd())), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def explained_first(first: str, socket: Path | str, process: subprocess.Popen[str], seconds: str) -> dict[str, Any]:
    """Measures until the reason comes first: on a busy machine, a program is now and then stopped by others."""
    last: list[dict[str, Any]] = []

    def comes_first() -> bool:
        last[:] = [explained(socket, session_of(socket, process), "-s", seconds)]
        return last[0]["findings"][0]["kind"] == first

    try:
        eventually(comes_first, f"{first} is the first finding")
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None
    return last[0]


def session_of(socket: Path | str, process: subprocess.Popen[str]) -> int:
    done = subprocess.run(
        [GTCTL, "--socket", socket, "--json", "sessions"], capture_output=True, text=True, check=True, timeout=60
    )
    (session,) = [found["id"] for found in json.loads(done.stdout) if found["pid"] == process.pid]
    return session


@contextmanager
def running(program: str, socket: Path | str, **env: str) -> Iterator[subprocess.Popen[str]]:
    with started(program, GT_SOCKET=str(socket), GT_DAEMON=str(gtd()), **env) as process:
        assert line_of(process) == "ready"
        yield process


def fractions(document: dict[str, Any]) -> dict[str, float]:
    parts = {found["kind"]: found["fraction"] for found in document["findings"] if found["fraction"] is not None}
    assert sum(parts.values()) == pytest.approx(1.0)
    assert list(parts.values()) == sorted(parts.values(), reverse=True)
    return parts


@pytest.mark.parametrize(
    ("program", "first"), [(FETCHES, "fetch"), (PRODUCTS, "operations"), (PAUSES, "issuing"), (IDLE, "idle")]
)
def test_the_reason_of_a_program_comes_first(program: str, first: str, tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", "cpu:1"), running(program, socket) as process:
        if first == "fetch":
            document = explained(socket, session_of(socket, process), "-s", "0.5")
        else:
            document = explained_first(first, socket, process, "0.5")
    found = document["findings"]
    if first == "fetch" and found[0]["kind"] == "issuing":
        # On a busy machine the program itself is stopped for milliseconds, which are no round trips.
        assert found[0]["figures"]["longest_pause_ns"] > 1e6
        del found[0]
    else:
        assert fractions(document)[first] > 0.3
    assert found[0]["kind"] == first, document
    figures = found[0]["figures"]
    if first == "fetch":
        assert document["instructions"] / 3 > figures["fetches"] > 10
        assert "of the waits are at <string>:7 in <module>" in found[0]["sentence"]
    elif first == "operations":
        assert figures["operations"][0]["operation"] == "matmul"
    elif first == "issuing":
        assert figures["longest_pause_ns"] >= 3e6


def test_one_of_two_workers_computes_alone(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    # Each product needs the one before and is too small to be divided, so they stay at one worker.
    program = PRODUCTS.replace("500, 500", "120, 120").replace("(x @ x)", "y @ x / 120")
    whole = {"GT_SHARD_BYTES_MIN": str(1 << 30)}
    with daemon(socket, "--workers", "cpu:2", **whole), running(program, socket) as process:
        document = explained_first("one_worker", socket, process, "0.5")
    assert fractions(document)["one_worker"] > 0.3
    assert document["findings"][0]["figures"]["worker"].startswith("cpu:")
    assert len(document["findings"][0]["figures"]["idle"]) == 1


def test_three_others_take_most_of_the_time(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with (
        daemon(socket, "--workers", "cpu:1"),
        running(PRODUCTS, socket) as one,
        running(PRODUCTS, socket) as two,
        running(PRODUCTS, socket) as three,
        running(PRODUCTS, socket) as four,
    ):
        document = explained_first("others", socket, four, "1")
        others = {session_of(socket, process) for process in (one, two, three)}
    first = document["findings"][0]
    assert 0.4 < fractions(document)["others"] < 0.95
    assert {found["session"] for found in first["figures"]["sessions"]} <= others
    assert not first["figures"]["is_estimate"]


def test_the_text_is_sentences(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", "cpu:1"), running(PAUSES, socket) as process:
        program = [sys.executable, "-m", "gt.scripts.explain", str(session_of(socket, process)), "-s", "0.3"]
        words = [*program, "--socket", str(socket)]
        done = subprocess.run(
            words, env=environment(GT_DAEMON=str(gtd())), capture_output=True, text=True, timeout=60, check=True
        )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("session ")
    assert "instructions" in lines[0]
    assert lines[2].startswith("1. The workers wait for the program for ")
    assert lines[3].startswith("   Let Python do less between operations")


def test_a_block_knows_its_lines() -> None:
    x = gt.ones(3)
    with gt.debug.explain(io.StringIO()) as explanation:
        for _ in range(200):
            (x + 1).sum().item()
    found = {finding["kind"]: finding for finding in explanation.findings}
    assert found["fetch"]["figures"]["fetches"] == 200
    assert "test_explain.py" in found["fetch"]["figures"]["lines"][0]["line"]
    assert found["fetch"]["figures"]["lines"][0]["line"].endswith("test_a_block_knows_its_lines")
    assert sum(finding["fraction"] or 0 for finding in explanation.findings) == pytest.approx(1.0)


def test_a_block_of_products_is_the_good_case() -> None:
    x = gt.ones(500, 500)
    file = io.StringIO()
    with gt.debug.explain(file) as explanation:
        for _ in range(60):
            x @ x
    kinds = [finding["kind"] for finding in explanation.findings]
    assert kinds[0] in ("operations", "one_worker", "others"), explanation.findings
    assert "matmul" in file.getvalue()
    assert file.getvalue().startswith(("0.", "1.", "2.", "3."))


def test_an_error_in_a_block_is_raised_as_ever() -> None:
    with pytest.raises(ZeroDivisionError), gt.debug.explain(io.StringIO()) as explanation:
        1 / 0  # noqa: B018
    assert {finding["kind"] for finding in explanation.findings} <= {"idle", "issuing", "fetch", "operations"}
    assert explanation.findings


def test_a_session_that_ends_meanwhile_is_explained_until_then(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", "cpu:1"), running(PRODUCTS, socket) as process:
        words = [GTCTL, "--socket", socket, "explain", str(session_of(socket, process)), "-s", "60"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as explaining:
            assert "captures for" in explaining.stderr.readline()
            process.terminate()
            out, errors = explaining.communicate(timeout=60)
    assert (explaining.returncode, errors) == (0, "")
    assert "The session ended meanwhile; this is about the time until then." in out


def refusal(*words: str, **how: Any) -> tuple[int, str]:
    done = subprocess.run([GTCTL, *words], capture_output=True, text=True, timeout=60, check=False, **how)
    return done.returncode, done.stderr


def test_what_cannot_be_explained_is_said(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    code, said = refusal("--socket", str(socket), "explain", "1")
    assert (code, "no daemon listens at" in said) == (3, True)
    with daemon(socket, "--workers", "cpu:1") as server, running(IDLE, socket) as process:
        code, said = refusal("--socket", str(socket), "explain", "99")
        assert (code, "there is no session 99" in said) == (6, True)
        words = [GTCTL, "--socket", socket, "explain", str(session_of(socket, process)), "-s", "60"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as explaining:
            assert "captures for" in explaining.stderr.readline()
            server.send_signal(signal.SIGKILL)
            _, errors = explaining.communicate(timeout=60)
    assert explaining.returncode == 1
    assert "ended while session" in errors


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be other users")
def test_a_user_sees_his_own_session_alone() -> None:
    socket = f"@gt-test-explain-{os.getpid()}"
    other_user = {"user": 65534, "group": 65534, "extra_groups": []}
    program = (
        "import io, os, gt\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "x = gt.ones(3)\n"
        "with gt.debug.explain(io.StringIO()) as explanation:\n"
        "    for _ in range(100): (x + 1).sum().item()\n"
        "found = {finding['kind']: finding for finding in explanation.findings}\n"
        "print(found['fetch']['figures']['fetches'], found['fetch']['figures']['lines'][0]['line'])"
    )
    with daemon(socket, "--workers", "cpu:1"), running(FETCHES, socket) as process:
        session = session_of(socket, process)
        code, said = refusal("--socket", socket, "explain", str(session), "-s", "0.1", **other_user)
        assert code == 4
        assert f"session {session} is user 0's: only that user, the daemon's user and root may see what it does" in said
        assert output_of(program, GT_SOCKET=socket, GT_DAEMON=str(gtd())) == "100 <string>:5 in <module>\n"


def test_a_block_of_a_program_by_tcp_is_explained(tmp_path: Path) -> None:
    program = (
        "import io, gt, os\ngt.connect(os.environ['ADDRESS'], token=os.environ['TOKEN'])\nx = gt.ones(3)\n"
        "with gt.debug.explain(io.StringIO()) as explanation:\n"
        "    for _ in range(100): (x + 1).sum().item()\n"
        "found = {finding['kind']: finding for finding in explanation.findings}\n"
        "print(explanation.findings[0]['kind'], found['fetch']['figures']['fetches'])"
    )
    with server(tmp_path) as remote:
        told = output_of(
            program, ADDRESS=remote.address, TOKEN=TOKEN, XDG_CONFIG_HOME=str(tmp_path), GT_DAEMON=str(gtd())
        )
    assert told.split()[1] == "100"
