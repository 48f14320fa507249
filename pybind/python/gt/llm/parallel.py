"""How training is spread over workers, as signals: `dp=4` divides batches, `tp=4` matrices, `pp=4` blocks.

With dp and tp, the workers of a stage are a mesh of dp rows: its rows divide batches, the workers of a row matrices.
"""

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
    """Returns the degrees of a text such as `dp=4,tp=2`.

    Raises:
        ValueError: An unknown name, or a number below 1.
    """
    degrees = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        if name not in DEGREES or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"--parallel {text}: {part!r} is not one of {', '.join(f'{name}=N' for name in DEGREES)}")
        degrees[name] = int(number)
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
    if zero and (dp == 1 or tp > 1 or pp > 1):
        raise ValueError("-z 1 divides the optimizer's state among the workers of dp: give --parallel dp=N alone")
    stages = [range(stage * dp * tp, (stage + 1) * dp * tp) for stage in range(pp)]
    samples = [_placed(stage, dp, tp, 0, "replicated") for stage in stages]
    found = {BATCH: samples[0]}
    if pp == 1:
        updated = samples[0] if zero else _placed(stages[0], dp, tp, "replicated", None)
        found |= {UPDATE: updated} if dp > 1 else {}
    for i in range(config.layers):
        stage = stages[i * pp // config.layers]
        if pp > 1:
            # The workers of the stage have all parameters of its blocks; a row has its samples.
            results = _placed(stage, dp, tp, 0, None)
            found[f"h.{i}"] = SignalConfig(results.shard, backward=f"h.{i}.backward")
            found[f"h.{i}.backward"] = results
            found[f"h.{i}.parameters"] = _placed(stage, dp, tp, "replicated", "replicated")
        if tp > 1:
            found |= {f"h.{i}.{name}": _placed(stage, dp, tp, "replicated", axis) for name, axis in DIVIDED.items()}
    return found if dp * tp * pp > 1 else {}


def _placed(stage: range, dp: int, tp: int, samples: int | str, matrices: int | str | None) -> SignalConfig:
    """The layout of results from row to row of a stage, and within each row."""
    if tp > 1:
        return SignalConfig(ShardConfig(workers=stage, mesh=(dp, tp), axes=(samples, matrices)))
    if dp > 1 and samples == 0:
        return SignalConfig(ShardConfig(axis=0, workers=stage))
    return SignalConfig(ShardConfig(workers=stage, replicated=True))


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
