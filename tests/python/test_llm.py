"""`gt.llm`: the formats of llm.c, and training that goes on as if it had never stopped.

`files/llm` has a small model, and what PyTorch computes of it, by `examples/gpt2/write_debug_state.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import output_of

import gt
import gt.llm
from gt.llm import Config, Example, FileError, Mersenne, Tokenizer, TokenLoader
from gt.llm.test import curve, differences

FILES = Path(__file__).parent / "files" / "llm"
TINY = Config(context=8, vocabulary=20, layers=2, heads=2, channels=8)


def parameters_equal(one: gt.llm.GPT2, other: gt.llm.GPT2) -> bool:
    return all(gt.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def program(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"gt.llm.{name}", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environment}
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with three files of tokens."""
    words = np.random.default_rng(0).integers(0, 20, 400)
    for i, length in enumerate((200, 100, 60)):
        gt.llm.write_tokens(tmp_path / f"train_{i}.bin", words[:length])
    return tmp_path


def test_a_model_computes_what_pytorch_does() -> None:
    model = gt.llm.read_model(FILES / "model.bin")
    state = gt.llm.read_debug_state(FILES / "debug_state.bin", model.config)
    assert max(differences(model, state, "float32").values()) < 1e-5
    assert max(differences(model, state, "bfloat16").values()) < 6e-2
    losses = [float(line) for line in (FILES / "debug_state.bin.losses").read_text().split()]
    np.testing.assert_allclose(curve(model, state, 10), losses, atol=1e-5)
    assert len(state.gradients) == 16


def test_the_program_names_what_differs(tmp_path: Path) -> None:
    right = program("test", "-e", FILES / "model.bin", "-d", FILES / "debug_state.bin")
    assert right.returncode == 0, right.stdout + right.stderr
    assert right.stdout.endswith("equal\n")
    model = gt.llm.read_model(FILES / "model.bin")
    with gt.no_grad():
        model.ln_f.weight[0] += 0.5
    gt.llm.write_model(tmp_path / "other.bin", model)
    wrong = program("test", "-e", tmp_path / "other.bin", "-d", FILES / "debug_state.bin")
    assert wrong.returncode == 1
    assert re.search(r"^logits .* DIFFERS$", wrong.stdout, re.MULTILINE)
    foreign = program("test", "-e", FILES / "debug_state.bin", "-d", FILES / "model.bin")
    assert foreign.returncode == 2
    assert "does not hold a model: it holds a debug state" in foreign.stderr


def test_initial_weights_are_pytorchs() -> None:
    # torch.manual_seed(42); torch.empty(20).normal_(0, 0.02)
    wanted = [0.0385, 0.0297, 0.0180, -0.0421, 0.0136, -0.0247, -0.0009, -0.0321]
    np.testing.assert_allclose(Mersenne(42).normal(1000, 0.02)[:8], wanted, atol=5e-5)
    model = gt.llm.GPT2(TINY).initialise()
    assert parameters_equal(model, gt.llm.read_model(FILES / "model.bin"))
    assert model.h[0].ln_1.weight.tolist() == [1] * 8
    assert model.h[1].mlp["c_fc"].bias.tolist() == [0] * 32


def test_depths_have_the_sizes_of_gpt2() -> None:
    config = Config.of_depth(12)
    assert (config.channels, config.heads, config.context, config.vocabulary) == (768, 12, 1024, 50257)
    assert config.padded_vocabulary == 50304
    assert gt.llm.checkpoint.parameter_count(config, config.vocabulary) == 124_439_808
    with pytest.raises(ValueError, match="no GPT-2 of 7 layers"):
        Config.of_depth(7)
    with pytest.raises(ValueError, match="8 channels cannot be divided among 3 heads"):
        Config(heads=3, channels=8)


@pytest.mark.parametrize("dtype", [gt.float32, gt.bfloat16])
def test_models_are_read_as_written(tmp_path: Path, dtype: gt.dtype) -> None:
    model = gt.llm.GPT2(TINY).to(dtype)
    gt.llm.write_model(tmp_path / "model.bin", model, dtype)
    found = gt.llm.read_model(tmp_path / "model.bin")
    assert found.config == TINY
    assert found.wte.weight.dtype is dtype
    assert parameters_equal(found, model)


