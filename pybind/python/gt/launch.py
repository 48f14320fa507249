"""Runs one program on all machines of a job: `srun python -m gt.launch train.py`.

A launcher (Slurm, torchrun, Open MPI, an indexed job of Kubernetes) starts this module on each machine. Rank 0 starts a
daemon and runs the program, once; the other machines become its nodes and end with the program's status. Without a
launcher the program runs on this machine alone.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import gt
from gt import _gt
from gt._launch_channel import Channel, ChannelError, default_folder, listen, publish, published, secret_of
from gt._launch_job import Job, LaunchError, find_job, machine_of_this_process, unused_machines
from gt._launch_processes import (
    Signals,
    end,
    ended_at_last,
    joined,
    own_part,
    pass_on,
    start,
    status_of,
    take_part,
    wait_for,
)

__all__ = ["main"]

USAGE = """usage: python -m gt.launch [options] script.py [arguments]
       python -m gt.launch [options] -m module [arguments]
Runs a program, once, on all machines of a job: srun python -m gt.launch train.py

  --workers KIND:N,…  the workers of each machine [default: one on each GPU, or cpu:1]
  --threads N         compute threads of all workers of a machine [default: one a core]
  --memory BYTES      memory of all tensors of a machine, as in 8G [default: 3/4 of the machine's]
  --patience SECONDS  how long ranks wait for each other at the start [default: 300]
  --insecure-network WHERE
                      on, rdma or ucx: tensors travel between machines unencrypted [default: off]"""

# The port of rank 0 where the secret comes by the environment, and nothing can tell the others another one.
PORT = 12346
_PATIENCE_S = 300.0
_HELLO_DEADLINE_S = 10.0
_UNPROVEN_MAX = 256
_TELL_DEADLINE_S = 5.0
_SAID_BYTES_MAX = 4096
_POLL_S = 0.02
_RETRY_S = 0.2
_CONNECT_DEADLINE_S = 5.0
# The shortest timeout of an attempt to reach rank 0.
_ATTEMPT_S = 0.5
_FAREWELL_DEADLINE_S = 15.0
# Launchers that end a job send SIGTERM to all ranks, and SIGKILL 30 s later. Until shortly before that a node stays, so
# that the program can save what is there; a second signal ends it at once.
_LEAVE_AFTER_S = 25.0
_NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,8}")


class _Options(NamedTuple):
    """The command line."""

    # Those that the daemon and the nodes get: --workers, --threads and --memory.
    devices: list[str]
    # That which the daemon alone gets, which tells the nodes: --insecure-network.
    daemon: list[str]
    patience_s: float
    # The program as Python gets it: a path or -m and a module, and its arguments.
    program: list[str]


def _usage(problem: str | None = None) -> NoReturn:
    if problem is None:
        sys.stdout.write(USAGE + "\n")
        sys.exit(0)
    sys.stderr.write(f"{USAGE}\ngt.launch: {problem}\n")
    sys.exit(2)


def _parsed(arguments: Sequence[str]) -> _Options:
    devices: dict[str, str] = {}
    daemon: list[str] = []
    patience_s = _PATIENCE_S
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-h", "--help"):
            _usage()
        if name not in ("--workers", "--threads", "--memory", "--patience", "--insecure-network"):
            _usage(f"unknown option {name}: the program's own go behind its name, Python's before -m gt.launch")
        if not equals:
            if not rest:
                _usage(f"{name} needs a value")
            value = rest.pop(0)
        if name == "--insecure-network":
            daemon = [f"{name}={value}"]
            continue
        if name != "--patience":
            devices[name] = value
            continue
        try:
            patience_s = float(value)
        except ValueError:
            patience_s = 0.0
        if not 0 < patience_s < float("inf"):
            _usage(f"--patience is {value}, and has to be a number of seconds greater than 0")
    if rest[:1] == ["-m"] and len(rest) < 2:
        _usage("-m needs the name of a module")
    if not rest:
        _usage("no program is named: write python -m gt.launch train.py")
    return _Options([f"{name}={value}" for name, value in devices.items()], daemon, patience_s, rest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs this process's part of the job, and returns its exit status."""
    options = _parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        job = find_job(os.environ)
        if job is None or job.size == 1:
            if (warning := unused_machines(os.environ)) is not None:
                _say(warning)
            _check(options.program)
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *options.program])
        return _lead(job, options) if job.rank == 0 else _follow(job, options)
    except (LaunchError, _gt.DisconnectedError) as error:
        _say(str(error))
        return 1
    except _Ended as ended:
        return 128 + ended.number


