"""The configuration of signals: valid files, and the errors for invalid ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import output_of, python

import gt
from gt import ShardConfig, SignalConfig


@pytest.fixture(autouse=True)
def _nothing_is_configured() -> Iterator[None]:
    gt.clear_config()
    yield
    gt.clear_config()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes `signals.yaml` in the test's working folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> str:
        Path("signals.yaml").write_text(text)
        return "signals.yaml"

    return written


# Valid files -----------------------------------------------------------------------------------------------------


def test_a_file_says_what_signals_ask_for(write) -> None:
    gt.load_config(
        write(
            "forward_layer1:\n"
            "  shard: {axis: -1, workers: null}   # null is all\n"
            "  backward: backward_layer1\n"
            "  compile: true\n"
            "backward_layer1: {shard: {replicated: true, workers: [0]}}\n"
            "stage: {shard: {workers: [0]}}\n"
            "annotation: {}\n"
            "another: {shard: null}\n"
        )
    )
    assert gt.get_config("forward_layer1") == SignalConfig(ShardConfig(axis=-1), "backward_layer1", compile=True)
    assert gt.get_config("backward_layer1") == SignalConfig(ShardConfig(workers=[0], replicated=True))
    assert gt.get_config("stage") == SignalConfig(ShardConfig(workers=(0,)))
    assert gt.get_config("annotation") == gt.get_config("another") == SignalConfig()
    assert gt.get_config("unknown") is None


def test_the_same_can_be_said_in_python() -> None:
    config = SignalConfig(shard=ShardConfig(axis=0, workers=[0]))
    gt.register_config("dp", config)
    assert gt.get_config("dp") is config
    gt.clear_config()
    assert gt.get_config("dp") is None


def test_a_file_adds_to_what_is_there_and_replaces_what_it_names(write) -> None:
    gt.register_config("kept", SignalConfig(compile=True))
    gt.register_config("replaced", SignalConfig(compile=True))
    gt.load_config(Path(write("replaced: {backward: other}")))
    assert gt.get_config("kept") == SignalConfig(compile=True)
    assert gt.get_config("replaced") == SignalConfig(backward="other")


def test_yaml_may_name_a_part_and_use_it_again(write) -> None:
    gt.load_config(write("a: &column {shard: {axis: 0}}\nb: *column\n"))
    assert gt.get_config("b") == gt.get_config("a") == SignalConfig(ShardConfig(axis=0))


def test_gradients_of_gradients_may_have_signals_of_their_own(write) -> None:
    gt.load_config(write("a: {backward: b}\nb: {backward: c}\nc: {}\n"))
    assert gt.get_config("b") == SignalConfig(backward="c")


# Invalid files ------------------------------------------------------------------------------------------------------

WRONG = {
    "an unknown key of a signal": (
        "a:\n  shards: {axis: 0}\n",
        "signals.yaml:2:3: a: unknown key 'shards': did you mean 'shard'? (known are shard, backward, compile and ",
    ),
    "an unknown key of a shard": (
        "a:\n  shard:\n    axs: 0\n",
        "signals.yaml:3:5: a.shard: unknown key 'axs': did you mean 'axis'? (known are axis, workers, replicated, mesh "
        "and axes)",
    ),
    "an unknown key like no other": (
        "a: {colour: red}",
        "signals.yaml:1:5: a: unknown key 'colour' (known are shard, backward, compile and backward_signal)",
    ),
    "a key twice": ("a: {}\nb: {}\na: {}\n", "signals.yaml:3:1: this is no YAML: duplicated key in mapping"),
    "no YAML": ("a: {shard: [", "signals.yaml:2:1: this is no YAML: "),
    "nothing": ("# soon\n", "signals.yaml:1:1: this is no YAML: there is nothing in it"),
    "two documents": ("a: {}\n---\nb: {}\n", "signals.yaml:3:1: this is no YAML: a second document; one is expected"),
    "a tag": ("a: !!int {}\nb: !!int x\n", "signals.yaml:2:4: this is no YAML: a tag or a value that is not"),
    "a list of signals": ("- a\n- b\n", "signals.yaml:1:1: a configuration is a mapping of signals, not a list"),
    "a word": ("dp", "signals.yaml:1:1: a configuration is a mapping of signals, not 'dp'"),
    "a signal that is a word": (
        "a: sharded\n",
        "signals.yaml:1:4: a is a mapping of shard, backward, compile and backward_signal, not 'sharded'",
    ),
    "a signal without anything": (
        "a:\nb: {}\n",
        "a is a mapping of shard, backward, compile and backward_signal, not nothing",
    ),
    "a name that is a number": (
        "1: {}\n",
        "signals.yaml:1:1: a configuration: a key is a name, not 1; put it in quotes",
    ),
    "a shard that is a number": (
        "a: {shard: 0}",
        "signals.yaml:1:12: a.shard is a mapping of axis, workers, replicated, mesh and axes, not 0",
    ),
    "an axis that is a word": ("a:\n  shard:\n    axis: rows\n", "signals.yaml:3:11: a.shard.axis: 'rows' is no axis"),
    "an axis that is true": ("a: {shard: {axis: true}}", "signals.yaml:1:19: a.shard.axis: True is no axis"),
    "an axis beyond any tensor's": (
        "a: {shard: {axis: 8}}",
        "a.shard.axis: 8 is no axis: a tensor has at most 8 dimensions: write a number from -8 to 7",
    ),
    "workers that are a number": (
        "a: {shard: {axis: 0, workers: 2}}",
        "signals.yaml:1:31: a.shard.workers: a list of numbers is expected, not 2; null means all",
    ),
    "a worker that is a word": ("a: {shard: {axis: 0, workers: [cpu]}}", "a.shard.workers: 'cpu' is no worker"),
    "a worker beyond any daemon's": (
        "a: {shard: {axis: 0, workers: [128]}}",
        "a.shard.workers: 128 is no worker: they are numbered from 0 to 127 at most",
    ),
    "a worker below any": ("a: {shard: {axis: 0, workers: [-1]}}", "a.shard.workers: -1 is no worker"),
    "a worker twice": ("a: {shard: {axis: 0, workers: [0, 1, 0]}}", "a.shard.workers: worker 0 is named twice"),
    "no workers": ("a: {shard: {axis: 0, workers: []}}", "a.shard.workers: the list is empty"),
    "workers that are a mapping": ("a: {shard: {workers: {}}}", "signals.yaml:1:22: a.shard.workers is no mapping"),
    "two backward signals": (
        "a: {backward: b, backward_signal: c}",
        "signals.yaml:1:35: a.backward_signal: this is another name of backward, which is 'b': leave one of them out",
    ),
    "replicated perhaps": ("a: {shard: {replicated: 1}}", "a.shard.replicated: 1 is neither true nor false"),
    "neither cut nor replicated": (
        "a: {shard: {workers: [0, 1]}}",
        "signals.yaml:1:12: a.shard: say along which axis tensors are cut (axis: 0), or that each worker has a copy",
    ),
    "compiled perhaps": ("a: {compile: fast}", "signals.yaml:1:14: a.compile: 'fast' is neither true nor false"),
    "a backward that is no name": (
        "a: {backward: 3}",
        "signals.yaml:1:15: a.backward: the name of a signal is expected, not 3",
    ),
    "a backward to itself": (
        "a:\n  backward: a\n",
        "signals.yaml:2:13: a.backward: a → a leads back to where it began: name a signal of its own for gradients",
    ),
    "a backward that leads back": (
        "a: {backward: b}\nb: {backward: c}\nc: {backward: a}\n",
        "signals.yaml:1:15: a.backward: a → b → c → a leads back to where it began",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_an_error_says_where_and_what_would_be_right(write, text: str, message: str) -> None:
    gt.register_config("before", SignalConfig(compile=True))
    with pytest.raises(ValueError, match=re.escape(message)):
        gt.load_config(write(text))
    assert gt.get_config("a") is None
    assert gt.get_config("before") is not None


def test_an_axis_has_no_effect_on_what_is_replicated(write) -> None:
    gt.load_config(write("a: {shard: {axis: 0, replicated: true}, backward_signal: b}"))
    config = gt.get_config("a")
    assert config == SignalConfig(ShardConfig(axis=0, replicated=True), backward_signal="b")
    assert config.backward == config.backward_signal == "b"
    with gt.signal.context("a"):
        x = gt.arange(4) + 1
    assert gt.debug.placement(x).layout == "replicated"
    assert gt.signal.tensor(gt.tensor(3.0), "a").item() == 3.0


def test_a_cycle_through_an_earlier_configuration_is_found(write) -> None:
    gt.register_config("a", SignalConfig(backward="b"))
    with pytest.raises(ValueError, match=re.escape("signals.yaml:1:15: b.backward: b → a → b leads back")):
        gt.load_config(write("b: {backward: a}"))
    with pytest.raises(ValueError, match=re.escape("register_config('b'): backward: b → a → b leads back")):
        gt.register_config("b", SignalConfig(backward="a"))


def test_a_file_that_cannot_be_read_is_named(write, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape("load_config: there is no file 'missing.yaml' (from ")):
        gt.load_config("missing.yaml")
    with pytest.raises(IsADirectoryError, match=r"load_config: '.*' cannot be read: Is a directory"):
        gt.load_config(tmp_path)
    name = write("")
    Path(name).write_bytes(b"a: {}\n\xff")
    with pytest.raises(ValueError, match=r"signals\.yaml: this is no text in UTF-8: .* at byte 6"):
        gt.load_config(name)
    Path(name).write_text("#" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match=r"signals\.yaml has 1,048,577 bytes; 1,048,576 are allowed"):
        gt.load_config(name)


def test_errors_of_python_name_the_argument() -> None:
    for wrong, message in [
        (lambda: ShardConfig(axis=9), "axis: 9 is no axis"),
        (lambda: ShardConfig(axis=0, workers="01"), "workers: a list of numbers is expected, not '01'"),
        (lambda: ShardConfig(), "say along which axis"),
        (lambda: SignalConfig(shard={"axis": 0}), "shard: a gt.ShardConfig is expected"),
        (lambda: SignalConfig(backward=""), "backward: the name of a signal is expected, not ''"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            wrong()
    with pytest.raises(TypeError, match=r"register_config\('a'\): a gt.SignalConfig is expected, not ShardConfig"):
        gt.register_config("a", ShardConfig(axis=0))
    with pytest.raises(TypeError, match="register_config: a signal's name is a string of at least one letter, not 3"):
        gt.register_config(3, SignalConfig())


# Workers ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_not_there_is_named_at_once_when_workers_are_known(write) -> None:
    gt.ones(1)
    here = len(gt._gt.session_info()["workers"])
    message = "signals.yaml:1:31: a.shard.workers: there is no worker 60: the daemon has worker"
    with pytest.raises(ValueError, match=re.escape(message)):
        gt.load_config(write("a: {shard: {axis: 0, workers: [0, 60]}}\nb: {}\n"))
    assert gt.get_config("a") is gt.get_config("b") is None
    with pytest.raises(ValueError, match=r"register_config\('dp'\): shard.workers: there is no worker .*gpu_workers\("):
        gt.register_config("dp", SignalConfig(ShardConfig(axis=0, workers=[here])))


def test_otherwise_at_the_first_operation_and_at_each_until_it_is_put_right() -> None:
    program = """
