"""`gtctl trace`: a capture accounts for every instruction, as text and as trace events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import daemon, environment, eventually, gtd, line_of, started

GTCTL = gtd().with_name("gtctl")
ADDITIONS, PRODUCTS = 300, 40
# Waits for a line, works, and waits for another one.
WORKLOAD = f"""
import sys, gt
a = gt.ones(64, 64)
a.sum().item()
print("ready", flush=True)
sys.stdin.readline()
x = gt.ones(4)
for i in range({ADDITIONS}): x = x + 1
for i in range({PRODUCTS}): a = (a @ a) * 1e-2
print(x.sum().item(), a.sum().item() > 0, flush=True)
sys.stdin.readline()
"""
SESSIONS, DISPATCHER, WORKERS = 1, 2, 3


@contextmanager
def capture(socket: Path, folder: Path, *options: str, program: tuple[str, ...] = ()) -> Iterator[subprocess.Popen]:
    """Runs `gtctl trace`, from the beginning of the capture on."""
    words = [*(program or (str(GTCTL), "trace")), "--socket", str(socket), "--json", "-o", str(folder), *options]
    process = subprocess.Popen(
        words, env=environment(GT_DAEMON=str(gtd())), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "captures for" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen) -> Any:
    """Ends a capture as Ctrl-C does, and returns its document."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return json.loads(out)


def lines_of(folder: Path) -> list[dict[str, str]]:
    """The events of a text, each with its fields."""
    lines = []
    for text in (folder / "tape.log").read_text().splitlines():
        columns = [column.strip() for column in text.split(" | ")]
        about, _, source = columns[6].partition("  # ")
        fields = dict(pair.split("=") for pair in about.split())
        lines.append({"event": columns[2], "who": columns[3], **fields, **({"line": source} if source else {})})
    return lines