def test_safetensors_have_the_names_of_hugging_face(tmp_path: Path) -> None:
    model = gt.llm.GPT2(TINY)
    gt.llm.save(tmp_path / "model.safetensors", model)
    names = gt.load(tmp_path / "model.safetensors")
    assert names["transformer.h.1.attn.c_attn.weight"].shape == (8, 24)
    assert parameters_equal(gt.llm.load(tmp_path / "model.safetensors", heads=2), model)
    del names["transformer.h.0.ln_1.bias"]
    with pytest.raises(KeyError, match=r"h\.0\.ln_1\.bias is missing"):
        gt.llm.from_hugging_face(names, heads=2)


def test_batches_come_in_the_order_of_llm_c(data: Path) -> None:
    tokens = [gt.llm.read_tokens(data / f"train_{i}.bin") for i in range(3)]
    ranks = [TokenLoader(f"{data}/train_*.bin", 2, 8, rank, 2) for rank in range(2)]
    # A sample is 32 tokens: 6 of the first file, 3 of the second, 1 of the third, then from the start.
    places = [(0, s) for s in range(6)] + [(1, s) for s in range(3)] + [(2, 0), (0, 0)]
    for (shard, sample), rank in itertools.product(places, range(2)):
        inputs, targets = ranks[rank].next_batch()
        start = 32 * sample + 16 * rank
        assert inputs.reshape(-1).tolist() == tokens[shard][start : start + 16].tolist()
        assert targets.reshape(-1).tolist() == tokens[shard][start + 1 : start + 17].tolist()


def test_shuffled_batches_come_once_an_epoch(data: Path) -> None:
    def epoch(loader: TokenLoader) -> list[tuple[int, ...]]:
        return [tuple(loader.next_batch()[0].reshape(-1).tolist()) for _ in range(6 + 3 + 1)]

    plain = epoch(TokenLoader(f"{data}/train_*.bin", 4, 8))
    loader = TokenLoader(f"{data}/train_*.bin", 4, 8, shuffle=True)
    first, second = epoch(loader), epoch(loader)
    assert sorted(first) == sorted(second) == sorted(plain)
    assert first != second != plain
    assert first == epoch(TokenLoader(f"{data}/train_*.bin", 4, 8, shuffle=True))


def test_tokenizers(tmp_path: Path) -> None:
    tokenizer = Tokenizer([b"a", b"b", b"ab", "é".encode(), b"<end>"], end_of_text=4)
    gt.llm.write_tokenizer(tmp_path / "tokenizer.bin", tokenizer)
    found = gt.llm.read_tokenizer(tmp_path / "tokenizer.bin")
    assert (found.tokens, found.end_of_text) == (tokenizer.tokens, 4)
    assert found.encode("abbaé") == [2, 1, 0, 3]
    assert found.decode([2, 1, 0, 3]) == "abbaé"
    with pytest.raises(ValueError, match="no token begins with byte 99 of 'c'"):
        found.encode("c")
    with pytest.raises(IndexError, match="token 5 is not in the vocabulary, which has 5 tokens"):
        found.decode([5])


def test_hellaswag(tmp_path: Path) -> None:
    model = gt.llm.read_model(FILES / "model.bin")
    with gt.no_grad():
        model.wte.weight[7] += 3 * model.wte.weight[7].sign()
    endings = [[1, 2], [3], [7, 7], [4, 5, 6]]
    examples = [Example([7, 7], endings, label) for label in (2, 1)]
    gt.llm.write_hellaswag(tmp_path / "val.bin", examples)
    assert gt.llm.read_hellaswag(tmp_path / "val.bin") == examples
    assert gt.llm.hellaswag_accuracy(model, examples) == 0.5


def test_a_cache_gives_the_same_logits_and_text() -> None:
    model = gt.llm.read_model(FILES / "model.bin")
    tokens = gt.randint(0, 20, (2, 8))
    whole, _ = model(tokens)
    cache = gt.llm.Cache(TINY, 2)
    parts = [model(tokens[:, i:j], cache=cache)[0] for i, j in ((0, 3), (3, 4), (4, 8))]
    np.testing.assert_allclose(gt.cat(parts, 1).detach().numpy(), whole.detach().numpy(), atol=1e-5)
    made = list(gt.llm.generate(model, [1, 2], 4, temperature=0))
    plain = [1, 2]
    for _ in range(4):
        plain.append(int(model(gt.tensor([plain]))[0][0, -1].argmax()))
    assert made == plain[2:]
    # The context ends the text.
    assert len(list(gt.llm.generate(model, [1, 2], 99))) == 7
    with pytest.raises(ValueError, match="9 tokens, but 1 to 8 fit"):
        next(gt.llm.generate(model, [0] * 9, 1))


