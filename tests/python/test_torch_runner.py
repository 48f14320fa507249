"""`python -m gt.torch`: programs written for PyTorch run unchanged on GT."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, environment

import gt
from gt import _absent

PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch import optim
from torch.nn.parameter import Parameter
from torch.nn.modules.loss import MSELoss
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
import helper

import gt
assert torch is gt and F is gt.nn.functional and nn.modules.Linear is nn.Linear
assert torch.__spec__.name == "gt"
assert __name__ == "__main__" and sys.modules["__main__"].helper is helper
device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
print(sys.argv[1:], device, (torch.ones(3) @ torch.ones(3)).item())
"""


def run(*args: str, stdin: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gt.torch", *args],
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    (tmp_path / "scripts" / "helper.py").write_text("import torch\nzeros = torch.zeros(2)\n")
    return tmp_path


def test_a_script_runs_from_anywhere_with_its_arguments(folder: Path) -> None:
    done = run("scripts/program.py", "--lr", "1", folder=folder)
    assert done.stderr == ""
    assert done.stdout == "['--lr', '1'] cpu 3.0\n"
    assert done.returncode == 0


def test_a_module_a_folder_code_and_standard_input(folder: Path) -> None:
    assert run("-m", "program", "a", folder=folder / "scripts").stdout == "['a'] cpu 3.0\n"
    (folder / "scripts" / "__main__.py").write_text(PROGRAM)
    assert run("scripts", "a", folder=folder).stdout == "['a'] cpu 3.0\n"
    code = "import sys, torch; print(torch.__name__, sys.argv)"
    assert run("-c", code, "x").stdout == "torch ['-c', 'x']\n"
    assert run("-", "x", stdin=code).stdout == "torch ['-', 'x']\n"


def test_it_ends_as_the_program_ends(folder: Path) -> None:
    assert run("-c", "raise SystemExit(7)").returncode == 7
    (folder / "wrong.py").write_text("def f():\n    raise ValueError('so')\n\nf()\n")
    for told in (["wrong.py"], ["-m", "wrong"]):
        done = run(*told, folder=folder)
        assert done.returncode == 1
        lines = [line for line in done.stderr.splitlines() if "^" not in line]
        assert lines == [
            "Traceback (most recent call last):",
            f'  File "{folder}/wrong.py", line 4, in <module>',
            "    f()",
            f'  File "{folder}/wrong.py", line 2, in f',
            "    raise ValueError('so')",
            "ValueError: so",
        ]
    (folder / "wrong.py").write_text("x = = 1\n")
    assert run("wrong.py", folder=folder).stderr.startswith(f'  File "{folder}/wrong.py", line 1')


VERSION = """
import torch
from torch.torch_version import TorchVersion
v = torch.__version__
assert isinstance(v, str) and isinstance(v, TorchVersion)
assert v >= "2.1" and v > (1, 13) and not v < "2.9.1" and v >= (2, 15) and v != "2.15.0" and v == str(v)
assert int(v.split(".")[0]) == 2 and v == torch.version.__version__
assert TorchVersion("2.0.0a0") < "2.0" < TorchVersion("2.0.0+cpu") and TorchVersion("2.0") == (2,)
assert torch.version.cuda is None and torch.version.hip is None
print(torch.version.gt)
"""


def test_the_version_is_that_of_the_pytorch_it_stands_in_for() -> None:
    own = gt.__version__
    assert run("-c", VERSION).stdout == f"{own}\n"
    assert run("-c", "import torch; print(torch.__version__)").stdout == f"2.15.0+gt{own}\n"


CHILDREN = """
import multiprocessing
import torch

def child(queue):
    queue.put((torch.version.gt is not None, torch.ones(3).sum().item()))

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get(timeout=60))
        process.join()
"""


def test_processes_that_the_program_starts_run_on_gt_too(tmp_path: Path) -> None:
    (tmp_path / "children.py").write_text(CHILDREN)
    done = run("children.py", folder=tmp_path)
    assert done.stdout == "(True, 3.0)\n" * 2, done.stderr


def test_a_substitute_for_torchvision_is_used(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("import torch\nname = torch.__name__\n")
    assert run("-c", "import torchvision; print(torchvision.name)", folder=tmp_path).stdout == "torch\n"


def test_missing_names_are_in_the_error() -> None:
    for program, kind, name in [
        ("import torch.nn.foo", "ModuleNotFoundError", "torch.nn.foo"),
        ("import torch\ntorch.sparse_bsr_tensor(1)", "NotImplementedError", "gt.sparse has COO, CSR and CSC"),
        ("import torch\ntorch.nonsense", "AttributeError", "'nonsense'"),
        ("import torch\ntorch.cuda.synchronize()", "RuntimeError", "No CUDA GPUs are available"),
    ]:
        done = run("-c", program)
        assert done.returncode == 1
        assert kind in done.stderr.splitlines()[-1]
        assert name in done.stderr.splitlines()[-1]


def test_the_report_of_names_tells_what_is_there(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "reports.py", tmp_path]
    subprocess.run(command, env=environment(), capture_output=True, timeout=120, check=True)
    page = (tmp_path / "torch.md").read_text()
    checked = 0
    for section in page.split("\n## ")[1:]:
        place, rest = section.split("\n", 1)
        there, absent = (re.findall(r"`(\w+)`", part.split("\n- ")[0]) for part in rest.split("### Not there"))
        name = "gt" + place.removeprefix("torch")
        here = gt.Tensor if place == "torch.Tensor" else importlib.import_module(name)
        assert [name for name in there if not hasattr(here, name)] == []
        assert [name for name in there if _absent.is_stand_in(getattr(here, name))] == []
        found = [getattr(here, name) for name in absent if hasattr(here, name)]
        assert [value for value in found if not _absent.is_stand_in(value)] == []
        checked += len(there) + len(absent)
    assert checked > 1500


def test_wrong_usage() -> None:
    for args, message in [
        ([], ""),
        (["-x"], "unknown option -x"),
        (["-m"], "-m needs"),
        (["no.py"], "can't open file"),
    ]:
        done = run(*args)
        assert done.returncode == 2
        assert message in done.stdout + done.stderr
    assert run("-m", "no_such_module").returncode == 1
    assert run("--help").returncode == 0


DISTRIBUTED = """
import os, sys
import torch, torch.distributed as dist
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
print(sys.argv[1:], *(os.environ[name] for name in names))
dist.init_process_group("gloo")
x = torch.ones(2)
dist.all_reduce(x)
print(x.tolist(), dist.get_rank(), dist.get_world_size())
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("options", "arguments", "variables", "notice"),
    [
        (["run", "--standalone", "--nproc_per_node=1"], ["--lr", "3"], "127.0.0.1 29500 none", ""),
        (
            ["run", "--nnodes=1:4", "--nproc-per-node", "gpu", "--master-port=29501", "--rdzv-id", "job"],
            [],
            "127.0.0.1 29501 job",
            "--nproc-per-node gpu: the script runs once, and its one process uses all devices",
        ),
        (["launch", "--use_env"], [], "127.0.0.1 29500 none", ""),
        (["launch"], ["a"], "127.0.0.1 29500 none", ""),
    ],
)
def test_torchrun_runs_a_script_once(
    folder: Path, options: list[str], arguments: list[str], variables: str, notice: str
) -> None:
    (folder / "distributed.py").write_text(DISTRIBUTED)
    done = run("-m", f"torch.distributed.{options[0]}", *options[1:], "distributed.py", *arguments, folder=folder)
    found = [*arguments, "--local-rank=0"] if options == ["launch"] else arguments
    assert done.stdout.splitlines() == [f"{found} 0 0 1 {variables}", "[1.0, 1.0] 0 1"]
    assert done.returncode == 3
    assert notice in done.stderr
    assert bool(notice) == bool(done.stderr), done.stderr


def test_torchrun_runs_modules_and_programs() -> None:
    done = run("-m", "torch.distributed.run", "-m", "json.tool", "--compact", stdin='{"a": 1}')
    assert (done.returncode, done.stdout) == (0, '{"a":1}\n')
    done = run(
        "-m", "torch.distributed.run", "--no-python", sys.executable, "-c", "import os; print(os.environ['RANK'])"
    )
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("torch.distributed.run --nnodes 2 x.py", "this would be node 0 of 2, but a program on GT is one process"),
        ("torch.distributed.run --nnodes 2:3 x.py", "start `python -m gt.launch script.py` on each"),
        ("torch.distributed.run --nproc 2 x.py", "unrecognized arguments: --nproc"),
        ("torch.distributed.run --no-python -m x", "--no-python and -m exclude each other"),
        ("torch.distributed.run --no-python ./none", "cannot start ./none: No such file or directory"),
        ("torch.distributed.run", "the following arguments are required: script"),
        ("torch.utils.benchmark", "torch.utils.benchmark is a module of PyTorch that GT does not have"),
    ],
)
def test_wrong_options_of_torchrun_and_modules_that_gt_lacks_are_a_sentence(words: str, message: str) -> None:
    done = run("-m", *words.split())
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)


def test_pytorch_is_not_replaced_under_a_program_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    done = run("-c", "", folder=tmp_path)
    assert done.returncode == 0
    program = "import sys; sys.path.insert(0, '.'); import torch, gt.torch; gt.torch.install()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "PyTorch is imported already" in done.stderr


def test_names_are_pytorch_s_when_printed() -> None:
    program = (
        "import torch, copy, pickle; x = torch.ones(2, dtype=torch.int32); "
        "print(x.dtype, x.shape, x.type(), x.layout, x); "
        "print(copy.deepcopy(x.dtype) is x.dtype, pickle.loads(pickle.dumps(x.dtype)) is x.dtype, "
        "getattr(torch, str(x.dtype).split('.')[1]) is x.dtype, torch.contiguous_format, "
        "torch.finfo(torch.float16).dtype)"
    )
    done = run("-c", program)
    assert done.stdout.splitlines() == [
        "torch.int32 torch.Size([2]) torch.IntTensor torch.strided tensor([1, 1], dtype=torch.int32)",
        "True True True torch.contiguous_format float16",
    ], done.stderr
    assert str(gt.float32) == "gt.float32"
