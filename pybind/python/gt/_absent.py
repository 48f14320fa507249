"""Error messages for names that PyTorch or its libraries have and GT has not. Start at `reason`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# Dotted names, each for itself and all names below it, and what to use instead. The longest match counts.
REASONS = {
    "torch.distributed": "one process sees all devices of a machine; there is nothing across machines yet",
    "torch.nn.parallel": "one process sees all devices of a machine: call the module itself",
    "torch.multiprocessing": "use multiprocessing: tensors travel between processes by value",
    "torch.fx": "there is no tracing of programs: the daemon sees every instruction as it is",
    "torch.onnx": "there is no export: save a state dict as safetensors and load it where it is needed",
    "torch.export": "there is no export: save a state dict as safetensors and load it where it is needed",
    "torch.sparse": "tensors are dense",
    "torch.nested": "pad the tensors and use a mask",
    "torch.quantization": "there are no quantized tensors: use bfloat16 or float16 to save memory",
    "torch.ao": "there are no quantized tensors: use bfloat16 or float16 to save memory",
    **dict.fromkeys(
        ("torchvision", "torchaudio", "torchtext"),
        "it is compiled against PyTorch: read data with NumPy or PIL, and have a model's source beside the program",
    ),
    "torch.hub": "download the weights yourself and load them with gt.load",
    "torch.profiler": "use gt.debug, or GT_INSTRUCTION_LOG to see every instruction",
    "torch.utils.tensorboard": "write numbers with a logger of your choice: loss.item()",
    "torch.utils.cpp_extension": "there are no extensions in C++",
    "torch.library": "there are no user-defined primitives: compose operations, their gradients follow",
    "torch._C": "that is PyTorch's own inside",
    "torch._dynamo": "that is PyTorch's own inside; gt.compile leaves a function as it is",
    "torch._inductor": "that is PyTorch's own inside; gt.compile leaves a function as it is",
    "torch.fft": "there are no complex numbers: use numpy.fft on t.numpy()",
    "torch.stft": "use scipy.signal.stft on t.numpy()",
    "torch.istft": "use scipy.signal.istft on t.numpy()",
}


def reason(name: str) -> str:
    """The end of an error message about `name`, as `torch.fx.Graph`: empty, or a colon and what to use instead."""
    while name:
        if name in REASONS:
            return f" ({name}: {REASONS[name]})"
        name = name.rpartition(".")[0]
    return ""


def names() -> dict[str, list[str]]:
    """The public names of each of PyTorch's modules and of its tensors, from `torch/names.txt`."""
    found: dict[str, list[str]] = {}
    module = ""
    for line in (Path(__file__).parent / "torch" / "names.txt").read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
            found[module] = []
        elif module:
            found[module] += line.split()
    return found


def getter(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, which raises an error that says what to use instead of a missing name."""

    def missing(name: str) -> NoReturn:
        place = "torch" + module.removeprefix("gt")
        why = ""
        if not name.startswith("_"):
            known = name in names().get(place, ())
            why = (": PyTorch has it, GT does not" if known else "") + reason(f"{place}.{name}")
        raise AttributeError(f"module '{module}' has no attribute '{name}'{why}", name=name)

    return missing
