"""Lines of Python: errors, the tensors that are alive and profiles name the line that issued an operation."""

from __future__ import annotations

import inspect
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import daemon, gtd, output_of, python

import gt
from gt.profiler import profile

FILE = str(Path(__file__))
# The newest instructions whose lines are known.
LINES_KEPT = 65_536


def here(below: int = 0) -> str:
    """The line of the caller, or one `below` it, as errors name it."""
    frame = inspect.stack()[1]
    return f"{FILE}:{frame.lineno + below} in {frame.function}"


def message(fetch: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as raised:
        fetch()
    return str(raised.value)


def divided() -> tuple[gt.Tensor, str]:
    line = here(1)
    return gt.tensor([1]) // gt.tensor([0]), line


def test_an_error_found_at_a_fetch_names_the_line_that_issued_the_operation() -> None:
    x, line = divided()
    y = (x + 1).sum()
    text = message(y.item)
    assert "floor_divide (instruction #" in text
    assert text.endswith(f"ZeroDivisionError: integer division by zero\nissued at: {line}")


def test_the_line_is_the_program_s_not_the_package_s() -> None:
    model = gt.nn.Sequential(gt.nn.Embedding(10, 4), gt.nn.Linear(4, 2))
    line = here(1)
    y = model(gt.tensor([100]))
    assert message(y.tolist).endswith(f"issued at: {line}")


def test_a_module_of_the_program_is_named_itself() -> None:
    class Lookup(gt.nn.Module):
        def forward(self, index: gt.Tensor) -> gt.Tensor:
            self.line = here(1)
            return gt.nn.functional.embedding(index, gt.ones(10, 4))

    lookup = Lookup()
    y = gt.nn.Sequential(lookup)(gt.tensor([100]))
    assert message(y.tolist).endswith(f"issued at: {lookup.line}")


def test_lines_of_callbacks_generators_and_threads_are_known() -> None:
    zero = gt.tensor([0])

    def quotients() -> Iterator[tuple[gt.Tensor, str]]:
        yield gt.tensor([1]) // zero, here()

    (x,), line = map(lambda one: one // zero, [gt.tensor([1])]), here()  # noqa: C417 (a call from C)
    assert message(x.tolist).endswith(f"issued at: {line.split(' in ')[0]} in <lambda>")
    for x, line in quotients():
        assert message(x.tolist).endswith(f"issued at: {line}")
    found: list[tuple[gt.Tensor, str]] = []
    thread = threading.Thread(target=lambda: found.append(divided()))
    thread.start()
    thread.join()
    assert message(found[0][0].tolist).endswith(f"issued at: {found[0][1]}")


def test_an_in_place_operation_s_line_is_known() -> None:
    x = gt.tensor([1])
    line = here(1)
    x //= 0
    assert message(x.tolist).endswith(f"issued at: {line}")


def test_a_line_of_long_ago_is_said_to_be_forgotten() -> None:
    bad, _ = divided()
    x = bad + 1
    del bad
    for _ in range(LINES_KEPT):
        gt.ones(1)
    assert message(x.tolist).endswith(
        "issued at: a line that is no longer known, since more than 65536 operations were issued after it"
    )


def test_a_tensor_that_is_alive_keeps_its_line() -> None:
    x, line = divided()
    for _ in range(LINES_KEPT):
        gt.ones(1)
    assert message(x.tolist).endswith(f"issued at: {line}")


def test_lines_are_not_recorded_while_that_is_turned_off() -> None:
    assert gt.debug.record_lines(False)
    try:
        x, _ = divided()
    finally:
        assert not gt.debug.record_lines(True)
    assert "issued at" not in message(x.tolist)


def test_code_that_comes_and_goes_does_not_take_another_s_line() -> None:
    zero = gt.tensor([0])
    for number in range(5000):
        space = {"gt": gt, "zero": zero}
        exec(compile(f"def f(): return gt.tensor([{number}]) // zero", f"<{number}>", "exec"), space)
        x = space["f"]()
    assert message(x.tolist).endswith("issued at: <4999>:1 in f")


def test_gt_traceback_shows_the_whole_stack() -> None:
    program = (
        "import gt\ndef divide():\n    return gt.tensor([1]) // gt.tensor([0])\n"
        "def twice():\n    return divide() * 2\nprint(twice().tolist())\n"
    )
    told = python(program, GT_TRACEBACK="1", GT_DAEMON=str(gtd())).stderr
    assert told.endswith(
        'issued at (most recent call last):\n  File "<string>", line 6, in <module>\n'
        '  File "<string>", line 5, in twice\n  File "<string>", line 3, in divide\n'
    )


def test_out_of_memory_names_the_lines_that_hold_most(tmp_path: Path) -> None:
    program = """
import gt
def activation():
    return gt.rand(512, 1024)
kept = [activation() for _ in range(9)]
weights = gt.rand(1024, 1024)
small = gt.rand(16)
bias = gt.rand(1024)
kept[0].sum().item()
big = gt.rand(64, 1024, 1024)
try:
    (big * 2).sum().item()
except gt.OutOfMemoryError as error:
    print(error)
"""
    with daemon(tmp_path / "gtd.sock", "--workers", "cpu:1", "--memory", "64M"):
        told = output_of(program, GT_SOCKET=str(tmp_path / "gtd.sock"))
    assert "out of memory: 256.00 MiB asked for" in told
    lines = told.splitlines()
    assert lines[1:] == [
        "issued at: <string>:10 in <module>",
        "of the 22.00 MiB that this session's 12 older tensors hold, most was issued at:",
        "  <string>:4 in activation: 18.00 MiB in 9 tensors",
        "  <string>:6 in <module>: 4.00 MiB in 1 tensor",
        "  <string>:8 in <module>: 4.00 KiB in 1 tensor",
        "(gt.debug.memory_summary() lists the tensors that are alive, by line)",
    ]


def alive_at(line: str) -> tuple[int, int]:
    """The tensors, and their bytes, of the line that `here` gave, in whichever function on it."""
    place = line.split(" in ")[0]
    held = [held for held in gt.debug.memory_snapshot() if held["line"].split(" in ")[0] == place]
    return sum(of["tensors"] for of in held), sum(of["bytes"] for of in held)


def test_what_is_alive_is_summed_by_line() -> None:
    kept, line = [gt.rand(100) for _ in range(3)], here()
    assert alive_at(line) == (3, 1200)
    view = kept[0][:5]
    del kept
    # A view keeps its tensor.
    assert alive_at(line) == (1, 400)
    del view
    assert alive_at(line) == (0, 0)


def test_what_the_autograd_graph_saves_is_alive() -> None:
    x = gt.rand(1000, requires_grad=True)
    line = here(1)
    y = x.exp().exp().sum()
    assert alive_at(line)[1] >= 2 * 4000
    del y
    assert alive_at(line) == (0, 0)


def test_the_summary_lists_the_largest_first() -> None:
    large, small = gt.rand(3 << 18), gt.rand(1000)
    file = io.StringIO()
    gt.debug.memory_summary(file, row_limit=-1)
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["bytes", "tensors", "issued", "at"]
    (row,) = [line for line in lines if line.startswith("3.0 MiB")]
    assert f"{FILE}:" in row
    assert "tensors are alive, with elements of" in lines[-1]
    assert "held for this session: cpu:0" in lines[-1]
    gt.debug.memory_summary(file, row_limit=1)
    assert "more lines with" in file.getvalue()
    del large, small


def test_a_snapshot_for_pytorch_s_viewer_has_a_block_for_each_tensor(tmp_path: Path) -> None:
    """The format is documented at `torch.cuda.memory._snapshot`."""
    x, line = gt.rand(1000), here()
    gt.debug.memory_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    (segment,) = snapshot["segments"]
    (trace,) = snapshot["device_traces"]
    blocks = segment["blocks"]
    (block,) = [block for block in blocks if f"{FILE}:{block['frames'][0]['line']}" == line.split(" in ")[0]]
    assert (block["requested_size"], block["size"], block["state"]) == (4000, 4096, "active_allocated")
    assert block["frames"][0]["name"] == line.split(" in ")[1]
    assert sum(block["size"] for block in blocks) == segment["total_size"] == segment["allocated_size"]
    assert [(event["addr"], event["size"]) for event in trace] == [
        (block["address"], block["size"]) for block in blocks
    ]
    addresses = [block["address"] for block in blocks]
    assert addresses == sorted(set(addresses))
    del x


def test_a_profile_with_stack_has_the_lines() -> None:
    a = gt.ones(64, 64)
    with profile(with_stack=True) as prof:
        product = here(1)
        b = a @ a
        for _ in range(3):
            b = b @ b
        b.sum().item()
    file_and_number, function = product.split(" in ")
    file, number = file_and_number.rsplit(":", 1)
    first, later = f"{file}({number}): {function}", f"{file}({int(number) + 2}): {function}"
    products = {row.stack: row.count for row in prof.key_averages(group_by_stack_n=1) if row.key == "matmul"}
    assert products == {(first,): 1, (later,): 3}
    assert sum(row.count for row in prof.key_averages() if row.key == "matmul") == 4
    table = prof.key_averages(group_by_stack_n=1).table()
    assert "Source Location" in table
    assert first in table
    fetched = f"{file}({int(number) + 3}): {function}"
    assert [event.stack for event in prof.events() if event.name == "fetch"] == [(fetched,)]


def test_a_process_without_a_session_has_no_tensors() -> None:
    assert output_of("import gt; print(gt.debug.memory_snapshot())") == "[]\n"