def test_tokens_are_drawn_from_the_likely_ones() -> None:
    gt.manual_seed(0)
    logits = gt.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(500, 4)
    assert set(gt.llm.choose(logits, top_k=2).reshape(-1).tolist()) == {0, 1}
    # The first has 0.64 of the probability, the first two 0.88.
    assert set(gt.llm.choose(logits, top_p=0.6).reshape(-1).tolist()) == {0}
    assert set(gt.llm.choose(logits, top_p=0.7).reshape(-1).tolist()) == {0, 1}
    assert set(gt.llm.choose(logits, temperature=0).reshape(-1).tolist()) == {0}
    assert set(gt.llm.choose(logits, temperature=9).reshape(-1).tolist()) == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="top_p 0"):
        gt.llm.choose(logits, top_p=0)


def test_learning_rates() -> None:
    def rates(schedule: str) -> list[float]:
        return [round(gt.llm.learning_rate(schedule, step, 10, 1.0, 2, 0.1), 3) for step in (0, 1, 2, 6, 9)]

    assert rates("constant") == [0.5, 1, 1, 1, 1]
    assert rates("linear") == [0.5, 1, 1, 0.55, 0.213]
    assert rates("cosine") == [0.5, 1, 1, 0.55, 0.134]
    assert rates("wsd") == [0.5, 1, 1, 1, 0.364]
    with pytest.raises(ValueError, match="no schedule 'step'"):
        gt.llm.learning_rate("step", 0, 1, 1.0, 0, 0.0)


def test_outliers() -> None:
    detector = gt.llm.OutlierDetector()
    assert all(np.isnan(detector.update(float(i % 2))) for i in range(128))
    # The mean is 0.54, the deviation 0.64.
    assert 6.9 < detector.update(5.0) < 7.1
    assert np.isnan(detector.update(float("nan")))


def trained(data: Path, out: str, *arguments: object, **environment: str) -> str:
    found = program(
        *("train", "-i", f"{data}/train_*.bin", "-j", f"{data}/train_2.bin", "-e", FILES / "model.bin"),
        *("-o", data / out, "-b", 2, "-t", 8, "-d", 32, "-l", 1e-2, "-c", 0.1, "-u", 2, "-q", 0.1, "-v", 5, "-m", 2),
        *arguments,
        **environment,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_training_goes_on_bit_for_bit(data: Path) -> None:
    told = trained(data, "whole", "-x", 12, "-n", 4)
    assert re.search(r"step    1/12 \| loss \d\.\d+ \(\+nanz\)\| norm .* tok/s", told)
    trained(data, "parts", "-x", 12, "-n", 4)
    # It was killed while it wrote the last checkpoint: the one before is complete.
    (data / "parts" / "DONE_00000012").unlink()
    (data / "parts" / "state_00000012_00000.bin").write_bytes(b"half")
    assert "going on from step 8" in trained(data, "parts", "-x", 12, "-n", 4, "-y", 1)
    for name in ("model_00000012.bin", "state_00000012_00000.bin", "main.log"):
        assert (data / "parts" / name).read_bytes() == (data / "whole" / name).read_bytes(), name
    log = (data / "whole" / "main.log").read_text().splitlines()
    assert log[0].startswith("s:0 tel:")
    assert re.fullmatch(r"s:0 trl:\d\.\d{4} lr:0\.005000 norm:\d+\.\d\d", log[1])
    assert [line.split()[0] for line in log if "tel" in line] == ["s:0", "s:5", "s:10", "s:12"]


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        ("dp=2", 2),
        ("tp=2", 2),
        ("pp=2", 2),
        ("dp=2,pp=2", 4),
        ("dp=2,tp=2", 4),
        ("tp=2,pp=2", 4),
        ("dp=2,tp=2,pp=2", 8),
        (("dp=2", "-z", 1), 2),
    ],
)
def test_training_on_several_workers_is_the_same(data: Path, arguments: str | tuple[object, ...], workers: int) -> None:
    given = (arguments,) if isinstance(arguments, str) else arguments
    trained(data, "one", "-x", 4)
    trained(data, "two", "-x", 4, "--parallel", *given, GT_WORKERS=f"cpu:{workers}", GT_SHARD_BYTES_MIN="0")
    logs = [(data / out / "main.log").read_text().splitlines() for out in ("one", "two")]
    for one, two in zip(*logs, strict=True):
        found, wanted = (list(map(float, re.findall(r":([\d.]+)", line))) for line in (two, one))
        np.testing.assert_allclose(found, wanted, atol=0.0101)