class _Ended(Exception):  # noqa: N818
    """A signal that ends this process."""

    def __init__(self, number: int) -> None:
        self.number = number


def _say(text: str) -> None:
    sys.stderr.write(f"gt.launch: {text}\n")
    sys.stderr.flush()


def _check(program: Sequence[str]) -> None:
    if program[0] != "-m" and not os.path.exists(program[0]):
        raise LaunchError(
            f"there is no program {program[0]} in {os.getcwd()} on {socket.gethostname()}: write its path"
        )


class _Meeting(NamedTuple):
    """How the ranks find each other: by a secret that all have and an address, or by a file that rank 0 writes."""

    secret: str | None
    address: str | None
    port: int
    path: str


def _meeting(job: Job) -> _Meeting:
    secret = secret_of(os.environ)
    text = os.environ.get("GT_LAUNCH_PORT", "")
    if text and not (text.isdecimal() and 0 < int(text) < 1 << 16):
        raise LaunchError(f"GT_LAUNCH_PORT is `{text}`, and has to be a port: 1 to 65535")
    if secret is not None:
        if job.address is None:
            raise LaunchError(
                f"{job.launcher} does not tell where rank 0 is: set GT_LAUNCH_ADDRESS on all ranks to the name of its "
                "machine, or leave GT_LAUNCH_SECRET out where the machines share a folder"
            )
        return _Meeting(secret, job.address, int(text or PORT), "")
    if job.name is None:
        raise LaunchError(
            f"{job.launcher} gives the job no name, by which its ranks could find each other: set GT_LAUNCH_JOB on all "
            "ranks, to a name that no other job of yours has"
        )
    if job.launcher == "Kubernetes" and "GT_LAUNCH_FOLDER" not in os.environ:
        raise LaunchError(
            "pods share no folder by themselves: give them all GT_LAUNCH_SECRET from a Secret, or a volume that "
            "GT_LAUNCH_FOLDER names"
        )
    return _Meeting(None, None, int(text or 0), os.path.join(default_folder(os.environ), f"{job.name}.json"))


def _plain(address: str) -> str:
    """Returns an IPv4 address that came by a socket for IPv6 as such."""
    return address.removeprefix("::ffff:")


# Rank 0 ------------------------------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """Another rank, which has shown that it knows the secret."""

    rank: int
    host: str
    machine: str
    part: dict[str, Any]
    channel: Channel

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


