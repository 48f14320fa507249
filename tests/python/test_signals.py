"""`gt.signal`: the signal of each operation, from the daemon's log."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import groupby
from pathlib import Path

import pytest
from support import output_of, python
from test_processes import daemon

import gt

# Lines of the daemon's log: received instructions, and the numbers of the program's signals.
RECEIVED = re.compile(r"session=(\d+) command=(?:(Define)?Signal \{ signal: (\d+)|Op\(Instruction \{ op: (\w+))")


PROLOGUE = "import gt, json\nfrom gt import SignalConfig, ShardConfig\nfrom gt.signal import context, enter, exit\n"


def plain(text: str) -> str:
    """Returns a text without terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def stream(program: str, **env: str) -> list[tuple[str | None, str]]:
    """Returns the operations of a program in order, each with its signal."""
    epilogue = "\ngt.synchronize()\nprint(json.dumps(gt._sharding._numbers))"
    done = python(PROLOGUE + program + epilogue, GT_DEBUG_DISPATCHER="1", **env)
    assert done.returncode == 0, done.stderr
    names = {number: name for name, number in json.loads(done.stdout.splitlines()[-1]).items()}
    current, defined, found = {}, set(), []
    for session, define, number, op in RECEIVED.findall(plain(done.stderr)):
        if define:
            defined.add(names[int(number)])
        elif number:
            now = names.get(int(number))
            assert now != current.get(session, ""), "a signal that was current already was sent again"
            current[session] = now
        else:
            found.append((current.get(session), op.lower()))
    return [*found, ("defined", " ".join(sorted(defined)))]


def ops(program: str, **env: str) -> list[tuple[str | None, str]]:
    """Returns the operations without definitions, and with repetitions merged."""
    return [key for key, _ in groupby(stream(program, **env)[:-1])]


# Contexts -----------------------------------------------------------------------------------------------------------


def test_operations_of_a_block_are_under_its_signal_and_those_around_it_are_not() -> None:
    program = """
x = gt.ones(2)
with context("layer"):
    y = x * 2
z = y + 1
"""
    assert ops(program) == [(None, "full"), ("layer", "mul"), (None, "add")]


def test_the_innermost_context_counts_and_the_outer_counts_again_after_it() -> None:
    program = """
x = gt.ones(2)
with context("outer"):
    y = x * 2
    with context("inner"):
        y = y + 1
        with context("outer"):
            y = y - 1
    y = y / 2
enter("a"); enter("b")
y = y.exp()
exit("b")
y = y.log()
exit("a")
y = y.sqrt()
"""
    assert ops(program) == [
        (None, "full"),
        ("outer", "mul"),
        ("inner", "add"),
        ("outer", "sub"),
        ("outer", "div"),
        ("b", "exp"),
        ("a", "log"),
        (None, "sqrt"),
    ]


def test_a_signal_s_request_is_sent_once_and_when_it_changes() -> None:
    program = """
def configure(axis):
    gt.register_config("layer", SignalConfig(ShardConfig(axis=axis)))
x = gt.ones(2, 2)
configure(0)
with context("layer"):
    x = x * 2
with context("layer"):
    x = x * 2
    configure(1)
    x = x + 1
    gt.clear_config()
    x = x - 1
gt.synchronize()
gt.disconnect()
configure(0)
with context("layer"):
    gt.zeros(1)
"""
    done = python(PROLOGUE + program + "gt.synchronize()", GT_DEBUG_DISPATCHER="1")
    assert done.returncode == 0, done.stderr
    asked = re.findall(
        r"DefineSignal \{ signal: 1, requested: RequestedPlacement "
        r"\{ workers: Workers\[\], layout: (\w+(?: \{.*?\})?)",
        plain(done.stderr),
    )
    assert asked == ["Sharded { axis: 0 }", "Sharded { axis: 1 }", "Any", "Sharded { axis: 0 }"]


def test_an_unknown_signal_changes_nothing_and_is_told_of_once_if_anything_is() -> None:
    program = "import gt\nfor _ in range(2):\n  with gt.signal.context('typo'):\n    print(gt.ones(1).tolist())\n"
    assert output_of(program) == "[1.0]\n[1.0]\n"
    told = python(program, GT_VERBOSE="1").stderr
    assert len(re.findall(r"a signal for which nothing is configured: it changes nothing.*typo", told)) == 1


def test_a_context_decorates_functions_and_ends_with_an_exception() -> None:
    @gt.signal.context("decorated")
    def inside() -> str | None:
        return gt.signal.current()

    assert inside() == inside() == "decorated"
    with pytest.raises(ZeroDivisionError), gt.signal.context("failing"):
        _ = gt.signal.enter("inside"), 1 / 0
    assert gt.signal.current() is None


