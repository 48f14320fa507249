"""Names and modules that PyTorch has and GT lacks: they import, and calling them says that GT lacks them."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest
from support import environment

import gt
from gt import _absent


def run(program: str) -> str:
    """The standard output of a program for PyTorch that runs on GT."""
    done = subprocess.run(
        [sys.executable, "-m", "gt.torch", "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_and_names_can_be_imported() -> None:
    out = run(
        """
import torch
import torch._inductor.config
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.ao.quantization import QConfig
from torch.export import export
from torch import float8_e4m3fn, quantize_per_tensor

class Derived(FullyShardedDataParallel):
    def method(self) -> torch.jit.Final[int]: ...

def f(x: FullyShardedDataParallel | None = None, op=torch.distributed.ReduceOp.SUM): ...

print(isinstance(torch.ones(1), FullyShardedDataParallel), issubclass(Derived, FullyShardedDataParallel))
print(torch.ones(1).dtype == float8_e4m3fn, {float8_e4m3fn: 1}[torch.float8_e4m3fn], float8_e4m3fn)
torch._inductor.config.max_autotune = True
for call in (Derived, export, QConfig.with_args, quantize_per_tensor):
    try:
        call(1)
    except NotImplementedError as error:
        print(error)
"""
    )
    first, second, *messages = out.splitlines()
    assert first == "False True"
    assert second == "False 1 torch.float8_e4m3fn"
    assert [message.split(":")[0] for message in messages] == [
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.export.export",
        "torch.ao.quantization.QConfig.with_args",
        "torch.quantize_per_tensor",
    ]
    assert all("GT does not" in message for message in messages)
    assert "use bfloat16 or float16" in messages[2]


def test_what_pytorch_lacks_is_an_error() -> None:
    out = run(
        """
import importlib.util
import torch
for name in ("torch.nonsense", "torch.nn.nonsense"):
    print(importlib.util.find_spec(name))
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(error)
print(hasattr(torch, "nonsense"), hasattr(torch.nn, "nonsense"), hasattr(torch.nn.functional, "_nonsense"))
"""
    )
    assert out.splitlines() == [
        "None",
        "No module named 'torch.nonsense'",
        "None",
        "No module named 'torch.nn.nonsense'",
        "False False False",
    ]


def test_the_question_for_a_library_is_answered() -> None:
    here = importlib.util.find_spec("torchvision") is not None
    assert run("import importlib.util as u; print(u.find_spec('torchvision') is not None)") == f"{here}\n"


def test_every_module_of_pytorch_imports() -> None:
    modules = [name for name in _absent.names() if name != "torch.Tensor"]
    assert len(modules) > 900
    program = f"""
import importlib
for name in {modules}:
    module = importlib.import_module(name)
    assert module is importlib.import_module(name)
print(len({modules}))
"""
    assert run(program) == f"{len(modules)}\n"


def test_every_name_of_pytorch_s_modules_is_found() -> None:
    listed = {module: names for module, names in _absent.names().items() if names and module != "torch.Tensor"}
    assert sum(map(len, listed.values())) > 3500
    program = f"""
import importlib
found = {{}}
for name, words in {listed}.items():
    module = importlib.import_module(name)
    found[name] = [word for word in words if not hasattr(module, word)]
print({{name: words for name, words in found.items() if words}})
"""
    assert run(program) == "{}\n"


def test_a_stand_in_is_always_the_same_and_says_what_it_is() -> None:
    assert gt.quantize_per_tensor is gt.quantize_per_tensor
    assert _absent.is_stand_in(gt.quantize_per_tensor)
    assert _absent.is_stand_in(_absent.stand_in_module("torch.export"))
    assert not _absent.is_stand_in(gt.ones)
    assert repr(gt.quantize_per_tensor) == "<stand-in for torch.quantize_per_tensor>"
    assert "quantize_per_tensor" in str(gt.quantize_per_tensor.__doc__)
    with pytest.raises(NotImplementedError, match=r"torch\.quantize_per_tensor: PyTorch has it, GT does not"):
        gt.quantize_per_tensor(gt.ones(1), 0.1, 0, None)


def test_gt_is_not_mistaken_for_pytorch_where_both_are_imported() -> None:
    # `gt.export` is a stand-in module, which must not take the place of PyTorch's in `sys.modules`.
    assert _absent.is_stand_in(gt.export)
    assert "torch.export" not in sys.modules or sys.modules["torch.export"] is not gt.export


def test_other_devices_are_not_there() -> None:
    for name in ("xpu", "mps", "mtia"):
        module = importlib.import_module(f"gt.{name}")
        assert (module.is_available(), module.device_count(), module.is_initialized()) == (False, 0, False)
        module.manual_seed(0)
        module.empty_cache()
        with pytest.raises(RuntimeError, match="NVIDIA"):
            module.synchronize()
    assert gt.cpu.is_available()
    gt.cpu.synchronize()


def test_limits_of_dtypes_that_gt_lacks() -> None:
    assert gt.finfo(gt.float8_e4m3fn).max == 448
    assert gt.finfo(gt.float8_e5m2).min == -57344
    assert gt.finfo(gt.float8_e5m2).bits == 8


def test_classes_of_results_have_pytorch_s_names() -> None:
    x = gt.tensor([[2.0, 1.0], [1.0, 3.0]])
    made = {
        "max": x.max(1),
        "sort": x.sort(),
        "aminmax": x.aminmax(),
        "frexp": gt.frexp(x),
        "linalg_eigh": gt.linalg.eigh(x),
        "linalg_slogdet": gt.linalg.slogdet(x),
        "svd": gt.svd(x),
    }
    for name, value in made.items():
        assert type(value) is getattr(gt.return_types, name) is getattr(gt.return_types, f"{name}_out"), name
    assert not isinstance(made["svd"], gt.return_types.max)
    gt.return_types.pytree_register_structseq(gt.return_types.max)
    with pytest.raises(TypeError, match="return_types"):
        gt.return_types.pytree_register_structseq(tuple)
