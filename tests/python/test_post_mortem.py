"""`gtctl post-mortem`: what the daemon, a worker or a program was doing survives that it was killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import alive, daemon, environment, eventually, gtd, line_of, python, started, wait_for_exit

GTCTL = gtd().with_name("gtctl")
NO_SESSION, NOT_PERMITTED = 6, 4
# Issues small operations, then products that take long and one behind the other.
WORKLOAD = """
import gt
x = gt.ones(4)
for _ in range(100): x = x + 1
a = gt.rand(2000, 2000)
(a @ a).sum().item()
print(x.sum().item(), flush=True)
for _ in range(PRODUCTS): a = (a @ a) * 1e-3
a.sum().item()
"""
NOBODY = 65534


def post_mortem(folder: Path | None, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    env = environment(GT_RECORDINGS=str(folder) if folder else None)
    command = [str(GTCTL), "post-mortem", *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False, **options)


def document(folder: Path, *words: object) -> Any:
    done = post_mortem(folder, "--json", *words)
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)


def status(socket: Path | str) -> Any:
    done = subprocess.run([GTCTL, "--socket", socket, "--json", "status"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def runs_a_product(socket: Path | str) -> bool:
    running = status(socket)["workers"][0]["running"]
    return bool(running) and running["step"] == "matmul"


@contextmanager
def serving(tmp_path: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A daemon that has begun to serve, and so to record."""
    with daemon(tmp_path / "gtd.sock", GT_RECORDINGS=str(folder)) as service:
        assert status(tmp_path / "gtd.sock")["sessions"] == []
        yield service


@contextmanager
def working(tmp_path: Path, workers: str) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str], Path]]:
    """A daemon, and a program of session 1 whose product the worker runs; the folder of recordings."""
    socket, folder = tmp_path / "gtd.sock", tmp_path / "recordings"
    with (
        daemon(socket, "--workers", workers, GT_RECORDINGS=str(folder)) as service,
        started(WORKLOAD.replace("PRODUCTS", "100_000"), GT_SOCKET=str(socket)) as program,
    ):
        assert line_of(program) == "404.0"

        eventually(lambda: runs_a_product(socket), "the worker runs a product")
        yield service, program, folder


def assert_a_product_ran(told: Any, session: int, *, with_lines: bool = True) -> None:
    (running,) = told["running"]
    assert (running["operation"], running["session"]) == ("matmul", session)
    assert running["out"] == "float32[2000,2000]"
    # The lines are in the program's memory, which a daemon that is killed cannot save.
    assert running["line"] == ("<string>:8 in <module>" if with_lines else None)
    assert running["for_ns"] >= 0
    kinds = {step["operation"] for step in told["queued"]}
    assert kinds
    assert kinds <= {"matmul", "mul", "sync", "sum", "fetch"}
    assert all(step["session"] == session for step in told["queued"])
    assert 0 < told["events"] <= 10_000


def test_a_killed_daemon_s_last_events_survive(tmp_path: Path) -> None:
    with working(tmp_path, "cpu:1") as (service, program, folder):
        session = status(tmp_path / "gtd.sock")["sessions"][0]["id"]
        service.kill()
        service.wait()
        assert "DisconnectedError" in program.communicate(timeout=60)[1]
        told = document(folder)
        assert told["what"] == f"the daemon, process {service.pid}, was killed, or it crashed"
        assert told["death"] is None
        assert_a_product_ran(told, session, with_lines=False)
        assert any("op=rand" in line or "op=matmul" in line for line in told["last_events"])
        text = post_mortem(folder).stdout
        assert "matmul" in text
        assert "steps behind it" in text
        # The events before, of that session alone, as text that gtctl visualize draws.
        log, picture = tmp_path / "tape.log", tmp_path / "timeline.svg"
        told = document(folder, session, "-n", 100_000, "-o", log)
        products = [line for line in told["last_events"] if "WORKER_RECV" in line and "op=matmul" in line]
        assert products
        assert all("took=" in line for line in products)
        subprocess.run([GTCTL, "visualize", log, "-o", picture], check=True, capture_output=True)
        assert picture.stat().st_size > 0


def test_a_killed_program_s_last_events_are_kept(tmp_path: Path) -> None:
    with working(tmp_path, "cpu:1") as (_, program, folder):
        session = status(tmp_path / "gtd.sock")["sessions"][0]["id"]
        program.kill()
        told = eventually(lambda: post_mortem(folder, "--json").returncode == 0 and document(folder), "the recording")
        assert (told["death"]["what"], told["death"]["session"]) == ("client", session)
        assert told["death"]["process"] == program.pid
        assert told["what"].startswith(f"the program of session {session}, process {program.pid} of ")
        assert_a_product_ran(told, session)


