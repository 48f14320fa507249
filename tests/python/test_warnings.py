"""Warnings of likely mistakes: the same conditions and categories in GT and, where it is installed, in PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gt

PEERS = [gt, *([importlib.import_module("torch")] if importlib.util.find_spec("torch") else [])]
CASES: dict[str, tuple[list[type[Warning]], Callable[[Any], Any]]] = {}


def case(*kinds: type[Warning]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Adds a program that gets these warnings, in order."""

    def add(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CASES[program.__name__] = (list(kinds), program)
        return program

    return add


def scheduled(t: Any, cls: Any = None) -> tuple[Any, Any]:
    """An optimizer and its scheduler."""
    optimizer = (cls or t.optim.SGD)([t.nn.Parameter(t.ones(1))], lr=0.1)
    return optimizer, t.optim.lr_scheduler.StepLR(optimizer, 1)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@case(UserWarning)
def more_workers_than_cores(t: Any) -> None:
    t.utils.data.DataLoader(list(range(4)), num_workers=cores() + 1)


@case()
def as_many_workers_as_cores(t: Any) -> None:
    t.utils.data.DataLoader(list(range(4)), num_workers=cores())


class Counted:
    """The samples of a dataset of any framework that says that it has fewer than it has."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter(range(4))


@case(UserWarning, UserWarning)
def iterable_dataset_longer_than_its_length(t: Any) -> None:
    loader = t.utils.data.DataLoader(type("D", (Counted, t.utils.data.IterableDataset), {})())
    assert len(loader) == 2
    assert len(list(loader)) == 4


@case()
def iterable_dataset_whose_length_nobody_asked_for(t: Any) -> None:
    list(t.utils.data.DataLoader(type("D", (Counted, t.utils.data.IterableDataset), {})()))


@case(UserWarning)
def random_split_with_an_empty_subset(t: Any) -> None:
    t.utils.data.random_split(list(range(3)), [0.1, 0.1, 0.8])


@case(UserWarning)
def scheduler_before_optimizer(t: Any) -> None:
    _, scheduler = scheduled(t)
    scheduler.step()
    scheduler.step()


@case()
def scheduler_after_optimizer(t: Any) -> None:
    optimizer, scheduler = scheduled(t)
    optimizer.step()
    scheduler.step()


@case()
def scheduler_after_an_optimizer_of_the_program(t: Any) -> None:
    class Own(t.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # noqa: ARG002
            return None

    optimizer, scheduler = scheduled(t, Own)
    optimizer.step()
    scheduler.step()


@case(UserWarning)
def optimizer_step_replaced(t: Any) -> None:
    optimizer, scheduler = scheduled(t)
    optimizer.step = lambda: None
    optimizer.step()
    scheduler.step()


@case(UserWarning)
def parameter_twice_in_a_group(t: Any) -> None:
    p = t.nn.Parameter(t.ones(1))
    assert len(t.optim.SGD([p, p], lr=0.1).param_groups[0]["params"]) == 2


@case(FutureWarning)
def cpu_autocast(t: Any) -> None:
    with t.cpu.amp.autocast():
        assert (t.ones(2, 2) @ t.ones(2, 2)).dtype == t.bfloat16


@case(FutureWarning)
def cpu_scaler(t: Any) -> None:
    assert t.cpu.amp.GradScaler(init_scale=4.0).get_scale() == 4.0


@case(FutureWarning)
def cuda_autocast_disabled(t: Any) -> None:
    t.cuda.amp.autocast(enabled=False)


@case(FutureWarning)
def cuda_scaler_disabled(t: Any) -> None:
    t.cuda.amp.GradScaler(enabled=False)


@case(UserWarning)
def gradient_of_a_result(t: Any) -> None:
    assert (t.ones(1, requires_grad=True) * 2).grad is None


@case()
def gradients_that_are_there_or_to_come(t: Any) -> None:
    x = t.ones(1, requires_grad=True)
    y = x * 2
    y.retain_grad()
    assert (x.grad, y.grad, t.ones(1).grad) == (None, None, None)


@case(UserWarning)
def backward_with_create_graph(t: Any) -> None:
    x = t.ones(1, requires_grad=True)
    (x**2).sum().backward(create_graph=True)
    x.grad = None


@case()
def grad_with_create_graph(t: Any) -> None:
    x = t.ones(1, requires_grad=True)
    t.autograd.grad((x**2).sum(), x, create_graph=True)


@case(UserWarning)
def tensor_of_a_tensor(t: Any) -> None:
    assert not t.tensor(t.ones(1, requires_grad=True)).requires_grad


@case(UserWarning)
def imaginary_parts_dropped(t: Any) -> None:
    assert t.full((2,), 1j).float().tolist() == [0, 0]


@case(UserWarning)
def bytes_as_a_mask(t: Any) -> None:
    assert t.arange(3)[t.tensor([1, 0, 1], dtype=t.uint8)].tolist() == [0, 2]


@case(UserWarning)
def out_of_another_shape(t: Any) -> None:
    assert t.add(t.ones(2), 1, out=t.ones(3)).shape == (2,)


@case()
def out_without_elements(t: Any) -> None:
    t.add(t.ones(2), 1, out=t.ones(0))


@case(UserWarning)
def deviation_of_one_element(t: Any) -> None:
    assert t.ones(1).std().isnan()


@case(UserWarning)
def variances_of_one_element_each(t: Any) -> None:
    t.ones(3, 1).var(dim=1)


@case()
def variance_of_one_element_without_correction(t: Any) -> None:
    assert t.ones(1).var(correction=0) == 0


@case(UserWarning)
def mse_loss_that_broadcasts(t: Any) -> None:
    t.nn.functional.mse_loss(t.ones(4, 1), t.ones(4))


@case(UserWarning)
def kl_div_over_elements(t: Any) -> None:
    t.nn.functional.kl_div(t.zeros(2, 2), t.ones(2, 2))


@case()
def kl_div_over_the_batch(t: Any) -> None:
    t.nn.functional.kl_div(t.zeros(2, 2), t.ones(2, 2), reduction="batchmean")
    t.nn.functional.kl_div(t.zeros(2, 2), t.ones(2, 2), reduction="sum")


@case(UserWarning)
def softmax_without_an_axis(t: Any) -> None:
    t.nn.functional.softmax(t.ones(2, 2))


@case(UserWarning)
def dropout2d_of_sequences(t: Any) -> None:
    assert t.nn.functional.dropout2d(t.ones(2, 3, 4)).shape == (2, 3, 4)


@case(UserWarning)
def dropout2d_of_rows(t: Any) -> None:
    assert set(t.nn.functional.dropout2d(t.ones(20, 30)).flatten().tolist()) == {0, 2}


@case(UserWarning)
def dropout3d_of_rows(t: Any) -> None:
    rows = t.nn.functional.dropout3d(t.ones(40, 3))
    assert {tuple(row) for row in rows.tolist()} == {(0, 0, 0), (2, 2, 2)}


@case(UserWarning)
def dropout_of_one_recurrent_layer(t: Any) -> None:
    t.nn.LSTM(2, 3, dropout=0.5)


@case()
def dropout_between_recurrent_layers(t: Any) -> None:
    t.nn.LSTM(2, 3, num_layers=2, dropout=0.5)


@case(UserWarning)
def instance_norm_of_other_channels(t: Any) -> None:
    t.nn.InstanceNorm1d(3)(t.ones(2, 4, 5))


@case(UserWarning)
def meshgrid_without_indexing(t: Any) -> None:
    t.meshgrid(t.ones(2), t.ones(3))


@case()
def meshgrid_with_indexing(t: Any) -> None:
    t.meshgrid(t.ones(2), t.ones(3), indexing="ij")
    t.cartesian_prod(t.ones(2), t.ones(3))


@case(UserWarning)
def clip_grad_norm_of_an_ended_generator(t: Any) -> None:
    parameters = t.nn.Linear(2, 2).parameters()
    list(parameters)
    t.nn.utils.clip_grad_norm_(parameters, 1.0)


@case(UserWarning)
def kaiming_of_no_elements(t: Any) -> None:
    t.nn.init.kaiming_uniform_(t.ones(0, 2))


@case()
def lazy_layer(t: Any) -> None:
    assert t.nn.LazyLinear(3)(t.ones(1, 2)).shape == (1, 3)


@case(FutureWarning)
def older_weight_norm(t: Any) -> None:
    t.nn.utils.weight_norm(t.nn.Linear(2, 2))


@case(UserWarning)
def full_backward_hook_without_input_gradients(t: Any) -> None:
    layer = t.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *_: None)
    layer(t.ones(1, 2)).sum().backward()


@case(UserWarning)
def detect_anomaly(t: Any) -> None:
    with t.autograd.detect_anomaly():
        pass


@case(UserWarning)
def checkpoint_without_gradients(t: Any) -> None:
    t.utils.checkpoint.checkpoint(lambda x: x * 2, t.ones(2), use_reentrant=True)


@pytest.mark.parametrize("t", PEERS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", CASES)
def test_a_likely_mistake_gets_a_warning(name: str, t: Any) -> None:
    kinds, program = CASES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program(t)
    assert [w.category for w in caught] == kinds, [str(w.message) for w in caught]


@pytest.mark.parametrize("t", PEERS, ids=lambda t: t.__name__)
def test_without_a_gpu_its_options_get_a_warning(t: Any) -> None:
    if t.cuda.is_available():
        pytest.skip("there is a GPU")
    dataset = list(range(4))
    programs: list[tuple[Callable[[], Any], list[type[Warning]]]] = [
        (lambda: list(t.utils.data.DataLoader(dataset, pin_memory=True)), [UserWarning]),
        (lambda: list(t.utils.data.DataLoader(dataset, num_workers=1, pin_memory=True)), [UserWarning]),
        (lambda: t.cuda.amp.GradScaler(), [FutureWarning, UserWarning]),
        (lambda: t.cuda.amp.autocast(), [FutureWarning, UserWarning]),
        (lambda: t.amp.GradScaler("cuda"), [UserWarning]),
    ]
    for program, kinds in programs:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program()
        assert [w.category for w in caught] == kinds


def test_pin_memory_warns_once_for_each_line() -> None:
    if gt.cuda.is_available():
        pytest.skip("there is a GPU")
    loader = gt.utils.data.DataLoader(list(range(4)), pin_memory=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            for _ in loader:
                pass
    assert [w.filename for w in caught] == [__file__]


def test_an_array_that_cannot_be_written_is_copied_without_a_warning() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = gt.from_numpy(array)
    t += 1
    assert array.tolist() == [0, 1, 2]
