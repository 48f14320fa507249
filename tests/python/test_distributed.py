"""`torch.distributed` with the one process that a program on GT is."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gt
from gt import distributed
from gt import multiprocessing as mp
from gt.nn.parallel import DistributedDataParallel


@pytest.fixture
def world() -> Iterator[None]:
    """The group of one process."""
    distributed.init_process_group("gloo", init_method="env://", world_size=1, rank=0)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("world")
def test_the_group_is_this_process() -> None:
    assert distributed.is_available()
    assert distributed.is_initialized()
    assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
    assert distributed.get_backend() == "gloo" == distributed.Backend("GLOO")
    assert distributed.group.WORLD.size() == 1
    assert distributed.get_process_group_ranks(distributed.new_group([0])) == [0]
    distributed.barrier()
    with pytest.raises(RuntimeError, match="exists already"):
        distributed.init_process_group("gloo")
    with pytest.raises(ValueError, match="the only rank is 0"):
        distributed.new_group([1])


def test_without_a_group() -> None:
    assert not distributed.is_initialized()
    assert distributed.group.WORLD is None
    for call in (distributed.get_rank, distributed.get_world_size, distributed.barrier):
        with pytest.raises(ValueError, match="has not been initialized"):
            call()
    with pytest.raises(ValueError, match="has not been initialized"):
        distributed.all_reduce(gt.ones(1))


@pytest.mark.parametrize(("size", "rank"), [("4", "0"), ("4", "3")])
def test_several_processes_are_refused(size: str, rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(RuntimeError, match=f"rank {rank} of 4 processes.*start it once, without torchrun"):
        distributed.init_process_group("nccl")
    assert not distributed.is_initialized()


def test_a_launcher_of_one_process_is_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    distributed.init_process_group()
    assert distributed.get_world_size() == 1
    distributed.destroy_process_group()


@pytest.mark.usefixtures("world")
def test_collectives_copy_what_the_only_rank_has() -> None:
    x = gt.tensor([1.0, 2.0])
    for operation in (distributed.ReduceOp.SUM, distributed.ReduceOp.AVG, distributed.ReduceOp.MAX):
        distributed.all_reduce(x, operation)
    distributed.reduce(x, 0)
    distributed.broadcast(x, 0)
    assert x.tolist() == [1, 2]
    for collective in (
        lambda out: distributed.all_gather([out], x),
        lambda out: distributed.all_gather_into_tensor(out, x),
        lambda out: distributed.reduce_scatter(out, [x]),
        lambda out: distributed.reduce_scatter_tensor(out, x),
        lambda out: distributed.all_to_all([out], [x]),
        lambda out: distributed.all_to_all_single(out, x),
        lambda out: distributed.gather(x, [out], dst=0),
        lambda out: distributed.scatter(out, [x], src=0),
    ):
        out = gt.zeros(2)
        collective(out)
        assert out.tolist() == [1, 2]
    work = distributed.all_reduce(x, async_op=True)
    assert work is not None
    assert work.wait()
    assert work.is_completed()
    with pytest.raises(ValueError, match="gather_list"):
        distributed.gather(x)
    with pytest.raises(RuntimeError, match="no other process"):
        distributed.send(x, 1)


@pytest.mark.usefixtures("world")
def test_objects_are_copied() -> None:
    given: dict[str, list[int]] = {"a": [1]}
    gathered: list[Any] = [None]
    distributed.all_gather_object(gathered, given)
    assert gathered == [given]
    assert gathered[0] is not given
    distributed.broadcast_object_list(gathered)
    received: list[Any] = [None]
    distributed.scatter_object_list(received, [given])
    assert received == [given]


@pytest.mark.usefixtures("world")
def test_a_module_for_distributed_data() -> None:
    model = gt.nn.Linear(2, 3)
    parallel = DistributedDataParallel(model, device_ids=None, find_unused_parameters=True)
    x = gt.randn(4, 2)
    assert gt.equal(parallel(x), model(x))
    with parallel.no_sync():
        parallel(x).sum().backward()
    assert model.weight.grad is not None
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(RuntimeError, match="doesn't have any parameters that require"):
        DistributedDataParallel(gt.nn.ReLU())


def test_a_module_needs_a_group() -> None:
    with pytest.raises(ValueError, match="init_process_group"):
        DistributedDataParallel(gt.nn.Linear(1, 1))


def square(i: int, results: Any) -> None:
    """Puts the square of the process's number, computed by GT."""
    results.put((i, (gt.tensor(float(i)) ** 2).item()))


def fail(i: int) -> None:
    """Raises in the second process."""
    if i == 1:
        raise KeyError("lost")


def leave(_: int) -> None:
    """Ends the process with a status."""
    os._exit(3)


def test_processes_are_spawned() -> None:
    results = multiprocessing.get_context("spawn").SimpleQueue()
    assert mp.spawn(square, (results,), nprocs=2) is None
    assert sorted(results.get() for _ in range(2)) == [(0, 0.0), (1, 1.0)]


def test_a_process_that_fails_is_reported() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"Process 1 terminated[\s\S]*KeyError: 'lost'") as caught:
        mp.spawn(fail, nprocs=2)
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 3") as ended:
        mp.spawn(leave, nprocs=1)
    assert ended.value.exit_code == 3


def test_how_tensors_travel_cannot_be_chosen() -> None:
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="expected one of"):
        mp.set_sharing_strategy("pigeon")
    assert mp.cpu_count() >= 1


def test_an_optimizer_whose_state_other_processes_would_share(tmp_path: Path) -> None:
    from gt.distributed.optim import ZeroRedundancyOptimizer

    def trained(make: Any) -> tuple[gt.Tensor, Any]:
        weight = gt.nn.Parameter(gt.tensor([1.0, -2.0]))
        bias = gt.nn.Parameter(gt.tensor([0.5]))
        optimizer = make([weight])
        optimizer.add_param_group({"params": [bias], "lr": 0.5})
        schedule = gt.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(5):
            optimizer.zero_grad()
            ((weight**2).sum() + bias.sum()).backward()
            optimizer.step()
            schedule.step()
        return gt.cat([weight, bias]).detach(), optimizer

    plain, adam = trained(lambda params: gt.optim.AdamW(params, lr=0.1))
    divided, zero = trained(lambda params: ZeroRedundancyOptimizer(params, optimizer_class=gt.optim.AdamW, lr=0.1))
    assert divided.tolist() == plain.tolist()
    zero.consolidate_state_dict()
    gt.save(zero.state_dict(), tmp_path / "state.pt")
    again = gt.load(tmp_path / "state.pt")
    assert again["param_groups"] == adam.state_dict()["param_groups"]
    zero.load_state_dict(again)
    assert zero.param_groups is zero.optim.param_groups
    assert zero.state is zero.optim.state
    with pytest.raises(NotImplementedError, match="overlap"):
        ZeroRedundancyOptimizer(zero.param_groups, optimizer_class=gt.optim.SGD, lr=0.1, overlap_with_ddp=True)


def test_what_divides_a_batch_keeps_it_whole() -> None:
    from gt.nn import parallel

    layer, x = gt.nn.Linear(3, 2), gt.ones(4, 3)
    copies = parallel.replicate(layer, [0, 1])
    results = parallel.parallel_apply(copies, parallel.scatter(x, [0, 1]))
    assert gt.equal(parallel.gather(results, 0), layer(x))
    with pytest.raises(ValueError, match="2 modules, 1 inputs and 1 dicts"):
        parallel.parallel_apply(copies * 2, parallel.scatter(x, [0, 1]))
