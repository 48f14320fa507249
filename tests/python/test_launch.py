"""`python -m gt.launch`: one program on all machines of a job, whichever launcher starts its ranks.

A machine of these tests is a value of GT_LAUNCH_MACHINE: the ranks are processes of this machine, and connect by
loopback.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, environment, eventually, gtd, line_of, wait_for_exit

import gt
import gt.launch
from gt._launch_channel import Channel, ChannelError, publish, published
from gt._launch_job import Job, LaunchError, find_job, hosts_of, unused_machines
from gt._launch_processes import joined

SMALL = ("--workers", "cpu:1", "--threads", "1", "--memory", "64M")
# The beginnings of the launchers' variables, which the tests' own environment may have.
LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "SLURM", "JOB_COMPLETION")
HANDLED = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# A program that computes on all workers, and tells who they are.
PROGRAM = """
import os, sys
import gt
from gt import ShardConfig, SignalConfig
from gt.signal import context
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0)))
with context("rows"):
    x = gt.arange(24.0).reshape(12, 2) * 2
print(gt.debug.placement(x).workers, x.sum().item(), sys.argv[1:], os.environ.get("WORLD_SIZE"))
sys.exit(7)
"""


class Ended(tuple[int, str, str]):
    """The exit status of a rank, and what it has said."""

    @property
    def status(self) -> int:
        return self[0]

    @property
    def out(self) -> str:
        return self[1]

    @property
    def complaint(self) -> str:
        return self[2]


class Ranks:
    """The ranks of a job, which a test starts one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, program: str, *options: str, arguments: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
        """Starts a rank in the environment of a launcher; only rank 0 needs the program."""
        script = self.folder / "train.py"
        if program:
            script.write_text(program)
        clean = {name: value for name, value in environment().items() if not name.startswith(LAUNCHERS)}
        process = subprocess.Popen(
            [sys.executable, "-m", "gt.launch", *SMALL, *options, str(script), *arguments],
            env=clean | {"GT_DAEMON": str(gtd()), "XDG_CONFIG_HOME": str(self.folder)} | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def ended(self) -> list[Ended]:
        """Waits for the end of all ranks."""
        outs = [process.communicate(timeout=60) for process in self.processes]
        return [Ended((process.returncode, *out)) for process, out in zip(self.processes, outs, strict=True)]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for process in ranks.processes:
        process.kill()
        process.communicate()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [found for child in children for found in (child, *descendants(child))]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def named(rank: int, size: int, **more: str) -> dict[str, str]:
    """The environment of a rank on a machine of its own, as somebody sets it by hand."""
    job = {"GT_LAUNCH_RANK": str(rank), "GT_LAUNCH_SIZE": str(size), "GT_LAUNCH_JOB": "test"}
    return {**job, "GT_LAUNCH_MACHINE": f"box{rank}", **more}


STATUS = """
import json, os, subprocess, sys
command = [sys.argv[1], "status", "--json", "--socket", os.environ["GT_CONNECT"].removeprefix("unix:")]
print(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["insecure_network"])
"""


@pytest.mark.parametrize(("options", "used"), [((), "off\n"), (("--insecure-network", "on"), "on\n")])
def test_tensors_travel_unencrypted_only_if_the_job_says_so(ranks: Ranks, options: Sequence[str], used: str) -> None:
    for rank in range(2):
        ranks.start(STATUS, *options, arguments=(str(gtd().with_name("gtctl")),), **named(rank, 2))
    first, _ = ranks.ended()
    assert (first.status, first.out) == (0, used), first.complaint


# The launchers' environments -------------------------------------------------------------------------------------


def test_slurm_runs_one_program_and_its_ranks_end_with_its_status(ranks: Ranks) -> None:
    for rank in range(3):
        step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "3"}
        where = {"SLURM_STEP_NODELIST": "box[0-2]", "SLURMD_NODENAME": f"box{rank}", "GT_LAUNCH_MACHINE": f"box{rank}"}
        ranks.start(PROGRAM, arguments=("--lr", "1"), SLURM_PROCID=str(rank), **step, **where)
    first, *others = ranks.ended()
    assert first.complaint == "gt.launch: Slurm: 3 machines with 3 workers\n"
    assert first.out == "('cpu:0', 'box1/cpu:0', 'box2/cpu:0') 552.0 ['--lr', '1'] None\n"
    assert [(*rank,) for rank in others] == [(7, "", "")] * 2
    assert first.status == 7
    # Nobody can use the file again.
    assert list(ranks.folder.rglob("*.json")) == []


