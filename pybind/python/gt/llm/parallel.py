"""How training is spread over workers, as signals: `dp=4` divides batches, `tp=4` matrices, `pp=4` blocks."""

from __future__ import annotations

import gt
from gt import ShardConfig, SignalConfig
from gt.llm.model import GPT2, Config

BATCH, UPDATE = "llm.batch", "llm.update"
DEGREES = {
    "dp": "data parallel: each worker has all parameters and a part of every batch",
    "tp": "tensor parallel: each worker has some rows or columns of the matrices of each block",
    "pp": "pipeline parallel: each worker has some of the blocks",
}
# The matrices of a block, with the axis that tensor parallelism divides (Megatron-LM, Shoeybi et al. 2019). A row of
# a weight is a column of the result.
DIVIDED = {"attn.c_attn.weight": 0, "attn.c_proj.weight": 1, "mlp.c_fc.weight": 0, "mlp.c_proj.weight": 1}


def parse(text: str) -> dict[str, int]:
    """Returns the degrees of a text such as `dp=4`.

    Raises:
        ValueError: An unknown name, a number below 1, or several degrees above 1.
    """
    degrees = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        if name not in DEGREES or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"--parallel {text}: {part!r} is not one of {', '.join(f'{name}=N' for name in DEGREES)}")
        degrees[name] = int(number)
    several = [name for name, number in degrees.items() if number > 1]
    if len(several) > 1:
        raise ValueError(f"--parallel {text}: a tensor is divided along one axis: take one of {' and '.join(several)}")
    return degrees


def signals(config: Config, batch: int, degrees: dict[str, int]) -> dict[str, SignalConfig]:
    """Returns the configurations of signals for these degrees.

    Raises:
        ValueError: The degree does not divide the batch, the heads or the layers.
    """
    kind, count = next(((name, number) for name, number in degrees.items() if number > 1), ("dp", 1))
    size, what = {
        "dp": (batch, "sequences of a batch"),
        "tp": (config.heads, "attention heads"),
        "pp": (config.layers, "blocks"),
    }[kind]
    if size % count:
        raise ValueError(f"{kind}={count} does not divide the {size} {what}")
    if count == 1:
        return {}
    workers, blocks = list(range(count)), range(config.layers)
    replicated = SignalConfig(ShardConfig(workers=workers, replicated=True))
    if kind == "dp":
        return {BATCH: SignalConfig(ShardConfig(axis=0, workers=workers)), UPDATE: replicated}
    if kind == "tp":
        divided = {axis: SignalConfig(ShardConfig(axis=axis, workers=workers)) for axis in (0, 1)}
        return {BATCH: replicated} | {f"h.{i}.{name}": divided[axis] for i in blocks for name, axis in DIVIDED.items()}
    found = {}
    for i in blocks:
        place = ShardConfig(workers=[i * count // config.layers])
        found[f"h.{i}"] = SignalConfig(place, backward=f"h.{i}.gradients")
        found[f"h.{i}.gradients"] = SignalConfig(place)
    return found


def apply(model: GPT2, configuration: dict[str, SignalConfig]) -> None:
    """Puts the modules and parameters that the configuration names under the signal of that name."""
    for name, module in model.named_modules():
        if name in configuration:
            module.forward = gt.signal.context(name)(module.forward)
            for parameter in module.parameters():
                parameter.data = gt.signal.tensor(parameter.data, name=name)
    for name, parameter in model.named_parameters():
        if name in configuration:
            parameter.data = gt.signal.tensor(parameter.data, name=name)