import gt
gt.register_config("dp", gt.SignalConfig(gt.ShardConfig(axis=0, workers=[0, 2])))
for _ in range(2):
    try:
        gt.ones(1)
    except ValueError as error:
        print(error)
gt.register_config("dp", gt.SignalConfig(gt.ShardConfig(axis=0, workers=[0])))
print(gt.ones(1).tolist())
"""
    message = (
        "register_config('dp'): shard.workers: there is no worker 2: the daemon has worker 0 alone; name others, or "
        "call gt.gpu_workers(3) before the first operation"
    )
    assert output_of(program).splitlines() == [message, message, "[1.0]"]


def test_the_environment_names_a_file_that_is_read_on_import(tmp_path: Path) -> None:
    path = tmp_path / "signals.yaml"
    path.write_text("dp: {backward: dp_backward}\n")
    program = "import gt; print(gt.get_config('dp').backward)"
    assert output_of(program, GT_CONFIG=str(path)) == "dp_backward\n"
    path.write_text("dp: {back: dp_backward}\n")
    failed = python(program, GT_CONFIG=str(path))
    assert f"ValueError: {path}:1:6: dp: unknown key 'back': did you mean 'backward'?" in failed.stderr
    failed = python(program, GT_CONFIG="missing.yaml")
    assert "FileNotFoundError: GT_CONFIG: there is no file 'missing.yaml'" in failed.stderr
