"""Import of GT as `torch`, which `python -m gt.torch script.py` installs before it runs a script.

`torch` and every module below it become the modules of the same name in `gt`, or stand-ins for what GT lacks, even if
PyTorch is installed, so that a program never mixes both. Start at `install`.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import spawn
from types import FunctionType, ModuleType
from typing import Any

import gt
from gt import _absent, _gt
from gt._pytorch_names import MOVED, gt_name


class _StandInLoader(Loader):
    """A loader of the module that stands in for one of PyTorch's that GT lacks."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _absent.stand_in_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Loader(Loader):
    """A loader that returns a module of GT instead of making a new one."""

    def __init__(self, place: str) -> None:
        self.place = place

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.place)
        self.name = spec.name
        # The import system overwrites the module's spec.
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec
        # A submodule with the name of a function in its package, as gradcheck, must not replace it when it is imported.
        # So it counts as imported already.
        for child, value in list(vars(module).items()):
            name = f"{self.name}.{child}"
            place = MOVED.get(name, f"{self.place}.{child}")
            if isinstance(value, FunctionType) and place in sys.modules:
                sys.modules[name] = sys.modules[place]


class _Finder(MetaPathFinder):
    """A finder for `torch` and all modules below it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (the protocol's)
        target: ModuleType | None = None,  # noqa: ARG002 (the protocol's)
    ) -> ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        place = gt_name(fullname)
        if place is None:
            if _absent.has_module(fullname):
                return ModuleSpec(fullname, _StandInLoader(), is_package=True)
            return None
        is_package = hasattr(importlib.import_module(place), "__path__") or _absent.is_package(fullname)
        return ModuleSpec(fullname, _Loader(place), is_package=is_package)


def is_stand_in(spec: ModuleSpec) -> bool:
    """Whether a module is one of PyTorch's that GT does not have, which imports but has nothing to run."""
    return isinstance(spec.loader, _StandInLoader)


def _install_in_children() -> None:
    """Makes every process that `multiprocessing` starts install this as well."""
    plain = spawn.get_command_line

    def get_command_line(**options: Any) -> list[str]:
        words = plain(**options)
        if "-c" in words:
            words[words.index("-c") + 1] = "import gt.torch.installed; " + words[words.index("-c") + 1]
        return words

    spawn.get_command_line = get_command_line
    multiprocessing.set_forkserver_preload(["gt.torch.installed"])


def __getattr__(name: str) -> Any:
    # `import gt.torch as torch`, and `torch.torch`, which PyTorch has.
    return getattr(gt, name)


def install() -> None:
    """Makes `import torch` import `gt`, for this process and those that `multiprocessing` starts from it.

    Raises:
        RuntimeError: PyTorch itself has been imported already.
    """
    known = sys.modules.get("torch")
    if known is not None and known is not gt:
        raise RuntimeError("gt.torch.install: PyTorch is imported already: install before the first `import torch`")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        _install_in_children()
        _gt.set_leaf_updates(False)
        _gt.set_pytorch_names(True)
    gt.__version__ = gt.version.__version__
    gt.__name__ = "torch"
