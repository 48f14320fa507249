"""`gt.profiler` and `gt.debug.get_worker_stats()`: operations are counted and timed as the tape has them."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from support import TOKEN, daemon, gtd, output_of, server

import gt
from gt.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler


def test_operations_are_counted_and_timed() -> None:
    a = gt.ones(64, 64)
    with profile() as prof:
        with record_function("products"):
            for _ in range(30):
                a = (a @ a) * (1 / 64)
        assert a.sum().item() > 0
    rows = {row.key: row for row in prof.key_averages()}
    assert {key: rows[key].count for key in ("matmul", "mul", "sum", "fetch", "products")} == {
        "matmul": 30,
        "mul": 30,
        "sum": 1,
        "fetch": 1,
        "products": 1,
    }
    assert rows["matmul"].self_cpu_time_total > 0
    assert rows["matmul"].cpu_time == rows["matmul"].cpu_time_total / 30
    assert rows["products"].is_user_annotation
    assert (rows["products"].self_cpu_time_total, rows["products"].cpu_time_total > 0) == (0, True)
    assert prof.key_averages().total_average().count == sum(
        row.count for row in rows.values() if not row.is_user_annotation
    )
    names = [event.name for event in prof.events() if event.device is not None]
    assert names.index("sum") > names.index("matmul")
    starts = [event.start_us for event in prof.events()]
    assert starts == sorted(starts)


def test_the_table_is_sorted_and_limited() -> None:
    with profile() as prof:
        for _ in range(5):
            gt.ones(32).exp()
        gt.ones(8, 8).sum().item()
    lines = prof.key_averages().table(sort_by="count", row_limit=1).splitlines()
    assert lines[1].split()[0] == "Name"
    assert lines[3].split()[0] in ("exp", "full")
    assert len(lines) == 6
    assert lines[-1].startswith("Self CPU time total: ")
    assert "Name" in str(prof.key_averages())
    with pytest.raises(ValueError, match="there is no column 'size' to sort by"):
        prof.key_averages().table(sort_by="size")


def test_a_trace_is_exported(tmp_path: Path) -> None:
    with profile() as prof, record_function("block"):
        gt.ones(8, 8).matmul(gt.ones(8, 8)).tolist()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    with gzip.open(tmp_path / "trace.json.gz") as file:
        assert json.load(file) == trace
    (block,) = [event for event in trace["traceEvents"] if event["name"] == "block"]
    products = [event for event in trace["traceEvents"] if event["name"] == "matmul" and event["pid"] == 3]
    assert len(products) == 1
    # The program waits for the product within the block: their clocks are one.
    assert block["ts"] <= products[0]["ts"] + products[0]["dur"] <= block["ts"] + block["dur"]


def test_a_schedule_records_some_steps(tmp_path: Path) -> None:
    actions = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    short = {
        ProfilerAction.NONE: "-",
        ProfilerAction.WARMUP: "w",
        ProfilerAction.RECORD: "r",
        ProfilerAction.RECORD_AND_SAVE: "s",
    }
    assert "".join(short[actions(step)] for step in range(12)) == "--wrs-wrs---"
    counts = []

    def ready(prof: profile) -> None:
        counts.append(Counter(event.name for event in prof.events())["exp"])
        tensorboard_trace_handler(str(tmp_path), "worker")(prof)

    with profile(schedule=actions, on_trace_ready=ready) as prof:
        for step in range(12):
            for _ in range(step):
                gt.ones(4).exp()
            prof.step()
    assert counts == [3 + 4, 7 + 8]
    assert len(list(tmp_path.glob("worker.*.pt.trace.json"))) == 2
    with pytest.raises(ValueError, match="active=0 at least 1"):
        schedule(wait=0, warmup=0, active=0)


def test_shapes_and_memory_of_operations_are_those_of_the_program() -> None:
    weights, batch = gt.rand(64, 10), gt.rand(32, 64)
    with profile(record_shapes=True, profile_memory=True) as prof:
        for rows in (32, 16, 16):
            logits = batch[:rows] @ weights
            (logits + logits).sum().item()
    products = [row for row in prof.key_averages(group_by_input_shape=True) if row.key == "matmul"]
    assert {row.input_shapes: row.count for row in products} == {((32, 64), (64, 10)): 1, ((16, 64), (64, 10)): 2}
    assert {row.input_shapes: row.cpu_memory_usage for row in products} == {
        ((32, 64), (64, 10)): 32 * 10 * 4,
        ((16, 64), (64, 10)): 2 * 16 * 10 * 4,
    }
    (whole,) = [row for row in prof.key_averages() if row.key == "matmul"]
    assert (whole.count, whole.input_shapes, whole.self_cpu_memory_usage) == (3, (), 64 * 10 * 4)
    table = prof.key_averages(group_by_input_shape=True).table()
    for text in ("CPU Mem", "1.25 KB", "Input Shapes", "[[16, 64], [64, 10]]"):
        assert text in table, text
    with profile() as plain:
        (weights + weights).sum().item()
    assert not any(event.input_shapes or event.memory_bytes for event in plain.events())


def test_sequences_that_repeat_are_counted() -> None:
    before = gt.debug.get_worker_stats()
    x = gt.rand(37)
    for _ in range(40):
        ((x + 1) * 2).sum().item()
    (worker,) = gt.debug.get_worker_stats().values()
    (earlier,) = before.values()
    more = {key: worker[key] - earlier[key] for key in worker if key.endswith(("_sequences", "_instructions"))}
    assert more["hot_instructions"] + more["cold_instructions"] == 1 + 40 * 3
    assert more["unique_sequences"] == more["hot_sequences"] == 1
    # It is found when it has come twice, and 16 instructions and an anchor of eight were the same.
    assert more["hot_instructions"] >= 90
    assert worker["cache_hits"] + worker["cache_misses"] == worker["hot_instructions"]


def test_what_the_tape_lacks_is_said() -> None:
    with pytest.warns(UserWarning, match="with_flops, with_modules has no effect"):
        prof = profile(with_flops=True, with_modules=True)
    with pytest.raises(RuntimeError, match="has recorded nothing yet"):
        prof.key_averages()


def test_a_block_is_a_decorator_without_a_profiler() -> None:
    @record_function("named")
    def double(x: int) -> int:
        return double(x - 1) + 2 if x else 0

    assert double(3) == 6


def test_the_program_of_another_user_sees_its_own_session() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to run a program as another user")
    socket = f"@gt-test-profiler-{os.getpid()}"
    program = (
        "import os, gt, gt.profiler\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "with gt.profiler.profile() as prof: x = gt.ones(3) + 1\n"
        "print([row.count for row in prof.key_averages() if row.key == 'add'])\n"
        "print(gt.debug.get_worker_stats()['cpu:0']['operations']['add']['count'])"
    )
    with daemon(socket, "--workers", "cpu:1"):
        assert output_of(program, GT_SOCKET=socket, GT_DAEMON=str(gtd())).splitlines() == ["[1]", "1"]


def test_statistics_are_those_of_the_log(tmp_path: Path) -> None:
    program = (
        "import json, gt\na = gt.ones(64, 64)\nfor _ in range(50): a = (a @ a) * 1e-2\n"
        "x = gt.tensor([1]) // gt.tensor([0])\n"
        "try: x.tolist()\nexcept RuntimeError: pass\n"
        "print(json.dumps(gt.debug.get_worker_stats()['cpu:0']))"
    )
    log = tmp_path / "ops.log"
    stats = json.loads(output_of(program, GT_INSTRUCTION_LOG=str(log), GT_WORKERS="cpu:1", GT_DAEMON=str(gtd())))
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        columns = [column.strip() for column in line.split(" | ")]
        fields = dict(pair.split("=") for pair in columns[6].partition("  # ")[0].split())
        if columns[2] in ("WORKER_RECV", "WORKER_RUN"):
            counts[fields["op"]] += 1
            times[fields["op"]] += int(fields.get("took") or fields.get("estimate") or 0)
    operations = stats["operations"]
    # Questions about the statistics wait for what was issued, by one sync each.
    for op in set(counts) - {"sync"}:
        assert (operations[op]["count"], operations[op]["time_ns"]) == (counts[op], times[op]), op
    assert operations["matmul"]["count"] == 50
    assert operations["floor_divide"]["errors"] == 1
    assert stats["total_instructions"] == sum(done["count"] for done in operations.values())


def test_statistics_are_printed() -> None:
    file = io.StringIO()
    gt.ones(3).exp().tolist()
    gt.debug.print_worker_stats(file)
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["worker", "operation", "count", "ms", "bytes", "errors"]
    assert any(line.split()[1:2] == ["exp"] for line in lines)
    assert lines[-1].endswith(" instructions")


def test_a_program_by_tcp_is_profiled(tmp_path: Path) -> None:
    program = (
        "import gt\nwith gt.profiler.profile() as prof: x = (gt.ones(3) + 1).sum().item()\n"
        "print([row.count for row in prof.key_averages() if row.key == 'add'])"
    )
    with server(tmp_path) as remote:
        env = {"GT_CONNECT": remote.address, "GT_TOKEN": TOKEN, "XDG_CONFIG_HOME": str(tmp_path / "config")}
        assert output_of(program, GT_DAEMON=str(gtd()), **env) == "[1]\n"
