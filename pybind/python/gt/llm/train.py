"""Trains a GPT-2 on llm.c's files, with llm.c's options.

    python -m gt.llm.train -i 'train_*.bin' -j 'val_*.bin' -e d12 -o log -b 4 -t 1024

Every step is a line of the progress; `log/main.log` has llm.c's format. Checkpoints are `model_STEP.bin` and
`state_STEP_00000.bin`; an empty file `DONE_STEP` is written when both are there, and `-y 1` goes on from the last.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from pathlib import Path

import gt
from gt.llm import parallel
from gt.llm.checkpoint import load, write_model
from gt.llm.files import FileError
from gt.llm.hellaswag import hellaswag_accuracy, read_hellaswag
from gt.llm.model import GPT2, Config
from gt.llm.sampling import generate
from gt.llm.schedules import SCHEDULES
from gt.llm.tokenizer import Tokenizer, read_tokenizer
from gt.llm.tokens import TokenLoader, read_tokens
from gt.llm.train_state import read_train_state, write_train_state
from gt.llm.training import Report, Settings, Trainer

# Tokens per second are averaged with this weight of the past.
EMA = 0.95


def options() -> argparse.ArgumentParser:
    """Returns the parser of llm.c's options."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.llm.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("-i", dest="train", required=True, metavar="PATTERN", help="files of tokens to train on")
    add("-j", dest="val", metavar="PATTERN", help="files of tokens to validate on")
    add("-e", dest="model", default="d12", metavar="MODEL", help="a model file, or d6, d12, d24, d36, d48 [d12]")
    add("-o", dest="out", metavar="FOLDER", help="the folder of the log and of checkpoints")
    add("-n", dest="save_every", type=int, default=0, metavar="STEPS", help="write a checkpoint every so many steps")
    add("-nk", dest="keep", type=int, default=0, metavar="N", help="keep the last N checkpoints [all]")
    add("-nm", dest="major", type=int, default=0, metavar="STEPS", help="checkpoints that are never deleted")
    add("-y", dest="resume", type=int, choices=(0, 1), default=0, help="1: go on from the last checkpoint in -o")
    add("-b", dest="batch", type=int, default=4, metavar="B", help="sequences of a batch [4]")
    add("-t", dest="length", type=int, default=1024, metavar="T", help="tokens of a sequence [1024]")
    add("-d", dest="total_batch", type=int, default=0, metavar="TOKENS", help="tokens of a step [B × T]")
    add("-x", dest="steps", type=int, default=0, metavar="STEPS", help="steps in all [one epoch]")
    add("-k", dest="schedule", choices=sorted(SCHEDULES), default="cosine", help="learning rate schedule [cosine]")
    add("-l", dest="lr", type=float, default=3e-4, metavar="LR", help="learning rate [3e-4]")
    add("-u", dest="warmup", type=int, default=0, metavar="STEPS", help="steps of warm-up")
    add("-q", dest="final_fraction", type=float, default=1.0, metavar="PART", help="the last learning rate [1.0]")
    add("-c", dest="decay", type=float, default=0.0, metavar="DECAY", help="weight decay")
    add(
        "-sl",
        dest="skip_loss",
        type=float,
        default=0.0,
        metavar="Z",
        help="skip steps with a larger z-score of the loss",
    )
    add("-sg", dest="skip_norm", type=float, default=0.0, metavar="Z", help="the same for the gradient's norm")
    add("-v", dest="val_every", type=int, default=20, metavar="STEPS", help="validate every so many steps [20]")
    add("-m", dest="val_steps", type=int, default=20, metavar="N", help="batches of a validation [20]")
    add("-s", dest="sample_every", type=int, default=0, metavar="STEPS", help="print a text every so many steps")
    add("-g", dest="sample_tokens", type=int, default=64, metavar="N", help="tokens of a text [64]")
    add("-p", dest="tokenizer", metavar="FILE", help="the tokenizer of texts; without one tokens are printed")
    add("-hs", dest="hellaswag", metavar="FILE", help="HellaSwag examples to evaluate with each validation")
    add("-a", dest="overfit", type=int, choices=(0, 1), default=0, help="1: train on the first batch alone")
    add("-f", dest="tf32", type=int, choices=(0, 1), default=1, help="0: no TF32 on GPUs [1]")
    add(
        "-r", dest="recompute", type=int, choices=(0, 1), default=0, help="1: compute blocks again in the backward pass"
    )
    add("-w", dest="masters", type=int, choices=(1,), default=1, help="float32 weights beside bfloat16 [1: always]")
    add("-sh", dest="shuffle", type=int, choices=(0, 1), default=1, help="0: files in their order [1]")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="the dtype of products [float32]")
    add(
        "--parallel",
        default="",
        metavar="dp=N|tp=N|pp=N|dp=N,pp=N",
        help="spread training over N workers: "
        + "; ".join(f"{name}: {what}" for name, what in parallel.DEGREES.items()),
    )
    add(
        "-z",
        dest="zero",
        type=int,
        choices=(0, 1),
        default=0,
        help="ZeRO's stage; 1: the workers of dp divide the optimizer's state among them [0]",
    )
    add("--seed", type=int, default=42, help="the seed of the weights of -e d12, and of texts [42]")
    return parser