def test_unpaired_signals_are_errors() -> None:
    with pytest.raises(RuntimeError, match=r"exit\('a'\): no signal was entered; call gt.signal.enter\('a'\) before"):
        gt.signal.exit("a")
    gt.signal.enter("a")
    with pytest.raises(RuntimeError, match=r"exit\('b'\): the signal entered last is 'a': exit that one first"):
        gt.signal.exit("b")
    gt.signal.exit("a")
    not_exited = r"context\('a'\): 'b' was entered inside and not exited: pair each"
    with pytest.raises(RuntimeError, match=not_exited), gt.signal.context("a"):
        gt.signal.enter("b")
    with pytest.raises(RuntimeError, match=r"context\('a'\): it was exited inside"), gt.signal.context("a"):
        gt.signal.exit("a")
    assert gt.signal.current() is None


def test_names_are_strings() -> None:
    for wrong in (3, "", None):
        for call in (gt.signal.context(wrong).__enter__, lambda wrong=wrong: gt.signal.enter(wrong)):
            with pytest.raises(TypeError, match="a signal's name is a string of at least one letter, not"):
                call()
    with pytest.raises(TypeError, match=r"gt.signal.context: backward: a signal's name is a string"):
        gt.signal.context("a", backward=3).__enter__()
    with pytest.raises(ValueError, match=r"enter\('a', backward='a'\): a → a leads back"):
        gt.signal.enter("a", backward="a")
    assert gt.signal.current() is None


# Threads and tasks --------------------------------------------------------------------------------------------------


def test_each_thread_has_its_own() -> None:
    program = """
import threading
x = gt.ones(2)
turns = threading.Barrier(2)
def work(name, op):
    with context(name) if name else context("unused"):
        for _ in range(50):
            turns.wait()
            op(x)
def plain():
    for _ in range(50):
        turns.wait()
        x.exp()
for pair in ([("a", gt.sqrt), ("b", gt.log)],):
    threads = [threading.Thread(target=work, args=args) for args in pair]
    [t.start() for t in threads]; [t.join() for t in threads]
with context("main"):
    threads = [threading.Thread(target=plain), threading.Thread(target=work, args=("c", gt.sin))]
    [t.start() for t in threads]; [t.join() for t in threads]
"""
    found = stream(program)[:-1]
    assert set(found) == {(None, "full"), ("a", "sqrt"), ("b", "log"), (None, "exp"), ("c", "sin")}
    assert len(found) == 201


def test_each_task_has_its_own() -> None:
    program = """
import asyncio
x = gt.ones(2)
async def work(name, op):
    with context(name):
        for _ in range(3):
            op(x)
            await asyncio.sleep(0)
    x.exp()
async def main():
    with context("outer"):
        await asyncio.gather(work("a", gt.sqrt), work("b", gt.log), plain())
        x.cos()
    x.sin()
async def plain():
    for _ in range(3):
        x.tanh()
        await asyncio.sleep(0)
asyncio.run(main())
x.abs()
with context("after"):
    x.neg()
"""
    found = set(stream(program)[:-1])
    assert found == {
        (None, "full"),
        ("a", "sqrt"),
        ("b", "log"),
        ("outer", "exp"),
        ("outer", "tanh"),
        ("outer", "cos"),
        (None, "sin"),
        (None, "abs"),
        ("after", "neg"),
    }


def test_a_thread_that_works_for_a_task_begins_with_none_too() -> None:
    async def main() -> tuple[str | None, ...]:
        with gt.signal.context("task"):
            there = await asyncio.to_thread(nested)
            return gt.signal.current(), *there

    def nested() -> tuple[str | None, ...]:
        before = gt.signal.current()
        with gt.signal.context("inside"):
            inside = gt.signal.current()
        return before, inside, gt.signal.current()

    assert asyncio.run(main()) == ("task", None, "inside", None)
    assert gt.signal.current() is None


def test_a_forked_child_goes_on_under_the_signals_of_its_parent() -> None:
    program = """
import os
gt.register_config("layer", SignalConfig(ShardConfig(axis=0)))
x = gt.ones(2)
with context("layer"):
    y = x * 2
    gt.synchronize()
    if os.fork() == 0:
        assert (gt.ones(2) + 1).tolist() == [2, 2]
        assert gt.signal.current() == "layer"
        os._exit(0)
    assert os.wait()[1] == 0
    y = y - 1
"""
    found = stream(program)
    assert found[:-1] == [(None, "full"), ("layer", "mul"), ("layer", "full"), ("layer", "add"), ("layer", "sub")]
    assert found[-1] == ("defined", "layer")