class _Leader:
    """Rank 0's connections with the other ranks."""

    def __init__(self, job: Job, secret: str, listener: socket.socket, signals: Signals) -> None:
        self.job = job
        self.secret = secret
        self.listener: socket.socket | None = listener
        self.signals = signals
        self.members: dict[int, _Member] = {}
        # Connections that have not shown yet that they know the secret, and until when they may.
        self.unproven: dict[Channel, float] = {}

    def serve(self, deadline: float) -> list[tuple[_Member, dict[str, Any] | None]]:
        """Waits for messages of the ranks until there are any; none stands for a rank that has gone.

        Raises:
            LaunchError: If a rank does not belong to this job.
            _Ended: If a signal has come that ends this rank.
        """
        listeners = [] if self.listener is None else [self.listener]
        channels = {member.channel: member for member in self.members.values()}
        now = time.monotonic()
        until = min([deadline, *self.unproven.values()])
        events: list[tuple[_Member, dict[str, Any] | None]] = []
        for ready in wait_for([self.signals, *listeners, *channels, *self.unproven], until - now):
            if ready is self.signals:
                _end_if_told(self.signals)
            elif ready is self.listener:
                self._accept(ready)
            elif ready in self.unproven:
                self._hear(ready)
            else:
                events += self._events(channels[ready])
        for other in [one for one, last in self.unproven.items() if last < time.monotonic()]:
            self._drop(other)
        return events

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if len(self.unproven) >= _UNPROVEN_MAX:
            connection.close()
            return
        try:
            channel = Channel(connection, self.secret, leads=True)
        except (ChannelError, OSError):
            # It has gone at once.
            connection.close()
            return
        self.unproven[channel] = time.monotonic() + _HELLO_DEADLINE_S

    def _drop(self, other: Channel) -> None:
        del self.unproven[other]
        other.close()

    def _hear(self, other: Channel) -> None:
        try:
            messages = other.receive()
            if not messages:
                return
            member = _Member(channel=other, **{name: messages[0][name] for name in ("rank", "host", "machine", "part")})
            other.send({"do": "welcome"})
        except ChannelError:
            # It is told nothing; a rank with another secret says so itself.
            self._drop(other)
            return
        del self.unproven[other]
        former = self.members.get(member.rank)
        size, version = messages[0]["size"], messages[0]["version"]
        self.members[member.rank if former is None else -1] = member
        if version != gt.__version__:
            raise LaunchError(
                f"{member} has version {version} of GT, rank 0 on {socket.gethostname()} has {gt.__version__}: install "
                "the same on all machines"
            )
        if size != self.job.size:
            raise LaunchError(
                f"{member} says that the job has {size} ranks, rank 0 says {self.job.size}: start all with the same "
                "command of the launcher"
            )
        if former is not None:
            raise LaunchError(
                f"two processes say that they are rank {member.rank}, on {former.host} and on {member.host}: give each "
                "job a name of its own with GT_LAUNCH_JOB"
            )

    def _events(self, member: _Member) -> list[tuple[_Member, dict[str, Any] | None]]:
        try:
            return [(member, message) for message in member.channel.receive()]
        except ChannelError:
            del self.members[member.rank]
            member.channel.close()
            return [(member, None)]

    def before_the_program(self, deadline: float) -> list[_Member]:
        """Serves until something comes; returns the ranks that have joined.

        Raises:
            LaunchError: If a rank has ended or cannot join.
        """
        events = self.serve(deadline)
        for member, message in events:
            if message is None:
                raise LaunchError(f"{member} ended before the program began: its output says why")
            if "failed" in message:
                raise LaunchError(f"{member} cannot join: {message['failed']}")
        return [member for member, message in events if message and "joined" in message]

    def gather(self, deadline: float, patience_s: float) -> None:
        """Waits until all ranks have come."""
        while len(self.members) < self.job.size - 1:
            if time.monotonic() >= deadline:
                # Those who come now would be told nothing new.
                self.close()
                missing = [str(rank) for rank in range(1, self.job.size) if rank not in self.members]
                raise LaunchError(
                    f"of {self.job.size} ranks, these have not come within {patience_s:g} s: {', '.join(missing)}; see "
                    "whether their machines are up and reach this one, or wait longer with --patience"
                )
            self.before_the_program(deadline)
        self.close()

    def close(self) -> None:
        """Takes no more connections."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for other in list(self.unproven):
            self._drop(other)

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message to all ranks that are there."""
        for member in self.members.values():
            self.send_to(member, message)

    def send_to(self, member: _Member, message: dict[str, Any]) -> None:
        """Sends a message to a rank. That it has gone is noticed by `serve`."""
        with suppress(ChannelError):
            member.channel.send(message)

    def fail(self, why: str, patience_s: float) -> None:
        """Tells all ranks, also those that come a little later, why the job fails."""
        deadline = time.monotonic() + min(patience_s, _TELL_DEADLINE_S)
        message = {"do": "fail", "why": why}
        self.send(message)
        told = set(self.members)
        while len(told) < self.job.size - 1 and self.listener is not None and time.monotonic() < deadline:
            # One reason is enough.
            with suppress(LaunchError):
                self.serve(deadline)
            for rank in self.members.keys() - told:
                told.add(rank)
                self.send_to(self.members[rank], message)

    def part(self) -> None:
        """Waits until all other ranks have ended."""
        deadline = time.monotonic() + _FAREWELL_DEADLINE_S
        while self.members and time.monotonic() < deadline:
            self.serve(deadline)