def make_model(name: str, seed: int) -> GPT2:
    """Returns the model of a file, or one of a depth such as `d12` with random weights."""
    if depth := re.fullmatch(r"d(\d+)", name):
        return GPT2(Config.of_depth(int(depth[1]))).initialise(seed)
    return load(name).float()


def done_steps(folder: Path) -> list[int]:
    """Returns the steps of the complete checkpoints in a folder, in order."""
    found = (re.fullmatch(r"DONE_(\d{8})", path.name) for path in folder.glob("DONE_*"))
    return sorted(int(match[1]) for match in found if match)


def save_checkpoint(folder: Path, trainer: Trainer, keep: int, major: int) -> None:
    """Writes a checkpoint, then deletes those beyond `keep` which are not major."""
    step = trainer.step
    write_model(folder / f"model_{step:08}.bin", trainer.model)
    write_train_state(folder / f"state_{step:08}_00000.bin", trainer.model, trainer.optimizer, trainer.loader, step)
    (folder / f"DONE_{step:08}").touch()
    minor = [old for old in done_steps(folder) if not (major and old % major == 0)]
    for old in minor[:-keep] if keep else []:
        # Without its DONE file a checkpoint is incomplete, whatever else of it is left.
        for name in (f"DONE_{old:08}", f"model_{old:08}.bin", f"state_{old:08}_00000.bin"):
            (folder / name).unlink(missing_ok=True)


def show_text(model: GPT2, tokenizer: Tokenizer | None, count: int) -> None:
    """Prints a text that the model makes."""
    start = min(tokenizer.end_of_text if tokenizer else model.config.vocabulary - 1, model.config.vocabulary - 1)
    tokens = generate(model, [start], min(count, model.config.context - 1))
    text = tokenizer.decode(tokens) if tokenizer else " ".join(map(str, tokens))
    print(f"---\n{text}\n---", flush=True)


class Log:
    """The file `main.log`, in llm.c's format; lines of steps that are done again are dropped."""

    def __init__(self, folder: Path | None, step: int) -> None:
        self.path = folder / "main.log" if folder else None
        if self.path:
            old = self.path.read_text().splitlines() if step and self.path.exists() else []
            kept = [line for line in old if (match := re.match(r"s:(\d+) ", line)) and int(match[1]) < step]
            self.path.write_text("".join(f"{line}\n" for line in kept))

    def line(self, step: int, text: str) -> None:
        """Adds a line about a step."""
        if self.path:
            with self.path.open("a") as file:
                file.write(f"s:{step} {text}\n")