def test_names_are_many_but_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    with gt.signal.context("known"):
        pass
    monkeypatch.setattr(gt._gt, "SIGNALS_MAX", len(gt._sharding._numbers))
    with pytest.raises(RuntimeError, match=r"a program may name \d+ signals; use the same names again"):
        gt.signal.enter("one more")
    with gt.signal.context("known"):
        assert gt.signal.current() == "known"


# Gradients ----------------------------------------------------------------------------------------------------------


def test_gradients_are_under_the_backward_signal_of_what_they_are_the_gradients_of() -> None:
    program = """
gt.register_config("a", SignalConfig(backward="a_gradients"))
x = gt.ones(2, requires_grad=True)
with context("a"):
    y = x.exp()
with context("b", backward="b_gradients"):
    y = y.sin()
with context("c"):
    y = y.sqrt()
y = y.tanh()
with context("caller"):
    y.backward(gt.ones(2))
"""
    found = stream(program)[:-1]
    assert found[:5] == [(None, "full"), ("a", "exp"), ("b", "sin"), ("c", "sqrt"), (None, "tanh")]
    backward = [key for key, _ in groupby(name for name, _ in found[5:])]
    # Gradients of operations without a signal take the caller's; those of a signal without `backward` have none.
    assert backward == ["caller", None, "b_gradients", "a_gradients"]


def test_a_tensors_gradients_join_under_the_backward_signal_of_what_made_it_and_a_leafs_under_none() -> None:
    program = """
x = gt.ones(2, requires_grad=True)
with context("a", backward="a_gradients"):
    y = x.exp()
with context("b", backward="b_gradients"):
    z = y.sin() * y.cos()
z.backward(gt.ones(2))
with context("a", backward="a_gradients"):
    (x.exp() - x.log()).backward(gt.ones(2))
"""
    sums = [name for name, op in stream(program)[:-1] if op == "add"]
    # The sum of y's two gradients, the sum of x's, and its accumulation into `x.grad`.
    assert sums == ["a_gradients", None, None]


def test_gradients_of_gradients_follow_the_signals_of_gradients() -> None:
    program = """
gt.register_config("a", SignalConfig(backward="a1"))
gt.register_config("a1", SignalConfig(backward="a2"))
x = gt.ones(2, requires_grad=True)
with context("a"):
    y = x.exp()
(g,) = gt.autograd.grad(y, x, gt.ones(2), create_graph=True)
g.backward(gt.ones(2))
"""
    names = [key for key, _ in groupby(name for name, _ in stream(program)[:-1])]
    assert names.index("a1") < names.index("a2")


def test_functions_of_python_and_checkpoints_keep_the_signals() -> None:
    program = """
class Double(gt.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        assert gt.signal.current() == "a_gradients"
        with context("inside"):
            half = grad.abs()
        assert gt.signal.current() == "a_gradients"
        return half.neg()
x = gt.ones(2, requires_grad=True)
with context("a", backward="a_gradients"):
    y = Double.apply(x)
    y = gt.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), y)
y.backward(gt.ones(2))
"""
    found = stream(program)[:-1]
    assert ("inside", "abs") in found
    assert ("a_gradients", "neg") in found
    assert found.count(("a", "exp")) == found.count(("a", "sin")) == 2  # The second time is in the backward pass.
    assert ("a_gradients", "cos") in found


# Tensors ------------------------------------------------------------------------------------------------------------


def test_a_tensor_is_copied_under_a_signal_and_so_is_its_gradient() -> None:
    program = """
gt.register_config("layer", SignalConfig(ShardConfig(axis=0), backward="layer_gradients"))
x = gt.ones(2, requires_grad=True)
with context("outer"):
    y = gt.signal.tensor(x, name="layer")
y.backward(gt.full((2,), 3.0))
assert x.grad.tolist() == [3.0, 3.0]
"""
    found = stream(program)
    assert [(name, op) for name, op in found if op == "cast"] == [("layer", "cast"), ("layer_gradients", "cast")]
    assert found[-1] == ("defined", "layer")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "int8", "uint8", "bool"])
def test_the_copy_is_equal(dtype: str) -> None:
    x = gt.tensor([[0, 1], [1, 0]]).to(getattr(gt, dtype))
    y = gt.signal.tensor(x.t(), name="anything")
    assert y.dtype == x.dtype
    assert y.tolist() == x.t().tolist()
    y += y
    assert x[0, 0].item() == 0


