"""`GT_INSTRUCTION_LOG`: one line per event, in order, for every instruction."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from support import output_of, python, wait_for_exit

# The daemon writes the log, and may end shortly after the client.
PROLOGUE = "import gt\nprint(gt._gt.session_info()['daemon_pid'])\n"


class Line(NamedTuple):
    seconds: float
    number: int
    event: str
    who: str
    family: str
    bytes: int
    fields: dict[str, str]
    freed: list[str]


PATTERN = re.compile(
    r"^ *(\d+\.\d{3})s \| #(\d{4,}) \| (\w+) *\| ((?:CLIENT session|WORKER worker)_\d+) *"
    r"\| ([\w-]+) *\| (\d+)B \| (op=\S+.*)$"
)


def log_of(program: str, path: Path) -> list[Line]:
    wait_for_exit(int(output_of(PROLOGUE + program, GT_INSTRUCTION_LOG=str(path)).split()[0]))
    lines = []
    for text in path.read_text().splitlines():
        found = PATTERN.match(text)
        assert found, text
        seconds, number, event, who, family, size, fields = found.groups()
        pairs = [pair.split("=") for pair in fields.split()]
        freed = [value for name, value in pairs if name == "result"] if event == "FREE" else []
        lines.append(Line(float(seconds), int(number), event, who, family, int(size), dict(pairs), freed))
    return lines


def test_the_life_of_one_addition(tmp_path: Path) -> None:
    log = log_of("a = gt.ones(3); b = gt.ones(3); c = a + b; c.tolist(); del a, b, c", tmp_path / "ops.log")
    assert log[0].event == "CONNECT"
    assert log[-1].event == "DISCONNECT"
    (received,) = [line for line in log if line.event == "RECV" and line.fields["op"] == "add"]
    assert received.family == "BinaryOp"
    assert received.bytes == 64
    result = received.fields["result"]
    about = [line.event for line in log if line.fields.get("result") == result and line.fields["op"] == "add"]
    assert about == ["RECV", "WORKER_RUN"]
    (run,) = [line for line in log if line.event == "WORKER_RUN" and line.fields["op"] == "add"]
    assert run.who == "WORKER worker_0"
    assert run.fields["out"] == "float32[3]"
    assert int(run.fields["estimate"]) > 0
    (free,) = [line for line in log if result in line.freed]
    assert (free.event, free.bytes) == ("FREE", 12 * len(free.freed))
    assert received.fields["left"] != received.fields["right"]
    assert [line for line in log if line.event == "SEND" and line.fields["op"] == "fetch"]


def test_lines_are_numbered_and_timed_without_a_gap(tmp_path: Path) -> None:
    log = log_of("for i in range(300): gt.ones(2) + i", tmp_path / "ops.log")
    assert [line.number for line in log] == list(range(log[0].number, log[0].number + len(log)))
    times = [line.seconds for line in log]
    assert times == sorted(times)


def test_a_product_is_sent_to_its_worker_and_completed_there(tmp_path: Path) -> None:
    log = log_of("a = gt.ones(1000, 1000)\n(a @ a).sum().item()", tmp_path / "ops.log")
    sent, done = [line for line in log if line.fields["op"] == "matmul" and line.event != "RECV"]
    assert (sent.event, sent.fields["out"]) == ("WORKER_SEND", "float32[1000,1000]")
    assert done.event == "WORKER_RECV"
    assert int(done.fields["took"]) > 0


def test_every_instruction_is_received_and_run_and_its_result_freed(tmp_path: Path) -> None:
    log = log_of(
        "x = gt.ones(4)\nfor i in range(500): x = x * 1 + i\nx.tolist()\ndel x\ngt.synchronize()", tmp_path / "ops.log"
    )
    counts = Counter((line.event, line.fields["op"]) for line in log)
    for op, times in (("mul", 500), ("add", 500), ("full", 1)):
        for event in ("RECV", "WORKER_RUN"):
            assert counts[event, op] == times, (event, op)
    made = {
        line.fields["result"] for line in log if line.event == "RECV" and line.fields["op"] in ("mul", "add", "full")
    }
    freed = [result for line in log for result in line.freed]
    assert len(freed) == len(set(freed))
    assert set(freed) <= made | {line.fields["result"] for line in log if "result" in line.fields}
    assert made - set(freed) == set()


def test_a_backward_pass_frees_saved_tensors(tmp_path: Path) -> None:
    def living(retain: bool) -> tuple[int, int]:
        """Returns the largest number of live tensors, and the number after the pass while the loss is alive."""
        program = (
            "x = gt.ones(50_000, requires_grad=True)\ny = x\nfor i in range(30): y = y.tanh()\ny = y.sum()\n"
            f"y.backward(retain_graph={retain})\ngt.synchronize()\ngt.arange(2)"
        )
        live = most = 0
        for line in log_of(program, tmp_path / f"ops-{retain}.log"):
            if line.event == "RECV" and line.fields["op"] == "arange":
                return most, live
            live += line.event == "RECV" and line.fields["op"] not in ("free", "sync")
            live -= len(line.freed)
            most = max(most, live)
        raise AssertionError("the log ends early")

    most, after = living(retain=False)
    # The leaf, its gradient and the loss remain; at most the saved results and one op's gradient are added.
    assert after == 3
    assert most <= 32 + 8
    assert living(retain=True)[1] == 3 + 30


@pytest.mark.parametrize("cut", ["x.chunk(3, -1)", "x.unbind(1)", "(x[:, 2:], x[:, :2])"])
def test_gradients_of_the_pieces_of_a_tensor_are_laid_side_by_side(tmp_path: Path, cut: str) -> None:
    """Checks that gradients of pieces are concatenated, not padded with zeros and added."""
    program = (
        f"x = gt.ones(4, 6, requires_grad=True)\nparts = {cut}\nloss = sum((part * part).sum() for part in parts)\n"
        "loss.backward()\nassert x.grad.tolist() == [[2.0] * 6] * 4"
    )
    counts = Counter(line.fields["op"] for line in log_of(program, tmp_path / "ops.log") if line.event == "RECV")
    assert (counts["cat"], counts["slice_scatter"]) == (1, 0)


def test_transfers_tell_their_bytes(tmp_path: Path) -> None:
    log = log_of("import numpy as np\ngt.tensor(np.zeros(1000, np.float32)).numpy()", tmp_path / "ops.log")
    sizes = {line.fields["op"]: line.bytes for line in log if line.event in ("WORKER_RUN", "SEND")}
    assert sizes["write"] == 4000
    assert sizes["fetch"] == 4000


def test_an_error_is_an_event(tmp_path: Path) -> None:
    log = log_of(
        "x = gt.tensor([1]) // gt.tensor([0])\ntry: x.tolist()\nexcept RuntimeError: pass", tmp_path / "ops.log"
    )
    errors = [line for line in log if line.event == "ERROR"]
    assert errors
    assert errors[0].fields["op"] == "floor_divide"


def test_a_burst_is_accounted_for_to_the_last_line(tmp_path: Path) -> None:
    """Logs more events than the ring holds, faster than the file is written: lost events are counted in the log."""
    path = tmp_path / "ops.log"
    program = "x = gt.ones(1)\nfor _ in range(60_000): x = x + 1\nprint(x.item())"
    pid, value = output_of(PROLOGUE + program, GT_INSTRUCTION_LOG=str(path)).split()
    wait_for_exit(int(pid))
    assert float(value) == 60_001
    expected = None
    for text in path.read_text().splitlines():
        lost = re.fullmatch(r"\.\.\. (\d+) events lost", text)
        if lost:
            assert expected is not None
            expected += int(lost.group(1))
            continue
        number = int(PATTERN.match(text).group(2))
        assert expected is None or number == expected, text
        expected = number + 1
    assert "DISCONNECT" in text


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = python("import gt; gt.ones(1)", GT_INSTRUCTION_LOG=str(tmp_path / "none" / "ops.log"))
    assert done.returncode == 1
    assert "cannot write the instruction log" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [("GT_VERBOSE", "session|connect"), ("GT_DEBUG_DISPATCHER", "dispatcher"), ("GT_DEBUG_WORKER", "worker")],
)
def test_the_daemon_s_log_messages(name: str, said: str) -> None:
    done = python("import gt; gt.ones(1).tolist(); gt.disconnect()", **{name: "1"})
    assert done.returncode == 0
    assert re.search(said, done.stderr), done.stderr


def test_what_is_fused_is_logged() -> None:
    # The daemon fuses what it has received when it begins, which may be less on a busy machine.
    program = "import gt\nfor _ in range(30): ((gt.rand(1000, 1000) + 1) * 2).relu().sum().item()"
    done = python(program, GT_DEBUG_COMPILE="1")
    assert done.returncode == 0
    assert re.search("fuses into one pass .*instructions=3", done.stderr), done.stderr


def test_the_client_s_log_messages() -> None:
    done = python("import gt; gt.ones(1).tolist()", GT_DEBUG_CLIENT="1")
    assert done.returncode == 0
    assert re.search("client|session|connect", done.stderr)


def test_silence_unless_asked() -> None:
    output_of("import gt; gt.ones(1).tolist()")  # It also checks that nothing else is printed.