def test_ranks_of_one_machine_are_one_node(ranks: Ranks) -> None:
    """Open MPI starts two ranks on the second machine."""
    for rank in range(3):
        world = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "3", "PMIX_NAMESPACE": "prterun-box-1@1"}
        ranks.start(PROGRAM, GT_LAUNCH_MACHINE=f"box{min(rank, 1)}", **world)
    first, *others = ranks.ended()
    assert first.complaint.startswith(
        "gt.launch: Open MPI: 2 machines with 2 workers; idle: 1 more rank, since one process"
    )
    assert first.out.startswith("('cpu:0', '"), first.out
    assert [rank.status for rank in (first, *others)] == [7] * 3


def test_torchrun_needs_no_shared_folder_and_ends_its_ranks_when_rank_0_is_killed(ranks: Ranks) -> None:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "LOCAL_RANK": "0"}
    secret = {"GT_LAUNCH_SECRET": "ab" * 16, "GT_LAUNCH_PORT": free_port(), "XDG_CONFIG_HOME": "/nonexistent"}
    program = PROGRAM.replace("sys.exit(7)", "print(os.getpid(), flush=True); sys.stdin.read()")
    leader, _ = (
        ranks.start(program, RANK=str(rank), GT_LAUNCH_MACHINE=f"box{rank}", **common, **secret) for rank in range(2)
    )
    assert line_of(leader).endswith("/cpu:0') 552.0 [] 1")
    program_pid = int(line_of(leader))
    leader.send_signal(signal.SIGKILL)
    wait_for_exit(program_pid)
    status, _, complaint = ranks.ended()[1]
    assert status == 1
    assert "gt.launch: rank 0 has ended without a word" in complaint


def test_pods_of_an_indexed_job_find_rank_0_by_name_and_sigterm_leaves_the_program_time_to_save(ranks: Ranks) -> None:
    common = {"GT_LAUNCH_SIZE": "2", "GT_LAUNCH_SECRET": "cd" * 32, "GT_LAUNCH_PORT": free_port()}
    program = """
import os, signal, sys
import gt
from gt import ShardConfig, SignalConfig
gt.register_config("there", SignalConfig(shard=ShardConfig(workers=[1])))
x = gt.signal.tensor(gt.ones(3), name="there")
def save(*_):
    print((x + 1).tolist(), flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
print("ready", gt.debug.placement(x).workers, "GT_LAUNCH_SECRET" in os.environ, flush=True)
signal.pause()
"""
    for rank in (1, 0):
        where = {"GT_LAUNCH_ADDRESS": "localhost", "GT_LAUNCH_MACHINE": f"train-{rank}"}
        ranks.start(program, JOB_COMPLETION_INDEX=str(rank), **where, **common)
    node, leader = ranks.processes
    assert re.fullmatch(r"ready \('\S+/cpu:0',\) False", line_of(leader))
    # Slurm sends such a signal to all processes of a job, the time before its end that somebody has asked for.
    for pid in {node.pid, leader.pid, *descendants(node.pid), *descendants(leader.pid)}:
        os.kill(pid, signal.SIGUSR1)
    node.send_signal(signal.SIGTERM)
    leader.send_signal(signal.SIGTERM)
    ended = ranks.ended()
    assert (ended[1].out, [rank.status for rank in ended]) == ("[2.0, 2.0, 2.0]\n", [3, 3]), ended


def test_without_a_launcher_the_program_runs_on_this_machine(ranks: Ranks) -> None:
    ranks.start("import sys; print(sys.argv[1:]); sys.exit(5)", arguments=["-x"])
    assert ranks.ended() == [(5, "['-x']\n", "")]


MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess_base_jobid": "56"}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "3"}
TORCH = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "9", "TORCHELASTIC_RUN_ID": "none"}


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}, None),
        (STEP | {"SLURM_STEP_NODELIST": "n[07-09]"}, Job("Slurm", 2, 3, "slurm-7-0", "n07")),
        (STEP | TORCH, Job("torchrun", 1, 4, "torchrun-none-a-9", "a")),
        (STEP | MPI, Job("Open MPI", 1, 2, "mpi-56", None)),
        (MPI | {"PMIX_NAMESPACE": "prterun-a/b@1"}, Job("Open MPI", 1, 2, "mpi-prterun-a_b_1", None)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, Job("PMI", 0, 2, None, None)),
        ({"PMIX_RANK": "0", "GT_LAUNCH_SIZE": "2", "PMIX_NAMESPACE": "x"}, Job("PMI", 0, 2, "pmi-x", None)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "GT_LAUNCH_JOB": "j"}, Job("PMI", 0, 2, "j", None)),
    ],
)
def test_a_job_is_what_the_innermost_launcher_says(env: dict[str, str], job: Job | None) -> None:
    assert find_job(env) == job


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "torchrun says that this is rank 2 of 2: ranks count from 0"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is `x`, and has to be a number"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not set beside the launcher's other variables"),
        ({"PMIX_RANK": "0"}, "nothing says how many ranks there are: set GT_LAUNCH_SIZE"),
        ({"JOB_COMPLETION_INDEX": "0"}, "set GT_LAUNCH_SIZE to the job's completions"),
        (STEP | {"SLURM_STEP_NODELIST": "n[1-"}, "SLURM_STEP_NODELIST is `n[1-`, which is no list of nodes"),
    ],
)
def test_variables_that_contradict_each_other_are_named(env: dict[str, str], why: str) -> None:
    with pytest.raises(LaunchError) as told:
        find_job(env)
    assert why in str(told.value)