def _ending(signals: Signals) -> int | None:
    """Returns the signal that has come and ends this rank; none if there is none."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return next((number for number in signals.taken() if number in ends), None)


def _end_if_told(signals: Signals) -> None:
    if (number := _ending(signals)) is not None:
        raise _Ended(number)


def _lead(job: Job, options: _Options) -> int:
    meeting = _meeting(job)
    signals = Signals()
    deadline = time.monotonic() + options.patience_s
    with ExitStack() as stack:
        listener = stack.enter_context(listen(meeting.port))
        secret = meeting.secret or secrets.token_hex(32)
        if meeting.secret is None:
            document = {
                "machine": machine_of_this_process(),
                "addresses": _addresses(),
                "port": listener.getsockname()[1],
                "secret": secret,
            }
            publish(meeting.path, document)
            stack.callback(_remove, meeting.path, secret)
        leader = _Leader(job, secret, listener, signals)
        try:
            _check(options.program)
            leader.gather(deadline, options.patience_s)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gt-launch-", dir=_short_folder()))
            return _run(leader, options, folder, deadline)
        except LaunchError as error:
            leader.fail(str(error), options.patience_s)
            raise
        except _Ended as ended:
            leader.fail(f"rank 0 on {socket.gethostname()} was ended by signal {ended.number}", 0.0)
            raise


def _remove(path: str, secret: str) -> None:
    """Removes the file of rank 0, unless another job has replaced it."""
    try:
        with open(path, encoding="utf-8") as file:
            is_own = json.load(file).get("secret") == secret
        if is_own:
            os.remove(path)
    except (OSError, ValueError):
        # It has been removed by somebody else.
        return


def _addresses() -> list[str]:
    """Returns the names and addresses by which other machines may reach this one, the likeliest first."""
    given = [os.environ.get(name) for name in ("GT_LAUNCH_ADDRESS", "SLURMD_NODENAME")]
    found = [name for name in (*given, socket.gethostname()) if name]
    try:
        # The kernel chooses the address of the default route; nothing is sent.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            found.append(probe.getsockname()[0])
    except OSError:
        # A machine without a default route is reached by its name.
        pass
    return list(dict.fromkeys(found))


def _short_folder() -> str | None:
    """Returns where temporary folders are made; a socket's path has at most 107 characters."""
    return None if len(tempfile.gettempdir()) < 60 else "/tmp"


