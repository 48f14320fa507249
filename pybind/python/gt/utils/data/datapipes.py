"""`torch.utils.data`'s older datasets that are chained by methods: `IterDataPipe` and `functional_datapipe`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from gt.utils.data.dataset import Dataset, IterableDataset


class IterDataPipe(IterableDataset):
    """An iterable dataset with the methods that `functional_datapipe` adds."""

    functions: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self.functions:
            return partial(self.functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name)


class MapDataPipe(Dataset):
    """A dataset with indices."""


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[type], type]:  # noqa: ARG001
    """A decorator of classes: `pipe.name(…)` makes an instance whose source is `pipe`."""

    def register(cls: type) -> type:
        IterDataPipe.functions[name] = cls
        return cls

    return register