def ask(socket: Path, *words: str) -> Any:
    done = subprocess.run([GTCTL, "--socket", socket, "--json", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, str]], list[dict[str, Any]]]:
    """The document, the lines and the trace events of a capture of the workload."""
    folder = tmp_path_factory.mktemp("capture")
    socket = folder / "gtd.sock"
    with daemon(socket, "--workers", "cpu:1"), started(WORKLOAD, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "ready"
        with capture(socket, folder / "traces", "-s", "120") as process:
            client.stdin.write("go on\n")
            client.stdin.flush()
            assert line_of(client).startswith(str(4.0 * (ADDITIONS + 1)))
            document = finished(process)
    lines = lines_of(folder / "traces")
    trace = json.loads((folder / "traces" / "trace.json").read_text())
    assert trace["otherData"] == {"lost_events": 0}
    return document, lines, trace["traceEvents"]


def test_the_text_accounts_for_every_instruction(captured: Any) -> None:
    document, lines, _ = captured
    assert document["lost"] == 0
    assert document["events"] == len(lines)
    assert document["instructions"] == sum(line["event"] == "RECV" for line in lines)
    counts = Counter((line["event"], line["op"]) for line in lines)
    for op, times in (("add", ADDITIONS), ("matmul", PRODUCTS), ("mul", PRODUCTS), ("sum", 2), ("fetch", 2)):
        assert counts["RECV", op] == times, op
        # Each was sent to a worker and completed there, or run by the dispatcher.
        for event in ("WORKER_SEND", "WORKER_RECV"):
            assert counts[event, op] + counts["WORKER_RUN", op] == times, (event, op)


def test_totals_are_those_of_the_lines(captured: Any) -> None:
    document, lines, _ = captured
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for line in lines:
        if line["event"] in ("WORKER_RECV", "WORKER_RUN"):
            counts[line["op"]] += 1
            times[line["op"]] += int(line.get("took") or line.get("estimate") or 0)
    assert {total["operation"]: total["count"] for total in document["operations"]} == counts
    assert {total["operation"]: total["time_ns"] for total in document["operations"]} == {
        op: times[op] for op in counts
    }
    assert times["matmul"] > 0
    assert {total["worker"] for total in document["operations"]} == {"cpu:0"}
    assert {total["operation"]: total["kind"] for total in document["operations"]}["matmul"] == "matmul"


def test_instructions_have_the_lines_of_the_program_and_results_their_sizes(captured: Any) -> None:
    _, lines, events = captured
    source = WORKLOAD.splitlines()

    def number(text: str) -> int:
        (found,) = [number for number, line in enumerate(source, 1) if text in line]
        return found

    for op, text in (("add", "x = x + 1"), ("matmul", "a @ a")):
        line = f"<string>:{number(text)} in <module>"
        received = [of for of in lines if (of["event"], of["op"]) == ("RECV", op)]
        assert {of.get("line") for of in received} == {line}
        slices = [event for event in events if event["ph"] == "X" and event["name"] == op]
        assert len(slices) == 2 * len(received)
        assert {event["args"].get("line") for event in slices} == {line}
    sizes = {of["op"]: of["out"] for of in lines if of["event"] in ("WORKER_SEND", "WORKER_RUN") and "out" in of}
    assert (sizes["matmul"], sizes["add"], sizes["sum"]) == ("float32[64,64]", "float32[4]", "float32[]")
    outs = {event["name"]: event["args"]["out"] for event in events if event.get("args", {}).get("out")}
    assert outs == sizes
    # A fetch is where the program waits, not where its tensor was issued.
    waits = {event["args"]["line"] for event in events if event["ph"] == "b" and event["name"] == "waits for fetch"}
    assert waits == {f"<string>:{number('print(x.sum()')} in <module>"}


def test_every_event_meets_the_format(captured: Any) -> None:
    """Google's document "Trace Event Format", for the phases that are written."""
    _, _, events = captured
    more = {"X": {"dur", "cat"}, "C": {"args"}, "M": {"args"}, "i": {"s"}, "b": {"id", "cat"}, "e": {"id", "cat"}}
    for event in events:
        assert {"ph", "name", "pid", "tid", "ts"} <= set(event), event
        assert more[event["ph"]] <= set(event), event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
    opened = Counter((event["cat"], event["id"]) for event in events if event["ph"] == "b")
    assert opened == Counter((event["cat"], event["id"]) for event in events if event["ph"] == "e")


def test_every_instruction_leads_to_its_execution(captured: Any) -> None:
    _, _, events = captured
    slices = [event for event in events if event["ph"] == "X"]
    executed = Counter(event["name"] for event in slices if event["pid"] == WORKERS)
    issued = Counter(event["name"] for event in slices if event["pid"] == SESSIONS)
    for op, times in (("add", ADDITIONS), ("matmul", PRODUCTS), ("mul", PRODUCTS), ("fetch", 2)):
        assert (executed[op], issued[op]) == (times, times), op
    begun = {event["bind_id"]: event for event in slices if event.get("flow_out")}
    ended = [event for event in slices if event.get("flow_in")]
    assert len(ended) == sum(executed.values())
    for event in ended:
        instruction = begun[event["bind_id"]]
        assert (instruction["name"], instruction["args"]["result"]) == (event["name"], event["args"]["result"])
        assert instruction["ts"] <= event["ts"]


def test_slices_are_in_order_and_nest(captured: Any) -> None:
    _, lines, events = captured
    first = int(lines[0]["at"])
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, begin + length))
            assert begin >= first - 1e9
    for spans in tracks.values():
        assert [begin for begin, _ in spans] == sorted(begin for begin, _ in spans)
        around: list[int] = []
        for begin, end in spans:
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def test_tracks_have_names_and_counters_are_there(captured: Any) -> None:
    _, _, events = captured
    names = [(event["name"], event["args"]["name"]) for event in events if event["name"].endswith("_name")]
    processes = [name for what, name in names if what == "process_name"]
    threads = [name for what, name in names if what == "thread_name"]
    assert processes == ["sessions", "dispatcher", "workers"]
    assert {"dispatcher", "cpu:0"} <= set(threads)
    assert [name for name in threads if name.startswith("session ") and "process " in name]
    queue = [event["args"]["steps"] for event in events if event["name"] == "queue of cpu:0"]
    assert (max(queue) > 0, queue[-1]) == (True, 0)
    assert max(event["args"]["bytes"] for event in events if event["name"] == "memory of cpu:0") >= 64 * 64 * 4