def _run(leader: _Leader, options: _Options, folder: str, deadline: float) -> int:
    """Starts the daemon, lets the nodes join, runs the program, and returns its status."""
    machine = machine_of_this_process()
    by_machine: dict[str, list[_Member]] = {}
    for _, member in sorted(leader.members.items()):
        by_machine.setdefault(member.machine, []).append(member)
    here = by_machine.pop(machine, [])
    part = joined([own_part(), *(member.part for member in here)])
    peers = {_plain(member.channel.socket.getpeername()[0]) for member in leader.members.values()}
    host = "127.0.0.1" if peers <= {"127.0.0.1", "::1"} else "0.0.0.0" if any("." in peer for peer in peers) else "[::]"
    path = os.path.join(folder, "gtd.sock")
    state = os.path.join(folder, "state")
    gtd = Path(_gt.find_gtd())
    command = [str(gtd), "--announce", "--socket", path, "--nodes", f"{host}:0", "--state", state]
    command += [*options.daemon, *options.devices]
    daemon = start(command, apart=True, env=take_part(part), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with ended_at_last(daemon):
        while not _has_line(daemon):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise LaunchError("the daemon of rank 0 does not start: see above what it says")
            leader.before_the_program(time.monotonic() + _POLL_S)
        ctl = _Ctl(str(gtd.with_name("gtctl")), path)
        names: dict[str, _Member] = {}
        for number, members in enumerate(by_machine.values(), start=1):
            node, *idle = members
            wanted = node.host.partition(".")[0]
            name = wanted if _NODE_NAME.fullmatch(wanted) and wanted not in names else f"node{number}"
            names[name] = node
            _invite(leader, ctl, node, name, joined([member.part for member in members]), deadline)
            for member in idle:
                leader.send_to(member, {"do": "wait"})
        for member in here:
            leader.send_to(member, {"do": "wait"})
        workers = _wait_running(leader, ctl, deadline)
        _say_begun(leader.job, 1 + len(by_machine), workers, len(here) + sum(len(m) - 1 for m in by_machine.values()))
        status = _run_program(leader, options.program, path)
    # The nodes end with the daemon.
    leader.part()
    return status


def _has_line(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether a process has printed something, without waiting."""
    return bool(wait_for([process.stdout], 0.0)) and process.poll() is None


class _Ctl(NamedTuple):
    """`gtctl` for a daemon."""

    program: str
    socket: str

    def __call__(self, *arguments: str) -> dict[str, Any]:
        command = [self.program, *arguments, "--json", "--socket", self.socket]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LaunchError(f"gtctl {arguments[0]}: {done.stderr.strip()}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document


def _invite(leader: _Leader, ctl: _Ctl, node: _Member, name: str, part: dict[str, Any], deadline: float) -> None:
    """Lets a rank join as node `name`, and waits until its workers have their numbers: so these follow the ranks'."""
    left_s = max(1, int(deadline - time.monotonic()))
    invitation = ctl("invite", "--expires", f"{left_s}s")
    message = {
        "do": "join",
        "name": name,
        "part": part,
        "port": int(invitation["address"].rpartition(":")[2]),
        "fingerprint": invitation["fingerprint"].removeprefix("sha256:"),
        "sealed": node.channel.seal(invitation["join"].rpartition(":")[2]),
    }
    leader.send_to(node, message)

    def is_registered() -> bool:
        status = ctl("status")
        wanted = [known["workers"] for known in status["nodes"] if known["name"] == name]
        return wanted == [sum(worker.get("node") == name for worker in status["workers"])] != [0]

    joined_yet = False
    while not (joined_yet and is_registered()):
        if time.monotonic() > deadline:
            raise LaunchError(f"{node} has not joined in time: see its output, or wait longer with --patience")
        joined_yet |= node in leader.before_the_program(time.monotonic() + (_POLL_S if joined_yet else 1.0))


def _wait_running(leader: _Leader, ctl: _Ctl, deadline: float) -> int:
    """Waits until all workers run, and returns their number."""
    while True:
        workers = ctl("status")["workers"]
        waiting = [worker["name"] for worker in workers if worker["state"] != "running"]
        if not waiting:
            return len(workers)
        if time.monotonic() > deadline:
            raise LaunchError(
                f"these workers do not start in time: {', '.join(waiting)}; see the output of their machines"
            )
        leader.before_the_program(time.monotonic() + _POLL_S)


def _say_begun(job: Job, machines: int, workers: int, idle: int) -> None:
    def count(number: int, noun: str) -> str:
        return f"{number} {noun}{'' if number == 1 else 's'}"

    more = f"; idle: {count(idle, 'more rank')}, since one process uses all of its machine" if idle else ""
    _say(f"{job.launcher}: {count(machines, 'machine')} with {count(workers, 'worker')}{more}")


def _run_program(leader: _Leader, program: Sequence[str], path: str) -> int:
    env = {name: value for name, value in os.environ.items() if name != "GT_LAUNCH_SECRET"}
    env["GT_CONNECT"] = f"unix:{path}"
    # There is one program: one that was written for torchrun must not wait for others.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    env |= {name: value for name, value in alone.items() if name in env}
    process = start([sys.executable, *program], apart=False, env=env)
    with ended_at_last(process):
        while (status := status_of(process)) is None:
            channels = [member.channel for member in leader.members.values()]
            ready = wait_for([leader.signals, *channels], None)
            if leader.signals in ready:
                pass_on(process, leader.signals.taken())
                ready.remove(leader.signals)
            if ready:
                for member, message in leader.serve(time.monotonic()):
                    why = "has ended" if message is None else f"has failed: {message.get('failed')}"
                    _say(f"{member} {why}; what only its workers held is lost, and the program goes on without them")
    leader.send({"do": "end", "status": status})
    return status


# The other ranks ---------------------------------------------------------------------------------------------------


def _follow(job: Job, options: _Options) -> int:
    meeting = _meeting(job)
    signals = Signals()
    channel, earlier = _reach(job, meeting, options.patience_s, signals)
    with ExitStack() as stack:
        stack.callback(channel.close)
        node: _Node | None = None
        # The signal that ends this rank, and when.
        leaving: tuple[int, float] | None = None
        while True:
            for message in earlier:
                do = message["do"]
                if do == "end":
                    if node is not None:
                        node.wait()
                    return int(message["status"])
                if do == "fail":
                    raise LaunchError(str(message["why"]))
                if do == "join":
                    node = stack.enter_context(_node(channel, message, options.devices, stack))
            earlier = []
            left_s = None if leaving is None else leaving[1] - time.monotonic()
            ready = wait_for([signals, channel, *(node.pipes() if node else ())], left_s)
            number = _ending(signals) if signals in ready else None
            if leaving is not None and (number is not None or time.monotonic() >= leaving[1]):
                raise _Ended(leaving[0])
            if number is not None:
                leaving = number, time.monotonic() + _LEAVE_AFTER_S
            if channel in ready:
                try:
                    earlier = channel.receive()
                except ChannelError as error:
                    raise LaunchError(f"rank 0 has ended without a word: {error}") from error
            elif node is not None and (why := node.news(channel)) is not None:
                try:
                    channel.send({"failed": why})
                finally:
                    raise LaunchError(f"this node has ended: {why}")


class _Node:
    """The process `gtd node` of this rank."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.said = b""
        self.has_joined = False
        assert process.stdout is not None
        assert process.stderr is not None
        self._open = [process.stdout, process.stderr]
        for pipe in self._open:
            os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> _Node:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            end(self.process)

    def wait(self) -> None:
        """Waits until the process has ended, which it does with the daemon. What it says about that is no news."""
        deadline = time.monotonic() + _FAREWELL_DEADLINE_S
        while self._open and time.monotonic() < deadline:
            for pipe in wait_for(self._open, deadline - time.monotonic()):
                if pipe.read() == b"":
                    self._open.remove(pipe)

    def pipes(self) -> list[Any]:
        """The pipes by which it prints."""
        return self._open

    def news(self, channel: Channel) -> str | None:
        """Passes on what the process says, and tells rank 0 that it has joined; returns why it has ended."""
        for pipe in list(self._open):
            text = pipe.read()
            if text == b"":
                self._open.remove(pipe)
            if not text:
                continue
            if pipe is self.process.stderr:
                sys.stderr.buffer.write(text)
                sys.stderr.flush()
                self.said = (self.said + text)[-_SAID_BYTES_MAX:]
            elif not self.has_joined:
                self.has_joined = True
                channel.send({"joined": True})
        if self._open:
            return None
        self.process.wait()
        lines = self.said.decode(errors="replace").strip().splitlines()
        reasons = [line for line in lines if line.startswith(("gtd node: ", "error: "))]
        return (reasons or lines or [f"it ended with status {status_of(self.process)}"])[-1]


def _node(channel: Channel, message: dict[str, Any], devices: Sequence[str], stack: ExitStack) -> _Node:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gt-launch-"))
    host = _plain(channel.socket.getpeername()[0])
    host = f"[{host}]" if ":" in host else host
    line = f"{host}:{message['port']}:{message['fingerprint']}:{channel.seal(message['sealed'])}"
    if not any(option.startswith("--workers=") for option in devices) and (workers := os.environ.get("GT_WORKERS")):
        devices = [*devices, f"--workers={workers}"]
    command = [_gt.find_gtd(), "node", "--name", message["name"], "--state", folder, *devices]
    # The environment of a process can be read by its user alone, its command line by everybody.
    env = take_part(message["part"]) | {"GT_JOIN": line}
    pipe = subprocess.PIPE
    return _Node(
        start([str(word) for word in command], apart=True, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    )


def _reach(job: Job, meeting: _Meeting, patience_s: float, signals: Signals) -> tuple[Channel, list[dict[str, Any]]]:
    """Connects with rank 0; returns the connection, and messages that have come already."""
    hello = {
        "rank": job.rank,
        "size": job.size,
        "version": gt.__version__,
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "machine": machine_of_this_process(),
        "part": own_part(),
    }
    deadline = time.monotonic() + patience_s
    while True:
        why = (
            f"there is no file {meeting.path}, which rank 0 writes when it starts: see whether it has, and whether the "
            "machines share this folder; GT_LAUNCH_FOLDER names another, GT_LAUNCH_SECRET does without"
        )
        for host, port, secret in _places(meeting):
            try:
                return _greeted((host, port), secret, hello, max(_ATTEMPT_S, deadline - time.monotonic()))
            except ChannelError as error:
                why = (
                    f"what listens at {host}:{port} is not rank 0 of this job ({error}): see whether GT_LAUNCH_SECRET "
                    "is the same on all ranks, and choose another GT_LAUNCH_PORT if another program has this one"
                )
            except socket.gaierror as error:
                why = (
                    f"the name of rank 0's machine, {host}, does not resolve ({error.strerror}): set GT_LAUNCH_ADDRESS"
                )
            except OSError as error:
                why = (
                    f"{host}:{port} does not answer ({error.strerror or error}): see whether rank 0 has started, and "
                    "whether a firewall lets connections through"
                )
        if time.monotonic() > deadline:
            raise LaunchError(f"rank {job.rank} has waited {patience_s:g} s for rank 0, in vain: {why}")
        if wait_for([signals], min(_RETRY_S, patience_s)):
            _end_if_told(signals)


def _places(meeting: _Meeting) -> list[tuple[str, int, str]]:
    """Returns where rank 0 may be: hosts, ports and the secret."""
    if meeting.secret is not None and meeting.address is not None:
        return [(meeting.address, meeting.port, meeting.secret)]
    found = published(meeting.path)
    if found is None:
        return []
    is_here = found["machine"] == machine_of_this_process()
    return [(host, found["port"], found["secret"]) for host in (["127.0.0.1"] if is_here else found["addresses"])]


def _greeted(
    at: tuple[str, int], secret: str, hello: dict[str, Any], patience_s: float
) -> tuple[Channel, list[dict[str, Any]]]:
    connection = socket.create_connection(at, min(_CONNECT_DEADLINE_S, patience_s))
    try:
        channel = Channel(connection, secret, leads=False)
        connection.settimeout(min(_HELLO_DEADLINE_S, patience_s))
        messages: list[dict[str, Any]] = []
        is_said = False
        while not messages:
            messages = channel.receive()
            if channel.is_greeted and not is_said:
                is_said = True
                channel.send(hello)
        return channel, messages[1:]
    except BaseException:
        connection.close()
        raise


if __name__ == "__main__":
    sys.exit(main())
