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
        ValueError: An unknown name, a number below 1, or tp beside another degree above 1.
    """
    degrees = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        if name not in DEGREES or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"--parallel {text}: {part!r} is not one of {', '.join(f'{name}=N' for name in DEGREES)}")
        degrees[name] = int(number)
    several = [name for name, number in degrees.items() if number > 1]
    if len(several) > 1 and "tp" in several:
        raise ValueError(
            f"--parallel {text}: a tensor is divided along one axis, so tp=N goes with no other degree; dp and pp go "
            "together"
        )
    return degrees


def signals(config: Config, batch: int, degrees: dict[str, int], zero: int = 0) -> dict[str, SignalConfig]:
    """Returns the configurations of signals for these degrees.

    Args:
        config: The model's sizes.
        batch: The sequences of a batch.
        degrees: What `parse` returns.
        zero: The stage of ZeRO (Rajbhandari et al. 2020). With 1, the workers of `dp` divide the optimizer's state and
            its update among them, so gradients are reduce-scattered and new parameters gathered.

    Raises:
        ValueError: A degree does not divide the batch, the heads or the layers; ZeRO with anything but `dp` alone.
    """
    dp, tp, pp = (degrees.get(name, 1) for name in DEGREES)
    for kind, count, size, what in (
        ("dp", dp, batch, "sequences of a batch"),
        ("tp", tp, config.heads, "attention heads"),
        ("pp", pp, config.layers, "blocks"),
    ):
        if size % count:
            raise ValueError(f"{kind}={count} does not divide the {size} {what}")
    if zero and (dp == 1 or pp > 1):
        raise ValueError("-z 1 divides the optimizer's state among the workers of dp: give --parallel dp=N alone")
    workers, blocks = list(range(max(dp, tp))), range(config.layers)
    replicated = SignalConfig(ShardConfig(workers=workers, replicated=True))
    if tp > 1:
        divided = {axis: SignalConfig(ShardConfig(axis=axis, workers=workers)) for axis in (0, 1)}
        return {BATCH: replicated} | {f"h.{i}.{name}": divided[axis] for i in blocks for name, axis in DIVIDED.items()}
    found = {}
    if dp > 1:
        samples = SignalConfig(ShardConfig(axis=0, workers=workers))
        found = {BATCH: samples} if pp > 1 else {BATCH: samples, UPDATE: samples if zero else replicated}
    for i in blocks if pp > 1 else ():
        # The workers of the stage: each has all parameters of its blocks, and its samples.
        stage = [i * pp // config.layers * dp + worker for worker in range(dp)]
        whole = SignalConfig(ShardConfig(workers=stage, replicated=True))
        samples = SignalConfig(ShardConfig(axis=0, workers=stage)) if dp > 1 else whole
        found[f"h.{i}"] = SignalConfig(samples.shard, backward=f"h.{i}.backward")
        found[f"h.{i}.backward"] = samples
        found[f"h.{i}.parameters"] = whole
    return found


def apply(model: GPT2, configuration: dict[str, SignalConfig]) -> None:
    """Puts the modules and parameters that the configuration names under the signal of that name."""
    for name, module in model.named_modules():
        if name in configuration:
            module.forward = gt.signal.context(name)(module.forward)
            for parameter in module.parameters():
                parameter.data = gt.signal.tensor(parameter.data, name=f"{name}.parameters")
    for name, parameter in model.named_parameters():
        if name in configuration:
            parameter.data = gt.signal.tensor(parameter.data, name=name)
