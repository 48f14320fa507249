"""`torch.distributed` for a group of one process: GT divides a program's work among devices, not among processes.

All collectives of PyTorch's `torch.distributed` work and copy what the only rank has. A launcher that starts several
processes, as `torchrun --nproc-per-node 4`, gets an error that says to start one.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, NoReturn

from gt import _absent
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)

default_pg_timeout = timedelta(minutes=30)


class RedOpType(Enum):
    """How a reduction combines the ranks' elements; with one rank, each leaves them as they are."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class ReduceOp:
    """The reductions of collectives, as `ReduceOp.SUM`."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType


class Backend(str):
    """The name of a backend: `gloo`, `nccl`, `mpi`, `ucc` or another; GT accepts all and uses none of them."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    __slots__ = ()

    def __new__(cls, name: str) -> Backend:
        """The name in lower case."""
        if not isinstance(name, str):
            raise ValueError(f"Backend: expected the name of a backend, but got {name!r}")
        return super().__new__(cls, name.lower())


class Work:
    """A collective that has been issued; operations run in program order, so there is nothing to wait for."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002
        """True: the collective's result can be used."""
        return True

    def is_completed(self) -> bool:
        """True: the collective has been issued."""
        return True

    def is_success(self) -> bool:
        """True: errors are raised where a value is fetched."""
        return True

    def result(self) -> Any:
        """The tensors that the collective wrote."""
        return self._result


class ProcessGroup:
    """A group of processes: always this one alone."""

    def __init__(self, backend: str = "gloo") -> None:
        self._backend = Backend(backend)

    def rank(self) -> int:
        """The only rank, 0."""
        return 0

    def size(self) -> int:
        """The number of processes, 1."""
        return 1

    def name(self) -> str:
        """The name of the backend that the program asked for."""
        return str(self._backend)


_world: ProcessGroup | None = None


class _GroupMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:  # noqa: N802 (PyTorch's name)
        """The group of all processes, or None before `init_process_group`."""
        return _world


class group(metaclass=_GroupMeta):  # noqa: N801 (PyTorch's name)
    """`group.WORLD` is the group of all processes."""


class GroupMember:
    """`NON_GROUP_MEMBER` stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    """True: there is a group of one process."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _world is not None


def is_gloo_available() -> bool:
    """False: no collectives leave the daemon."""
    return False


is_mpi_available = is_nccl_available = is_ucc_available = is_xccl_available = is_gloo_available


def is_torchelastic_launched() -> bool:
    """Whether `torchrun` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _count(given: int, variable: str, otherwise: int) -> int:
    return given if given >= 0 else int(os.environ.get(variable, otherwise))


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,  # noqa: ARG001 (there is nobody to meet)
    timeout: timedelta | None = None,  # noqa: ARG001
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,  # noqa: ARG001
    group_name: str = "",  # noqa: ARG001
    pg_options: Any = None,  # noqa: ARG001
    device_id: Any = None,  # noqa: ARG001
) -> None:
    """Makes the group, which this process is alone in.

    Args:
        backend: Any name; it changes nothing.
        init_method: Ignored, as `timeout`, `store`, `group_name`, `pg_options` and `device_id`.
        timeout: Ignored.
        world_size: 1; if not given, that of the variable WORLD_SIZE.
        rank: 0; if not given, that of the variable RANK.
        store: Ignored.
        group_name: Ignored.
        pg_options: Ignored.
        device_id: Ignored.

    Raises:
        RuntimeError: The group would have more processes, or exists already.

    Example:
        >>> gt.distributed.init_process_group("gloo")
        >>> gt.distributed.get_world_size()
        1
        >>> gt.distributed.destroy_process_group()
    """
    global _world
    if _world is not None:
        raise RuntimeError("init_process_group: the group exists already: call destroy_process_group first")
    size, own = _count(world_size, "WORLD_SIZE", 1), _count(rank, "RANK", 0)
    if size != 1 or own != 0:
        raise RuntimeError(
            f"init_process_group: this would be rank {own} of {size} processes, but a program on GT is one process "
            "that uses all devices: start it once, without torchrun, or with --nproc-per-node 1"
        )
    _world = ProcessGroup(backend or "gloo")


def destroy_process_group(group: Any = None) -> None:
    """Ends the group, or does nothing for a group that `new_group` made."""
    global _world
    if group is None or group is _world:
        _world = None


def _check(name: str) -> ProcessGroup:
    if _world is None:
        raise ValueError(f"{name}: Default process group has not been initialized, please make sure to call "
                         "init_process_group.")  # fmt: skip
    return _world


def new_group(ranks: Sequence[int] | None = None, *args: Any, **kwargs: Any) -> ProcessGroup:  # noqa: ARG001
    """A group of this process.

    Raises:
        ValueError: `ranks` names another rank than 0.
    """
    world = _check("new_group")
    if any(ranks or ()):
        raise ValueError(f"new_group: the only rank is 0, but got {list(ranks or ())}")
    return ProcessGroup(world.name())


def get_rank(group: Any = None) -> int:  # noqa: ARG001
    """0, the only rank."""
    _check("get_rank")
    return 0


def get_world_size(group: Any = None) -> int:  # noqa: ARG001
    """1, the number of processes."""
    _check("get_world_size")
    return 1


def get_backend(group: Any = None) -> Backend:
    """The name that `init_process_group` was given."""
    return Backend((group or _check("get_backend")).name())


def get_process_group_ranks(group: Any = None) -> list[int]:  # noqa: ARG001
    """`[0]`, the ranks of a group."""
    return [0]


def get_global_rank(group: Any, group_rank: int) -> int:  # noqa: ARG001
    """The rank in the group of all processes: 0."""
    return group_rank


def get_group_rank(group: Any, global_rank: int) -> int:  # noqa: ARG001
    """The rank in a group: 0."""
    return global_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:  # noqa: ARG001
    """0, the only rank of this machine."""
    return 0


def barrier(*args: Any, **kwargs: Any) -> None:  # noqa: ARG001
    """Returns at once: there is no other process to wait for."""
    _check("barrier")


monitored_barrier = barrier


def _done(name: str, result: Any, async_op: bool) -> Work | None:
    _check(name)
    return Work(result) if async_op else None


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:  # noqa: ARG001
    """Leaves the tensor as it is: the reduction over one rank."""
    return _done("all_reduce", tensor, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,  # noqa: ARG001
    op: Any = ReduceOp.SUM,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
    group_dst: int | None = None,  # noqa: ARG001
) -> Work | None:
    """Leaves the tensor as it is: the reduction over one rank."""
    return _done("reduce", tensor, async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
    group_src: int | None = None,  # noqa: ARG001
) -> Work | None:
    """Leaves the tensor as it is: it is the only rank's."""
    return _done("broadcast", tensor, async_op)


