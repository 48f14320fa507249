"""The names of classes and functions in PyTorch's pickles, and GT's objects for them.

A checkpoint names `torch.nn.modules.linear.Linear` where this package has `gt.nn.layers.Linear`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gt import _absent, distributions, optim
from gt.nn import modules

_SPECIAL = {
    ("gt", "Tensor"): ("torch", "Tensor"),
    ("gt", "Generator"): ("torch", "Generator"),
    ("gt._types", "Size"): ("torch", "Size"),
    ("gt.nn.parameter", "Parameter"): ("torch.nn.parameter", "Parameter"),
    ("gt.nn.parameter", "Buffer"): ("torch.nn.parameter", "Buffer"),
}


# Modules of PyTorch that have another name in GT, with all modules below them.
MOVED = {
    "torch.utils.data.dataloader": "gt.utils.data.loader",
    "torch.utils.data._utils.collate": "gt.utils.data.collate",
    "torch.utils.data._utils": "gt.utils.data",
    "torch.amp.autocast_mode": "gt.amp",
    "torch.cuda.memory": "gt.cuda",
    "torch.cuda.random": "gt.cuda",
    "torch.multiprocessing.spawn": "gt.multiprocessing",
    "torch.nn.parallel.parallel_apply": "gt.nn.parallel.scatter_gather",
    "torch.nn.parallel.replicate": "gt.nn.parallel.scatter_gather",
    "torch.nn.utils.weight_norm": "gt.nn.utils.reparametrize",
    "torch.nn.utils.spectral_norm": "gt.nn.utils.reparametrize",
    "torch._tensor": "gt",
    "torch._lowrank": "gt",
    **{f"torch.nn.modules.{name}": "gt.nn.modules" for name in modules.FILES},
    **{f"torch.optim.{name}": "gt.optim" for name in optim.FILES},
    **{f"torch.distributions.{name}": "gt.distributions" for name in distributions.FILES},
    "torch.distributions.relaxed_bernoulli": "gt.distributions.composed",
    "torch.distributions.relaxed_categorical": "gt.distributions.composed",
}


def gt_name(name: str) -> str | None:
    """The module of GT that replaces the module of PyTorch called `name`; None if there is none."""
    for moved, place in MOVED.items():
        if name == moved or name.startswith(moved + "."):
            return place
    place = "gt" + name.removeprefix("torch")
    if place == "gt.torch" or place.startswith("gt.torch."):
        return None
    try:
        return place if find_spec(place) else None
    except ModuleNotFoundError:
        return None


def is_own(module: str) -> bool:
    """Whether a module is one of this package, by its name."""
    return module == "gt" or module.startswith("gt.")


@cache
def _homes() -> dict[tuple[str, str], str]:
    """The module of each class of PyTorch's packages whose files are others here, by package and name."""
    found: dict[tuple[str, str], str] = {}
    module = ""
    for line in (Path(__file__).parent / "torch" / "classes.txt").read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
        elif module:
            found.update(((_package(module), name), module) for name in line.split())
    return found


def _package(module: str) -> str:
    """The package of a module of PyTorch or of this package, as `nn`."""
    return module.partition(".")[2].partition(".")[0]


def name_of(module: str, name: str) -> tuple[str, str]:
    """The module and name in PyTorch of an object in a module of this package, as `("torch.optim.adam", "Adam")`."""
    if (module, name) in _SPECIAL:
        return _SPECIAL[module, name]
    first = name.partition(".")[0]
    place = "torch" + module.removeprefix("gt")
    if home := _homes().get((_package(module), first)):
        return home, name
    known = place
    while known and first not in _absent.names().get(known, ()):
        known = known.rpartition(".")[0]
    return known or place, name


def object_of(module: str, name: str) -> Any:
    """The object of this package that PyTorch has in a module under a name.

    Raises:
        AttributeError: There is none.
    """
    place = gt_name(module)
    if place is None:
        raise AttributeError(f"{module}.{name}: GT does not have it{_absent.reason(module)}")
    found: Any = import_module(place)
    for part in name.split("."):
        found = getattr(found, part)
    if _absent.is_stand_in(found):
        raise AttributeError(f"{module}.{name}: GT does not have it{_absent.reason(f'{module}.{name}')}")
    return found