def test_one_session_one_format_so_many_events(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with (
        daemon(socket),
        started(WORKLOAD, GT_SOCKET=str(socket)) as one,
        started(WORKLOAD, GT_SOCKET=str(socket)) as other,
    ):
        assert (line_of(one), line_of(other)) == ("ready", "ready")
        (session,) = [found["id"] for found in ask(socket, "sessions") if found["pid"] == one.pid]
        options = ("-s", "120", "-n", "100", "--session", str(session), "--format", "text")
        # The Python program is the same.
        program = (sys.executable, "-m", "gt.scripts.trace")
        with capture(socket, tmp_path / "traces", *options, program=program) as process:
            for client in (other, one):
                client.stdin.write("go on\n")
                client.stdin.flush()
                line_of(client)
            out, _ = process.communicate(timeout=60)
    assert json.loads(out)["events"] == 100
    lines = lines_of(tmp_path / "traces")
    assert len(lines) == 100
    assert {line.get("session") or line["who"].removeprefix("CLIENT session_") for line in lines} == {str(session)}
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["tape.log"]


def test_a_running_step_is_a_slice_to_the_end(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = (
        "import gt, sys\nx = gt.ones(4000, 4000)\ny = x @ x\nprint('issued', flush=True)\n"
        "for _ in range(30): y = y @ x\nsys.stdin.readline()"
    )

    def runs_a_product() -> bool:
        return (ask(socket, "status")["workers"][0].get("running") or {}).get("step") == "matmul"

    with daemon(socket), started(program, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "issued"
        eventually(runs_a_product, "a running product")
        with capture(socket, tmp_path, "-s", "0.3") as process:
            assert process.wait(60) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    running = [event for event in events if event.get("args", {}).get("running")]
    assert [event["name"] for event in running] == ["matmul"]


def test_a_daemon_that_ends_leaves_what_was_captured(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server, started(WORKLOAD, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "ready"
        with capture(socket, tmp_path / "traces", "-s", "120") as process:
            client.stdin.write("go on\n")
            client.stdin.flush()
            line_of(client)
            server.kill()
            out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the daemon ended" in json.loads(out)["error"]["text"]
    assert Counter(line["op"] for line in lines_of(tmp_path / "traces") if line["event"] == "RECV")["add"] == ADDITIONS


def test_a_stopped_observer_changes_nothing_and_counts_what_it_lost(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = (
        "import sys, gt\nx = gt.ones(1)\nprint(x.item(), flush=True)\nsys.stdin.readline()\n"
        "for _ in range(60_000): x = x + 1\nprint(x.item(), flush=True)\nsys.stdin.readline()"
    )
    with daemon(socket), started(program, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "1.0"
        with capture(socket, tmp_path, "-s", "120") as process:
            process.send_signal(signal.SIGSTOP)
            client.stdin.write("go on\n")
            client.stdin.flush()
            assert line_of(client) == "60001.0"
            process.send_signal(signal.SIGCONT)
            document = finished(process)
    events, lost, expected = 0, 0, None
    for line in (tmp_path / "tape.log").read_text().splitlines():
        if line.endswith(" events lost"):
            gap = int(line.split()[1])
            lost += gap
            expected = None if expected is None else expected + gap
            continue
        number = int(line.split("#")[1].split()[0])
        assert expected in (None, number), line
        expected = number + 1
        events += 1
    assert (document["events"], document["lost"]) == (events, lost)
    assert lost > 60_000
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"]["lost_events"] == document["lost"]
    gaps = [event["name"] for event in trace["traceEvents"] if event["ph"] == "i"]
    assert sum(int(gap.split()[0]) for gap in gaps if gap.endswith(" events lost")) == lost


def refusal(socket: Path, *words: str, **how: Any) -> tuple[int, str]:
    done = subprocess.run(
        [GTCTL, "--socket", socket, "trace", *words], capture_output=True, text=True, timeout=60, check=False, **how
    )
    return done.returncode, done.stderr


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    code, said = refusal(socket, "-o", str(tmp_path))
    assert (code, "no daemon listens at" in said) == (3, True)
    with daemon(socket):
        code, said = refusal(socket, "-o", str(tmp_path), "--session", "99")
        assert (code, "there is no session 99" in said) == (6, True)
        (tmp_path / "file").write_text("")
        code, said = refusal(socket, "-o", str(tmp_path / "file"))
        assert (code, f"{tmp_path}/file cannot be written: File exists" in said) == (1, True)
    for wrong in (("-s", "0"), ("-s", "nan"), ("-s", "soon"), ("-n", "0"), ("--format", "xml")):
        assert refusal(socket, *wrong)[0] == 2


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to run gtctl as another user")
def test_another_user_may_not_read_the_tape() -> None:
    socket = f"@gt-test-trace-{os.getpid()}"
    with daemon(socket):
        code, said = refusal(Path(socket), "-o", "/tmp", user=65534, group=65534)
    assert code == 4
    assert "the tape shows every session: only the daemon's user and root may read it" in said