PLACES = """
import gt, gt.llm
from gt.llm import parallel
model = gt.llm.GPT2(gt.llm.Config(context=16, vocabulary=4000, layers=2, heads=2, channels=64)).initialise()
configuration = parallel.signals(model.config, 4, parallel.parse(DEGREES), ZERO)
for name, signal in configuration.items():
    gt.register_config(name, signal)
parallel.apply(model, configuration)
optimizer = model.optimizer(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, decay=0.1)
for _ in range(2):
    tokens = gt.signal.tensor(gt.arange(64).reshape(4, 16), name=parallel.BATCH)
    optimizer.zero_grad()
    model(tokens, tokens)[1].backward()
    with gt.signal.context(parallel.UPDATE):
        optimizer.step()
for parameter in (model.h[0].attn.c_attn.weight, model.h[1].attn.c_attn.weight, model.wte.weight):
    print(gt.debug.placement(parameter), "|", gt.debug.placement(optimizer.state[parameter]["exp_avg"]))
optimizer.zero_grad()
print(sum(worker["session_bytes"] for worker in gt.debug.get_worker_stats().values()))
"""


def places(degrees: str, zero: int, workers: int) -> tuple[list[str], int]:
    """Returns where parameters and their moments lie after two steps, and the bytes of all workers."""
    program = f"DEGREES, ZERO = {degrees!r}, {zero}\n{PLACES}"
    *where, held = output_of(program, GT_WORKERS=f"cpu:{workers}").splitlines()
    return where, int(held)


def test_zero_divides_parameters_and_moments_between_steps() -> None:
    _, alone_bytes = places("", 0, 1)
    whole, whole_bytes = places("dp=2", 0, 2)
    assert whole == ["replicated on [cpu:0, cpu:1] | replicated on [cpu:0, cpu:1]"] * 3
    divided, divided_bytes = places("dp=2", 1, 2)
    shards = "sharded along axis 0 over [cpu:0, cpu:1]"
    assert divided == [f"{shards} | {shards}"] * 3
    # Both workers together hold what one alone does: of the gathered parameters nothing is left.
    assert divided_bytes < 1.01 * alone_bytes
    assert whole_bytes > 1.3 * alone_bytes


def test_rows_divide_the_batch_and_the_workers_of_a_row_matrices() -> None:
    where, _ = places("dp=2,tp=2", 0, 4)
    placed = "replicated over 2 rows of [cpu:0, cpu:1, cpu:2, cpu:3], sharded along axis 0 within a row"
    assert where[:2] == [f"{placed} | {placed}"] * 2


def test_stages_of_a_mesh() -> None:
    where, _ = places("dp=2,tp=2,pp=2", 0, 8)
    assert [line.split(" | ")[0] for line in where[:2]] == [
        "replicated over 2 rows of [cpu:0, cpu:1, cpu:2, cpu:3], sharded along axis 0 within a row",
        "replicated over 2 rows of [cpu:4, cpu:5, cpu:6, cpu:7], sharded along axis 0 within a row",
    ]


def test_stages_have_workers_of_their_own_for_their_samples() -> None:
    where, _ = places("dp=2,pp=2", 0, 4)
    assert [line.split(" | ")[0] for line in where[:2]] == [
        "replicated on [cpu:0, cpu:1]",
        "replicated on [cpu:2, cpu:3]",
    ]


def test_old_checkpoints_are_deleted_but_for_major_ones(data: Path) -> None:
    trained(data, "log", "-x", 10, "-n", 2, "-nk", 1, "-nm", 4)
    assert sorted(path.name for path in (data / "log").glob("DONE_*")) == [f"DONE_{s:08}" for s in (4, 8, 10)]
    assert not (data / "log" / "model_00000006.bin").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-e", "d7"), "no GPT-2 of 7 layers: d6, d12"),
        (("-e", "none.bin"), "No such file"),
        (("-t", 9), "-t 9 is more than the model's context of 8"),
        (("-d", 24), "a total batch of 24 tokens is no multiple of 2 × 8"),
        (("-b", 99), "tokens, but one sample of 1 × 99 × 8 needs 793: take a smaller batch"),
        (("-i", "none_*.bin"), "no file matches none_*.bin"),
        (("-n", 5), "checkpoints need a folder: -o FOLDER"),
        (("--parallel", "dp=3"), "needs 3 workers: set GT_WORKERS=cpu:3"),
        (("--parallel", "dp=2,tp=2"), "needs 4 workers: set GT_WORKERS=cpu:4"),
        (("--parallel", "dp=no"), "'dp=no' is not one of dp=N, tp=N, pp=N"),
        (("-z", 1), "give --parallel dp=N alone"),
    ],
)
def test_wrong_arguments_are_told(data: Path, arguments: tuple[object, ...], message: str) -> None:
    given = ("-i", f"{data}/train_*.bin", "-e", FILES / "model.bin", "-b", 2, "-t", 8, "-x", 1)
    found = program("train", *given, *arguments, GT_WORKERS="cpu:1")
    assert found.returncode == 1
    assert found.stderr.startswith("gt.llm.train: ")
    assert message in found.stderr