def all_gather(
    tensor_list: list[Tensor],
    tensor: Tensor,
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the tensor into the only one of the list."""
    work = _done("all_gather", tensor_list, async_op)
    tensor_list[0].copy_(tensor)
    return work


def _into(name: str, output: Tensor, input: Tensor, async_op: bool) -> Work | None:
    work = _done(name, output, async_op)
    output.copy_(input.reshape(output.shape))
    return work


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the input into the output, which has as many elements."""
    return _into("all_gather_into_tensor", output_tensor, input_tensor, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the input into the output, which has as many elements."""
    return _into("reduce_scatter_tensor", output, input, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,  # noqa: ARG001
    input_split_sizes: Any = None,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the input into the output."""
    return _into("all_to_all_single", output, input, async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the only tensor of the list into the output."""
    return _into("reduce_scatter", output, input_list[0], async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
) -> Work | None:
    """Copies the only tensor of one list into that of the other."""
    return _into("all_to_all", output_tensor_list[0], input_tensor_list[0], async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
    group_dst: int | None = None,  # noqa: ARG001
) -> Work | None:
    """Copies the tensor into the only one of the list."""
    if gather_list is None:
        raise ValueError("gather: the destination rank needs gather_list")
    return _into("gather", gather_list[0], tensor, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    async_op: bool = False,
    group_src: int | None = None,  # noqa: ARG001
) -> Work | None:
    """Copies the only tensor of the list into the tensor."""
    if scatter_list is None:
        raise ValueError("scatter: the source rank needs scatter_list")
    return _into("scatter", tensor, scatter_list[0], async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:  # noqa: ARG001
    """Puts a copy of the object into the list."""
    _check("all_gather_object")
    object_list[0] = copy.deepcopy(obj)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,  # noqa: ARG001
    group: Any = None,  # noqa: ARG001
    group_dst: int | None = None,  # noqa: ARG001
) -> None:
    """Puts a copy of the object into the list."""
    _check("gather_object")
    if object_gather_list is not None:
        object_gather_list[0] = copy.deepcopy(obj)


def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
    """Leaves the list as it is: it is the only rank's."""
    _check("broadcast_object_list")


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    *args: Any,  # noqa: ARG001
    **kwargs: Any,  # noqa: ARG001
) -> None:
    """Copies the only object of one list into the other."""
    _check("scatter_object_list")
    scatter_object_output_list[0] = (scatter_object_input_list or [None])[0]


def _nobody(name: str) -> NoReturn:
    raise RuntimeError(f"{name}: there is no other process: a program on GT is one process that uses all devices")


def send(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG001
    """Raises RuntimeError: there is no other process."""
    _nobody("send")


def recv(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG001
    """Raises RuntimeError: there is no other process."""
    _nobody("recv")


isend, irecv = send, recv