def test_lists_of_nodes_are_those_of_slurm() -> None:
    assert list(hosts_of("node[01-04,07]")) == ["node01", "node02", "node03", "node04", "node07"]
    assert list(hosts_of("box,r[1-2]n[9-10]x,a-1.b")) == ["box", "r1n9x", "r1n10x", "r2n9x", "r2n10x", "a-1.b"]


def test_a_batch_job_without_srun_is_told_of_its_other_machines() -> None:
    assert unused_machines({"SLURM_JOB_NUM_NODES": "1"}) is None
    told = unused_machines({"SLURM_JOB_NUM_NODES": "4"})
    assert told == "this Slurm job has 4 machines, and only this one is used: write srun python -m gt.launch …"


def test_a_node_has_what_its_machines_ranks_were_given() -> None:
    parts = [{"cores": [0, 1], "visible": "0,1"}, {"cores": [2], "visible": "2,1"}]
    assert joined(parts) == {"cores": [0, 1, 2], "visible": "0,1,2"}
    assert joined([*parts, {"cores": [2], "visible": None}]) == {"cores": [0, 1, 2], "visible": None}


# Failures -------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs a rank in this process: returns a function that takes its environment and its command line."""
    for name in list(os.environ):
        if name.startswith((*LAUNCHERS, "GT_LAUNCH")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    handlers = {number: signal.getsignal(number) for number in HANDLED}

    def run(env: dict[str, str], *arguments: str) -> int:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return gt.launch.main(arguments)

    yield run
    signal.set_wakeup_fd(-1)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.removeprefix("gt.launch: ").strip()


def test_a_rank_0_that_never_comes_is_an_error_with_a_reason(
    here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    patience = ("--patience", "0.01", "train.py")
    assert here(named(1, 2), *patience) == 1
    told = said(capsys)
    assert told.startswith("rank 1 has waited 0.01 s for rank 0, in vain: there is no file ")
    assert "launch/test.json, which rank 0 writes when it starts: see whether it has" in told
    secret = {"GT_LAUNCH_SECRET": "ab" * 16, "GT_LAUNCH_PORT": free_port()}
    assert here(secret | {"GT_LAUNCH_ADDRESS": "127.0.0.1"}, *patience) == 1
    at = f"127.0.0.1:{secret['GT_LAUNCH_PORT']}"
    assert f"{at} does not answer (Connection refused): see whether rank 0" in said(capsys)
    assert here({"GT_LAUNCH_ADDRESS": "no-such-host.invalid"}, *patience) == 1
    told = said(capsys)
    assert "the name of rank 0's machine, no-such-host.invalid, does not resolve" in told
    assert told.endswith("set GT_LAUNCH_ADDRESS")
    with socket.create_server(("127.0.0.1", int(secret["GT_LAUNCH_PORT"]))) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 mail.example.org\r\n")
                # Until the rank has closed its side.
                while connection.recv(100):
                    pass

        other = threading.Thread(target=greet)
        other.start()
        # One attempt, since the patience is over after it.
        assert here({"GT_LAUNCH_ADDRESS": "127.0.0.1"}, "--patience", "1e-9", "train.py") == 1
        other.join()
    told = said(capsys)
    assert f"what listens at {at} is not rank 0 of this job (the other side is no rank of a job" in told
    assert "see whether GT_LAUNCH_SECRET is the same on all ranks" in told


def test_ranks_that_never_come_are_named(here: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert here(named(0, 4), "--patience", "0.05", __file__) == 1
    told = said(capsys)
    assert told.startswith("of 4 ranks, these have not come within 0.05 s: 1, 2, 3; see whether their machines are up")


class Guest:
    """A rank in a thread, which says what a test wants; rank 0 is this process."""

    def __init__(self, folder: Path, *hellos: dict[str, Any], secret: str | None = None, leaves: bool = False) -> None:
        self.folder, self.hellos, self.secret, self.leaves = folder, hellos, secret, leaves
        self.replies: list[dict[str, Any]] = []
        self.mode = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        found = self.folder / "gt" / "launch" / "test.json"
        document = eventually(lambda: published(str(found)), "the file of rank 0")
        self.mode = found.stat().st_mode & 0o777
        channels = []
        for hello in self.hellos:
            channel = Channel(
                socket.create_connection(("127.0.0.1", document["port"])),
                self.secret or document["secret"],
                leads=False,
            )
            channels.append(channel)
            while not channel.is_greeted:
                channel.receive()
            own = {"rank": 1, "size": 2, "version": gt.__version__, "host": "box1", "machine": "box1", "part": {}}
            channel.send(own | hello)
            with contextlib.suppress(ChannelError):
                self.replies += channel.receive()
        if self.replies[-1:] == [{"do": "welcome"}] and not self.leaves:
            with contextlib.suppress(ChannelError):
                self.replies += channels[-1].receive()
        for channel in channels:
            channel.close()

    def joined(self) -> list[dict[str, Any]]:
        """Waits for its end, and returns what rank 0 has told it."""
        self.thread.join()
        return self.replies


@pytest.mark.parametrize(
    ("hellos", "why"),
    [
        ([{"version": "0"}], "rank 1 on box1 has version 0 of GT, rank 0 on "),
        ([{"size": 3}], "rank 1 on box1 says that the job has 3 ranks, rank 0 says 2: start all with the same command"),
    ],
)
def test_a_rank_that_does_not_fit_ends_the_job_with_the_reason(
    hellos: list[dict[str, Any]],
    why: str,
    here: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guest = Guest(tmp_path, *hellos)
    assert here(named(0, 2), __file__) == 1
    told = said(capsys)
    assert told.startswith(why)
    assert guest.joined() == [{"do": "welcome"}, {"do": "fail", "why": told}]
    assert guest.mode == 0o600
    assert list(tmp_path.rglob("*.json")) == []


def test_two_processes_of_one_rank_end_the_job(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = Guest(tmp_path, {"size": 3}, {"size": 3, "host": "box2"})
    assert here(named(0, 3), "--patience", "1", __file__) == 1
    guest.joined()
    told = said(capsys)
    assert told.startswith("two processes say that they are rank 1, on box1 and on box2: give each job a name")


def test_a_program_that_is_missing_ends_all_ranks(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = Guest(tmp_path, {})
    assert here(named(0, 2), "nowhere.py") == 1
    told = said(capsys)
    assert told.startswith("there is no program nowhere.py in ")
    assert guest.joined()[-1] == {"do": "fail", "why": told}


def test_a_rank_that_dies_before_the_program_begins_ends_the_job(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = Guest(tmp_path, {"size": 3}, leaves=True)
    assert here(named(0, 3), "--patience", "1", __file__) == 1
    guest.joined()
    assert said(capsys) == "rank 1 on box1 ended before the program began: its output says why"


def test_a_process_without_the_secret_learns_nothing_and_does_not_disturb(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = Guest(tmp_path, {}, secret="0" * 64)
    assert here(named(0, 2), "--patience", "0.5", __file__) == 1
    assert guest.joined() == []
    assert said(capsys).startswith("of 2 ranks, these have not come within 0.5 s: 1")


def test_a_node_that_cannot_start_its_workers_ends_the_job(ranks: Ranks) -> None:
    ranks.start("pass", **named(0, 2))
    ranks.start("", "--workers", "tpu:1", **named(1, 2))
    first, second = ranks.ended()
    assert (first.status, second.status) == (1, 1)
    assert " cannot join: error: invalid value 'tpu:1' for '--workers" in first.complaint
    assert "this node has ended: error: invalid value 'tpu:1'" in second.complaint


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI gives the job no name, by which its ranks could find each other"),
        (named(0, 2, GT_LAUNCH_SECRET="short"), "GT_LAUNCH_SECRET has 5 characters, and has to have 32"),
        (named(0, 2, GT_LAUNCH_SECRET="a" * 32), "does not tell where rank 0 is: set GT_LAUNCH_ADDRESS on all ranks"),
        (named(0, 2, GT_LAUNCH_PORT="x"), "GT_LAUNCH_PORT is `x`, and has to be a port"),
        (
            {"JOB_COMPLETION_INDEX": "0", "GT_LAUNCH_SIZE": "2", "GT_LAUNCH_JOB": "j"},
            "pods share no folder by themselves",
        ),
    ],
)
def test_what_is_missing_for_a_meeting_is_said(
    env: dict[str, str], why: str, here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"GT_LAUNCH_JOB": ""} | env
    assert here(env, "train.py") == 1
    assert why in said(capsys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "no program is named: write python -m gt.launch train.py"),
        (["-m"], "-m needs the name of a module"),
        (["--nodes", "2", "x.py"], "unknown option --nodes: the program's own go behind its name"),
        (["--patience", "soon", "x.py"], "--patience is soon, and has to be a number of seconds greater than 0"),
        (["--workers"], "--workers needs a value"),
    ],
)
def test_a_command_line_that_is_wrong_is_refused(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        gt.launch.main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


# The file and the messages ---------------------------------------------------------------------------------------


def test_a_file_that_others_can_read_is_not_believed(tmp_path: Path) -> None:
    path = str(tmp_path / "launch" / "job.json")
    assert published(path) is None
    publish(path, {"port": 1})
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert published(path) == {"port": 1}
    os.chmod(path, 0o640)
    with pytest.raises(LaunchError, match="has to be yours"):
        published(path)
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)
    with pytest.raises(LaunchError, match="cannot be read"):
        published(path)


def pair(secrets: tuple[str, str]) -> tuple[Channel, Channel]:
    """Two connected sides, which have greeted each other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    sides = Channel(one, secrets[0], leads=True), Channel(other, secrets[1], leads=False)
    assert [side.receive() for side in sides] == [[], []]
    return sides


def test_messages_cannot_be_forged_repeated_or_read_where_it_matters() -> None:
    leader, follower = pair(("a" * 32, "a" * 32))
    leader.send({"number": 1})
    assert follower.receive() == [{"number": 1}]
    hidden = leader.seal("5f" * 32)
    assert hidden != "5f" * 32
    assert follower.seal(hidden) == "5f" * 32
    # The same bytes again are no message, and neither are one's own.
    leader.send({"number": 2})
    line = follower.socket.recv(1000)
    follower.socket.sendall(line)
    with pytest.raises(ChannelError, match="does not know the job's secret"):
        leader.receive()
    leader.socket.sendall(line + line)
    with pytest.raises(ChannelError, match="does not know the job's secret"):
        follower.receive()
    for secret in ("b" * 32, "a" * 33):
        leader, follower = pair(("a" * 32, secret))
        follower.send({"number": 1})
        with pytest.raises(ChannelError, match="does not know the job's secret"):
            leader.receive()


# The examples ----------------------------------------------------------------------------------------------------

CLUSTER = ROOT / "examples" / "cluster"


def test_the_batch_script_starts_one_rank_on_each_machine(tmp_path: Path) -> None:
    script = CLUSTER / "train.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    assert "#SBATCH --ntasks-per-node=1" in script.read_text().splitlines()
    # In place of Slurm's, a program that shows its arguments.
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", script, *arguments]
        return subprocess.run(command, env=environment(PATH=path), capture_output=True, text=True, check=False)

    told = run("train.py", "--name", "two words").stdout.splitlines()
    assert told[told.index("python") :] == ["python", "-m", "gt.launch", "train.py", "--name", "two words"]
    none = run()
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr.startswith("usage: sbatch ")


def test_the_manifest_gives_the_pods_all_that_the_launch_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    service, job = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    # Kubernetes calls the pods after the job and their index, and their domain is the service.
    name, domain = job["metadata"]["name"], service["metadata"]["name"]
    assert (service["spec"]["clusterIP"], pod["subdomain"]) == ("None", domain)
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert env["GT_LAUNCH_ADDRESS"] == f"{name}-0.{domain}"
    assert job["spec"]["completionMode"] == "Indexed"
    assert int(env["GT_LAUNCH_SIZE"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    (secret,) = [entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "valueFrom" in entry]
    assert (
        f"create secret generic {secret['name']} --from-literal={secret['key']}="
        in (CLUSTER / "kubernetes.yaml").read_text()
    )
    assert container["command"][:3] == ["python", "-m", "gt.launch"]
    monkeypatch.setattr(socket, "getfqdn", lambda: f"{name}-2.{domain}.default.svc.cluster.local")
    given = {"JOB_COMPLETION_INDEX": "2", "GT_LAUNCH_SIZE": env["GT_LAUNCH_SIZE"]}
    # The address follows from the pod's own name, too.
    address = f"{name}-0.{domain}.default.svc.cluster.local"
    assert find_job(given) == Job("Kubernetes", 2, 4, f"pods-{name}", address)