def test_tokens_beyond_the_vocabulary_are_told(tmp_path: Path) -> None:
    gt.llm.write_tokens(tmp_path / "train.bin", [20] * 100)
    found = program("train", "-i", tmp_path / "train.bin", "-e", FILES / "model.bin", "-b", 2, "-t", 8)
    assert "has token 20, but the model has 0 to 19" in found.stderr
    with pytest.raises(ValueError, match="tokens are 0 to 65535"):
        gt.llm.write_tokens(tmp_path / "train.bin", [65536])


def test_text_is_printed(tmp_path: Path) -> None:
    gt.llm.write_tokenizer(tmp_path / "tokenizer.bin", Tokenizer([bytes([97 + i]) for i in range(20)], 0))
    arguments = ("-e", FILES / "model.bin", "-p", tmp_path / "tokenizer.bin", "--prompt", "abc", "-g", 5)
    found = program("sample", *arguments, "--seed", 1, "--top-k", 9, "--top-p", 0.9)
    assert re.fullmatch(r"abc[a-t]{5}\n", found.stdout), found.stderr
    assert program("sample", *arguments, "--seed", 1, "--top-k", 9, "--top-p", 0.9).stdout == found.stdout
    assert "no token begins with byte 122" in program("sample", *arguments[:-4], "--prompt", "z").stderr


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    gt.llm.write_model(path, gt.llm.GPT2(TINY))
    before = path.read_bytes()

    def fail() -> None:
        with gt.llm.files.written(path) as file:
            file.write(b"half")
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fail()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.bin"]


def readers(folder: Path) -> dict[Path, Callable[[Path], Any]]:
    """A good file of each kind, and its reader."""
    model = gt.llm.read_model(FILES / "model.bin")
    gt.llm.write_tokens(folder / "tokens.bin", range(300))
    gt.llm.write_tokenizer(folder / "tokenizer.bin", Tokenizer([b"a", b"bc"], 1))
    gt.llm.write_hellaswag(folder / "hellaswag.bin", [Example([1, 2], [[1], [2], [3], [4, 5]], 1)] * 2)
    loader = TokenLoader(f"{folder}/tokens.bin", 2, 8, shuffle=True)
    optimizer = model.optimizer(1e-3, (0.9, 0.95), 1e-8, 0.0)
    gt.llm.write_train_state(folder / "state.bin", model, optimizer, loader, 3)
    return {
        FILES / "model.bin": gt.llm.read_model,
        FILES / "debug_state.bin": lambda path: gt.llm.read_debug_state(path, model.config),
        folder / "tokens.bin": gt.llm.read_tokens,
        folder / "tokenizer.bin": gt.llm.read_tokenizer,
        folder / "hellaswag.bin": gt.llm.read_hellaswag,
        folder / "state.bin": lambda path: gt.llm.read_train_state(path, model, optimizer, loader),
    }


def test_damaged_files_are_errors_that_name_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for path, read in readers(tmp_path).items():
        good = np.frombuffer(path.read_bytes(), np.uint8)
        bad = tmp_path / f"bad_{path.name}"
        bad.write_bytes(good[:1000].tobytes())
        with pytest.raises(FileError, match=f"{re.escape(str(bad))} is no file of llm.c: it has 1000 bytes"):
            read(bad)
        bad.write_bytes(good[:-1].tobytes())
        with pytest.raises(FileError, match=re.escape(str(bad))):
            read(bad)
        for field, message in ((0, "does not hold"), (1, "has version 77")):
            header = good.copy()
            header[:1024].view("<i4")[field] = 77
            bad.write_bytes(header.tobytes())
            with pytest.raises(FileError, match=message):
                read(bad)
        for _ in range(60):
            changed = good.copy()
            words = changed[: len(changed) // 4 * 4].view("<i4")
            places = rng.integers(0, 40 if rng.random() < 0.5 else len(words), 2)
            words[places] = rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 255, 65535, int(rng.integers(0, 99))], 2)
            cut = len(changed) if rng.random() < 0.7 else int(rng.integers(0, len(changed)))
            bad.write_bytes(changed[:cut].tobytes())
            # A change that makes no sense raises nothing else.
            with contextlib.suppress(FileError):
                read(bad)