@pytest.mark.parametrize("how", ["killed", "at its end"])
def test_a_private_daemon_keeps_the_events_of_its_killed_program(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "recordings"
    program_text = WORKLOAD.replace("PRODUCTS", "100_000" if how == "killed" else "2")
    with started(program_text, GT_DAEMON=str(gtd()), GT_RECORDINGS=str(folder)) as program:
        assert line_of(program) == "404.0"
        (own,) = folder.iterdir()

        service = int(own.name.removesuffix(".flight").split("-")[2])
        if how == "killed":
            words = Path(f"/proc/{service}/cmdline").read_text().split("\0")
            eventually(lambda: runs_a_product(words[words.index("--name") + 1]), "the worker runs a product")
            program.kill()
        program.communicate(timeout=120)
        wait_for_exit(service)
    assert not alive(service)
    if how == "killed":
        told = document(folder)
        assert (told["death"]["what"], told["death"]["process"]) == ("client", program.pid)
    else:
        assert list(folder.iterdir()) == []


def test_a_killed_worker_s_last_events_are_kept(tmp_path: Path) -> None:
    with working(tmp_path, "proc-cpu:1") as (_, program, folder):
        session = status(tmp_path / "gtd.sock")["sessions"][0]["id"]
        os.kill(status(tmp_path / "gtd.sock")["workers"][0]["process"], 9)
        told = eventually(lambda: post_mortem(folder, "--json").returncode == 0 and document(folder), "the recording")
        assert (told["death"]["what"], told["death"]["worker"]) == ("worker", 0)
        assert "killed by signal 9" in told["what"]
        assert_a_product_ran(told, session)
        program.kill()


def test_a_daemon_that_ends_as_it_should_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    with serving(tmp_path, folder) as service:
        assert len(list(folder.iterdir())) == 1
        # The recording of a daemon that lives is of no death.
        assert post_mortem(folder).returncode == 1
        service.terminate()
        service.wait()
    assert list(folder.iterdir()) == []


def test_recordings_are_listed_newest_first(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    processes = []
    for _ in range(6):
        with serving(tmp_path, folder) as service:
            processes.append(service.pid)
    recordings = document(folder, "--list")["recordings"]
    # The oldest are deleted.
    assert [recording["daemon_process"] for recording in recordings] == processes[:1:-1]
    assert post_mortem(folder, "--list").stdout.count("was killed, or it crashed") == 4


def test_what_cannot_be_shown_is_said_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    missing = post_mortem(folder)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"gtctl: there is no recording in {folder}: nothing has died there")
    with serving(tmp_path, folder):
        pass
    (file,) = folder.iterdir()
    assert "no step had begun" in post_mortem(folder).stdout
    none_of_it = post_mortem(folder, 7)
    assert none_of_it.returncode == NO_SESSION
    assert none_of_it.stderr.startswith("gtctl: none of the 1 recordings has an event of session 7")
    truncated, foreign = tmp_path / "truncated.flight", tmp_path / "foreign.flight"
    truncated.write_bytes(file.read_bytes()[:5000])
    foreign.write_bytes(bytes(file.stat().st_size))
    for bad, why in (
        (truncated, "it is no whole recording: it has 5000 bytes"),
        (foreign, "it is no recording of this version of GT"),
        (tmp_path / "absent", "No such file"),
    ):
        told = post_mortem(folder, "--file", bad)
        assert told.returncode == 1
        assert told.stderr.startswith(f"gtctl: {bad} cannot be shown: {why}"), told.stderr
    # One bad file among the recordings does not hide the others.
    (folder / "client-000000000000001-1.flight").write_bytes(b"short")
    told = post_mortem(folder)
    assert told.returncode == 0
    assert "client-000000000000001-1.flight: it is no whole recording: it has 5 bytes" in told.stdout
    file.unlink()
    assert "and this file is none" in post_mortem(folder).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's identity: root alone may")
def test_recordings_of_others_are_not_shown(tmp_path: Path) -> None:
    folder = Path("/dev/shm") / f"gt-test-{os.getpid()}"
    try:
        with serving(tmp_path, folder):
            pass
        (file,) = folder.iterdir()
        assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
        told = post_mortem(folder, "--file", file, user=NOBODY, group=NOBODY)
        assert told.returncode == NOT_PERMITTED
        assert told.stderr.startswith(f"gtctl: {file} is another user's, and you may not read it")
        told = post_mortem(folder, user=NOBODY, group=NOBODY)
        assert told.returncode == NOT_PERMITTED
        assert told.stderr.startswith(f"gtctl: the recordings in {folder} cannot be read: Permission denied")
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_a_daemon_without_a_folder_serves_all_the_same(tmp_path: Path) -> None:
    program = "import gt; print(gt.ones(3).sum().item())"
    done = python(program, GT_DAEMON=str(gtd()), GT_RECORDINGS=str(tmp_path / "no" / "such"))
    assert (done.stdout, done.stderr) == ("3.0\n", "")