def test_an_axis_that_the_tensor_does_not_have_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "signals.yaml"
    path.write_text("rows:\n  shard:\n    axis: -3\n")
    gt.load_config(path)
    try:
        assert gt.signal.tensor(gt.ones(2, 2, 2), name="rows").shape == (2, 2, 2)
        message = rf"{path}:3:11: rows\.shard\.axis: there is no axis -3 in the tensor of 2 dimensions .* from -2 to 1"
        with pytest.raises(IndexError, match=message):
            gt.signal.tensor(gt.ones(2, 2), name="rows")
        with pytest.raises(
            IndexError, match=r"there is no axis -3 in the tensor of 0 dimensions .*: true, or no shard"
        ):
            gt.signal.tensor(gt.tensor(1.0), name="rows")
        with gt.signal.context("rows"):  # Results without the axis are not constrained.
            assert (gt.ones(2, 2) * 2).sum().item() == 8
    finally:
        gt.clear_config()
    with pytest.raises(TypeError, match=r"gt\.signal\.tensor: a Tensor is expected, not list"):
        gt.signal.tensor([1.0], name="rows")


# Workers ------------------------------------------------------------------------------------------------------------

WORKERS = "print(*gt._gt.session_info()['workers'])\n"


def test_workers_are_started_before_the_first_operation() -> None:
    program = "import gt\ngt.gpu_workers(3)\ngt.gpu_workers(3)\nprint(gt.ones(2).sum().item())\n" + WORKERS
    assert output_of(program) == "2.0\ncpu:0 cpu:1 cpu:2\n"


def test_afterwards_it_is_too_late_until_the_session_ends() -> None:
    program = f"""
import gt
gt.ones(1)
try:
    gt.gpu_workers(2)
except RuntimeError as error:
    print(error)
gt.disconnect()
gt.gpu_workers(2)
{WORKERS}
"""
    late = (
        "gpu_workers(2) comes too late: the session has begun, with 1 worker; call it before the first operation, or "
        "after gt.disconnect()"
    )
    assert output_of(program).splitlines() == [late, "cpu:0 cpu:1"]


def test_the_environment_says_which_workers_and_must_say_enough() -> None:
    program = f"import gt\ngt.gpu_workers(2)\n{WORKERS}"
    assert output_of(program, GT_WORKERS="cpu:3") == "cpu:0 cpu:1 cpu:2\n"
    failed = python(program, GT_WORKERS="cpu:1").stderr
    assert (
        "RuntimeError: 2 workers are asked for, but the daemon has 1 worker: GT_WORKERS says so: unset it, or set "
        "it to cpu:2" in failed
    )


def test_a_daemon_that_is_there_already_must_have_enough(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = f"""
import gt
gt.gpu_workers(2)
{WORKERS}
gt.disconnect()
try:
    gt.gpu_workers(3)
except RuntimeError as error:
    print(error)
print(gt.ones(1).item())
"""
    with daemon(socket, "--workers", "cpu:2"):
        told = output_of(program, GT_SOCKET=str(socket)).splitlines()
    few = (
        "3 workers are asked for, but the daemon has 2 workers: start it with --workers cpu:3, or use no daemon that "
        "is there already, by unsetting GT_SOCKET"
    )
    assert told == ["cpu:0 cpu:1", few, "1.0"]


def test_a_refused_daemon_is_not_left_behind() -> None:
    program = """
import gt, os
try:
    gt.gpu_workers(2)
except RuntimeError:
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    print(len(children))
"""
    assert output_of(program, GT_WORKERS="cpu:1") == "0\n"


def test_numbers_of_workers() -> None:
    for wrong in (0, 129, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match=r"gpu_workers\(.*\): from 1 to 128 workers are possible"):
            gt.gpu_workers(wrong)


# The daemon's reports ---------------------------------------------------------------------------------------------


def test_a_tensor_says_where_it_lies() -> None:
    program = """
import gt
gt.gpu_workers(2)
x = gt.ones(4, 4)
found = gt.debug.placement(x)
print(found, found.layout, found.workers, found.axis, found.join)
print(gt.debug.placement(x.t()[1:]))
print(gt.debug.comm_stats())
"""
    told = output_of(program).splitlines()
    worker = told[0].split()[1]
    assert told[0] == f"on {worker} replicated ('{worker}',) None None"
    assert told[1] == f"on {worker}"
    assert f"'{worker}': {{}}" in told[2]


def test_a_placement_is_a_sentence() -> None:
    two = ("cpu:0", "cpu:1")
    assert str(gt.debug.Placement("sharded", two, axis=1)) == "sharded along axis 1 over [cpu:0, cpu:1]"
    assert str(gt.debug.Placement("replicated", two)) == "replicated on [cpu:0, cpu:1]"
    assert str(gt.debug.Placement("partial", two, join="sum")) == "partial (sum) on [cpu:0, cpu:1]"
    assert str(gt.debug.Placement("replicated", ("cpu:1",))) == "on cpu:1"