def train(arguments: argparse.Namespace) -> None:
    """Trains as the arguments say.

    Raises:
        FileError: A file is not what it should be.
        ValueError: Arguments that do not fit each other.
    """
    degrees = parallel.parse(arguments.parallel)
    workers = math.prod(degrees.values())
    if workers > 1 and len(gt.debug.get_worker_stats()) < workers:
        raise ValueError(f"--parallel {arguments.parallel} needs {workers} workers: set GT_WORKERS=cpu:{workers}")
    gt.manual_seed(arguments.seed)
    gt.set_float32_matmul_precision("high" if arguments.tf32 else "highest")
    folder = Path(arguments.out) if arguments.out else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    elif arguments.save_every or arguments.resume:
        raise ValueError("checkpoints need a folder: -o FOLDER")
    done = done_steps(folder) if folder and arguments.resume else []
    model = make_model(str(folder / f"model_{done[-1]:08}.bin") if folder and done else arguments.model, arguments.seed)
    c = model.config
    if arguments.length > c.context:
        raise ValueError(f"-t {arguments.length} is more than the model's context of {c.context}")
    loader = TokenLoader(arguments.train, arguments.batch, arguments.length, shuffle=bool(arguments.shuffle))
    val = TokenLoader(arguments.val, arguments.batch, arguments.length) if arguments.val else None
    check_vocabulary(loader, c)
    configuration = parallel.signals(c, arguments.batch, degrees, arguments.zero)
    for name, signal in configuration.items():
        gt.register_config(name, signal)
    parallel.apply(model, configuration)
    total = arguments.total_batch or arguments.batch * arguments.length
    epoch = sum(len(read_tokens(path)) - 1 for path in loader.paths) // total
    settings = Settings(
        steps=arguments.steps or max(1, epoch),
        total_batch=total,
        lr=arguments.lr,
        schedule=arguments.schedule,
        warmup=arguments.warmup,
        final_fraction=arguments.final_fraction,
        decay=arguments.decay,
        skip_loss=arguments.skip_loss,
        skip_norm=arguments.skip_norm,
        bfloat16=arguments.dtype == "bfloat16",
        recompute=bool(arguments.recompute),
    )
    trainer = Trainer(model, loader, settings)
    if folder and done:
        state = folder / f"state_{done[-1]:08}_00000.bin"
        trainer.step = read_train_state(state, model, trainer.optimizer, loader)
        print(f"going on from step {trainer.step}")
    print(f"{model.count():,} parameters, {settings.steps} steps of {total:,} tokens")
    run(trainer, val, arguments, folder)


def check_vocabulary(loader: TokenLoader, config: Config) -> None:
    """Raises an error if a token of the first file is not in the vocabulary.

    Raises:
        FileError: There is one.
    """
    first = loader.tokens[: 1 << 20]
    if len(first) and int(first.max()) >= config.vocabulary:
        raise FileError(
            f"{loader.paths[0]} has token {int(first.max())}, but the model has 0 to {config.vocabulary - 1}: take the "
            "tokens of its own tokenizer"
        )


def run(trainer: Trainer, val: TokenLoader | None, arguments: argparse.Namespace, folder: Path | None) -> None:
    """Trains, and validates, samples and saves in between."""
    model, steps = trainer.model, trainer.settings.steps
    tokenizer = read_tokenizer(arguments.tokenizer) if arguments.tokenizer else None
    examples = read_hellaswag(arguments.hellaswag) if arguments.hellaswag else []
    log = Log(folder, trainer.step)
    flops = model.config.flops_per_token(model.count()) * trainer.settings.total_batch
    begin, speed = trainer.step, 0.0
    while True:
        step, last = trainer.step, trainer.step >= steps
        if val and (step % arguments.val_every == 0 or last):
            loss = trainer.validate(val, arguments.val_steps)
            print(f"val loss {loss:.6f}", flush=True)
            log.line(step, f"tel:{loss:.4f}")
        if examples and (step % arguments.val_every == 0 or last):
            log.line(step, f"eval:{hellaswag_accuracy(model, examples):.4f}")
        if arguments.sample_every and ((step and step % arguments.sample_every == 0) or last):
            show_text(model, tokenizer, arguments.sample_tokens)
        if folder and step > begin and arguments.save_every and (step % arguments.save_every == 0 or last):
            save_checkpoint(folder, trainer, arguments.keep, arguments.major)
        if last:
            return
        if arguments.overfit:
            trainer.loader.reset()
        started = time.perf_counter()
        report = trainer.advance()
        gt.synchronize()
        seconds = time.perf_counter() - started
        rate = trainer.settings.total_batch / seconds
        speed = EMA * speed + (1 - EMA) * rate
        average = speed / (1 - EMA ** (step + 1 - begin))
        print(line_of(step, steps, report, seconds, flops, average), flush=True)
        log.line(step, f"trl:{report.loss:.4f} lr:{report.lr:.6f} norm:{report.norm:.2f}")


def line_of(step: int, steps: int, report: Report, seconds: float, flops: int, speed: float) -> str:
    """Returns the line of a step's progress."""
    return (
        f"step {step + 1:4d}/{steps} | loss {report.loss:7.6f} ({report.loss_z:+.2f}z)"
        f"| norm {report.norm:6.4f} ({report.norm_z:+.2f}z)| lr {report.lr:.2e} | {1000 * seconds:.2f} ms | "
        f"{flops / seconds / 1e9:.1f} GFLOP/s | {speed:.0f} tok/s{' | skipped' if report.skipped else ''}"
    )


def main() -> int:
    """Runs the program; returns its exit status."""
    try:
        train(options().parse_args())
    except (FileError, FileNotFoundError, ValueError) as error:
        print(f"gt.llm.train: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
