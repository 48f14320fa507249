"""The job that a launcher has started: this process's rank, the number of ranks, and where rank 0 is.

A launcher tells it by environment variables. The first of `_LAUNCHERS` whose variables are set is believed: a launcher
that another one starts comes before it, since both leave their variables.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

Environment = Mapping[str, str]
"""The variables of a process, by name."""


class LaunchError(Exception):
    """A sentence for the user: what was asked, what was found, what to do."""


class Job(NamedTuple):
    """A job, as the launcher of this process describes it."""

    launcher: str
    rank: int
    size: int
    # The name among the user's jobs, which all ranks know; none if the launcher gives none.
    name: str | None
    # The host of rank 0; none if the launcher does not tell.
    address: str | None


def find_job(env: Environment) -> Job | None:
    """Returns the job of this process; none without a launcher.

    Raises:
        LaunchError: If the launcher's variables contradict each other or one is missing.
    """
    for found in _LAUNCHERS:
        job = found(env)
        if job is None:
            continue
        if not 0 <= job.rank < job.size:
            raise LaunchError(
                f"{job.launcher} says that this is rank {job.rank} of {job.size}: ranks count from 0, and there are as "
                "many as the job's size"
            )
        name, address = env.get("GT_LAUNCH_JOB") or job.name, env.get("GT_LAUNCH_ADDRESS") or job.address
        return job._replace(name=name and re.sub(r"[^A-Za-z0-9._-]", "_", name)[:_NAME_CHARACTERS_MAX], address=address)
    return None


# The most characters of a job's name, which is part of a file's.
_NAME_CHARACTERS_MAX = 100


def _number(env: Environment, name: str) -> int:
    text = env.get(name)
    if text is None:
        raise LaunchError(f"{name} is not set beside the launcher's other variables: set it, or unset those")
    if not text.isdecimal():
        raise LaunchError(f"{name} is `{text}`, and has to be a number: 0, 1, 2 …")
    return int(text)


def _named(env: Environment) -> Job | None:
    if "GT_LAUNCH_RANK" not in env:
        return None
    return Job("GT_LAUNCH_RANK", _number(env, "GT_LAUNCH_RANK"), _number(env, "GT_LAUNCH_SIZE"), None, None)


def _torchrun(env: Environment) -> Job | None:
    if "RANK" not in env or "WORLD_SIZE" not in env:
        return None
    # A restart has other ranks, which must not meet those of the attempt before.
    parts = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    name = "-".join(["torchrun", *(env[part] for part in parts if part in env)]) if "MASTER_PORT" in env else None
    return Job("torchrun", _number(env, "RANK"), _number(env, "WORLD_SIZE"), name, env.get("MASTER_ADDR"))


def _open_mpi(env: Environment) -> Job | None:
    if "OMPI_COMM_WORLD_RANK" not in env:
        return None
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    number = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid")
    return Job("Open MPI", rank, size, number and f"mpi-{number}", None)


def _slurm(env: Environment) -> Job | None:
    # A batch script has a rank, too, but no step.
    if "SLURM_PROCID" not in env or "SLURM_STEP_ID" not in env:
        return None
    size = _number(env, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS")
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST")
    first = next(hosts_of(nodes), None) if nodes else None
    return Job("Slurm", _number(env, "SLURM_PROCID"), size, _slurm_name(env), first)


def _slurm_name(env: Environment) -> str | None:
    if "SLURM_JOB_ID" not in env or "SLURM_STEP_ID" not in env:
        return None
    # A job that is requeued keeps its number.
    parts = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return "slurm-" + "-".join(env[part] for part in parts if part in env)


def _pmi(env: Environment) -> Job | None:
    rank = next((name for name in ("PMI_RANK", "PMIX_RANK") if name in env), None)
    if rank is None:
        return None
    size = next((name for name in ("PMI_SIZE", "PMIX_SIZE", "GT_LAUNCH_SIZE") if name in env), None)
    if size is None:
        raise LaunchError(
            f"{rank} is set, and nothing says how many ranks there are: set GT_LAUNCH_SIZE on all of them"
        )
    name = env.get("PMIX_NAMESPACE")
    return Job("PMI", _number(env, rank), _number(env, size), f"pmi-{name}" if name else _slurm_name(env), None)


def _kubernetes(env: Environment) -> Job | None:
    if "JOB_COMPLETION_INDEX" not in env:
        return None
    index = _number(env, "JOB_COMPLETION_INDEX")
    if "GT_LAUNCH_SIZE" not in env:
        raise LaunchError(
            "JOB_COMPLETION_INDEX is set, and Kubernetes does not tell a pod how many there are: set GT_LAUNCH_SIZE to "
            "the job's completions"
        )
    # Pods of an indexed job are called after the job and their index; a headless service gives them a domain.
    host, _, domain = socket.getfqdn().partition(".")
    job, _, number = host.rpartition("-")
    is_pod = job != "" and number == str(index)
    address = f"{job}-0.{domain}" if is_pod and domain else None
    return Job("Kubernetes", index, _number(env, "GT_LAUNCH_SIZE"), f"pods-{job}" if is_pod else None, address)


_LAUNCHERS: tuple[Callable[[Environment], Job | None], ...] = (_named, _torchrun, _open_mpi, _slurm, _pmi, _kubernetes)


def hosts_of(nodes: str) -> Iterator[str]:
    """Yields the hosts of Slurm's list of nodes: `n[01-02,07],box` is n01, n02, n07 and box.

    Raises:
        LaunchError: If it is no such list.
    """
    ranges = r"\d+(-\d+)?"
    host = rf"([^,\[\]]|\[{ranges}(,{ranges})*\])+"
    if not re.fullmatch(rf"{host}(,{host})*", nodes):
        raise LaunchError(f"SLURM_STEP_NODELIST is `{nodes}`, which is no list of nodes such as node[01-04,07]")
    # A comma within brackets separates ranges, another one hosts.
    for found in re.finditer(host, nodes):
        yield from _expanded(found[0])


def _expanded(host: str) -> Iterator[str]:
    before, bracket, rest = host.partition("[")
    if not bracket:
        yield host
        return
    ranges, _, after = rest.partition("]")
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            for tail in _expanded(after) if after else ("",):
                yield f"{before}{number:0{len(first)}d}{tail}"


def unused_machines(env: Environment) -> str | None:
    """Returns a warning if a batch job has several machines of which a program without a launcher uses one."""
    machines = env.get("SLURM_JOB_NUM_NODES", "1")
    if "SLURM_STEP_ID" in env or machines == "1":
        return None
    return f"this Slurm job has {machines} machines, and only this one is used: write srun python -m gt.launch …"


def machine_of_this_process() -> str:
    """Returns a text that processes of one machine, and of one container, have in common."""
    if named := os.environ.get("GT_LAUNCH_MACHINE"):
        return named
    parts = [socket.gethostname()]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
        parts.append(str(os.stat("/proc/self/ns/net").st_ino))
    except OSError:
        # Without /proc the host's name decides.
        pass
    return " ".join(parts)
