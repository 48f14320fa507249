"""The installed package on a booted machine: the daemon through the commands of an administrator."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator

import pytest
from machine import DEADLINE_S, ROOT, Machine, booted, eventually, packages, why_no_boot

pytestmark = pytest.mark.timeout(900)
CONFIGURATION = "/etc/gt/gtd.yaml"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Boots a machine with the package, two users of the group `gt` and one outside it."""
    if why := why_no_boot():
        pytest.skip(why)
    deb = packages()["gtd"]
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        machine.run("dpkg", "--no-triggers", "--install", deb)
        machine.run("useradd", "--groups", "gt", "ana")
        machine.run("useradd", "--groups", "gt", "ben")
        machine.run("useradd", "mallory")
        yield machine


@pytest.fixture(autouse=True)
def _as_installed(machine: Machine) -> Iterator[None]:
    """Starts each test with a listening socket, no daemon and the installed configuration."""
    before = machine.run("cat", CONFIGURATION)
    machine.run("systemctl", "reset-failed", "gtd.socket", "gtd.service")
    machine.run("systemctl", "start", "gtd.socket")
    machine.run("systemctl", "stop", "gtd.service")
    yield
    machine.write(CONFIGURATION, before)


def test_the_first_client_starts_the_daemon(machine: Machine) -> None:
    assert machine.property("gtd.socket", "ActiveState") == "active"
    assert machine.property("gtd.service", "ActiveState") == "inactive"
    machine.compute("ana")
    assert machine.property("gtd.service", "ActiveState") == "active"
    assert machine.property("gtd.service", "User") == "gt"
    assert "member" not in machine.run("gtctl", "status", user="ana")
    assert machine.run("stat", "--format=%U:%G %a", "/run/gt/gtd.sock").strip() == "gt:gt 660"


def test_the_daemon_can_do_nothing_but_its_work(machine: Machine) -> None:
    machine.compute("ana")
    status = machine.run("cat", f"/proc/{machine.property('gtd.service', 'MainPID')}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"].strip() == "2"


def test_workers_in_processes_of_their_own_work_there_too(machine: Machine) -> None:
    machine.write(CONFIGURATION, "log: info\nworkers: cpu:1,proc-cpu:2\nshard_bytes_min: 0\n")
    program = "a = gt.arange(64.0).reshape(8, 8)\nprint((a @ a + a.sum(0)).sum().item(), gt.randn(999).sort()[0].shape)"
    client = machine.client(program, "ana")
    said, _ = client.communicate(timeout=DEADLINE_S)
    assert (client.returncode, said.strip()) == (0, "545664.0 gt.Size([999])"), said
    workers = json.loads(machine.run("gtctl", "status", "--json"))["workers"]
    assert [(worker["state"], worker["losses"]) for worker in workers] == [("running", 0)] * 3
    pid = next(worker["process"] for worker in workers if worker["process"])
    assert "NCCL_SOCKET_IFNAME=lo" in machine.run("cat", f"/proc/{pid}/environ").split("\0")
    assert not [entry for entry in machine.journal() if int(entry["PRIORITY"]) < 4], machine.journal()


# The calls by which NCCL's ranks find each other: the interfaces' addresses, by netlink, and connections between
# addresses of the interface that NCCL_SOCKET_IFNAME names, by default another than the loopback. With the library of
# NCCL as its argument, the program lets NCCL itself begin, and connects to the address in its id as a rank does.
NCCL_BEGINS = """
import ctypes, os, socket, struct, sys

class Interface(ctypes.Structure):
    pass

Interface._fields_ = [("next", ctypes.POINTER(Interface)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint),
                      ("address", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
first = ctypes.POINTER(Interface)()
assert libc.getifaddrs(ctypes.byref(first)) == 0, os.strerror(ctypes.get_errno())
addresses, one = {}, first
while one:
    if one.contents.address and struct.unpack("H", ctypes.string_at(one.contents.address, 2))[0] == socket.AF_INET:
        addresses[one.contents.name.decode()] = socket.inet_ntoa(ctypes.string_at(one.contents.address + 4, 4))
    one = one.contents.next

def connects(address, port=None):
    with socket.socket() as listener:
        if port is None:
            listener.bind((address, 0))
            listener.listen()
            port = listener.getsockname()[1]
        with socket.socket() as rank:
            rank.settimeout(2)
            try:
                rank.connect((address, port))
                return True
            except OSError:
                return False

print("loopback", connects(addresses["lo"]))
print("others", [connects(address) for name, address in addresses.items() if name != "lo"])
if len(sys.argv) > 1:
    nccl, id = ctypes.CDLL(sys.argv[1]), ctypes.create_string_buffer(128)
    status = nccl.ncclGetUniqueId(id)
    # A magic number, then the address at which rank 0 waits for the others.
    port, address = struct.unpack(">H", id.raw[10:12])[0], socket.inet_ntoa(id.raw[12:16])
    print("nccl", status, address, connects(address, port))
"""


def in_the_service(machine: Machine, program: str, *arguments: str, **environment: str) -> str:
    """Runs a program of Python as the daemon runs: as its user, within all limits of its unit."""
    machine.write("/run/gt-program.py", program)
    left_out = ("ExecReload=", "WatchdogSec=", "Restart", "Requires=", "After=", "Type=", "ExecStart=")
    unit = (ROOT / "systemd" / "gtd.service").read_text().splitlines()
    unit = [line for line in unit if not line.startswith(left_out)]
    unit.insert(unit.index("[Service]") + 1, "Type=oneshot")
    # The service sees no home folder, in which the interpreter of these tests may be.
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or pytest.skip("the system has no Python")
    command = [python, "/run/gt-program.py", *arguments]
    unit.insert(unit.index("[Service]") + 1, f"ExecStart={' '.join(command)}")
    for name, value in environment.items():
        unit.insert(unit.index("[Service]") + 1, f"Environment={name}={value}")
    machine.write("/run/systemd/system/gt-program.service", "\n".join(unit) + "\n")
    machine.run("systemctl", "daemon-reload")
    status, _ = machine.fails("systemctl", "start", "gt-program.service")
    machine.run("journalctl", "--sync")
    said = machine.run("journalctl", "--no-pager", "--output=cat", "--unit=gt-program.service")
    assert status == 0, said
    return said


def test_nccl_can_begin_in_the_service(machine: Machine) -> None:
    """Set GT_NCCL_LIBRARY to try NCCL itself: its package has 250 MB, and needs no device to begin."""
    library = os.environ.get("GT_NCCL_LIBRARY")
    arguments = [library] if library else []
    said = in_the_service(machine, NCCL_BEGINS, *arguments, NCCL_SOCKET_IFNAME="lo")
    assert "loopback True" in said
    # Workers of the service may connect by no other interface, which NCCL would prefer.
    found = re.search(r"others (.*)", said)
    assert found is not None
    assert "True" not in found.group(1)
    if library:
        assert "nccl 0 127.0.0.1 True" in said


def test_a_user_outside_the_group_gets_an_error(machine: Machine) -> None:
    status, said = machine.fails("gtctl", "status", user="mallory")
    assert status == 4
    assert "usermod -aG gt" in said
    status, said = machine.fails("gtctl", "--json", "status", user="mallory")
    assert json.loads(said)["error"]["code"] == "not_permitted"
    status, said = machine.fails("gtctl", "doctor", user="mallory")
    assert status == 1
    assert "you are not in gt" in said


def test_sessions_of_other_users_are_for_administrators(machine: Machine) -> None:
    client = machine.client("print(gt.ones(1).item(), flush=True)\nsys.stdin.readline()", "ana")
    assert client.stdout is not None
    assert client.stdout.readline().strip() == "1.0"
    (session,) = json.loads(machine.run("gtctl", "sessions", "--json", user="ben"))
    for command in (
        ["kill", session["id"]],
        ["limits", "set", "--user", "ana", "--weight", "9"],
        ["drain"],
        ["reload"],
    ):
        status, said = machine.fails("gtctl", *command, user="ben")
        assert status == 4, said
        assert "administrators" in said
    assert machine.fails("gtctl", "limits", "set", "--user", "ben", "--weight", "9", user="ben")[0] == 4
    machine.run("gtctl", "limits", "set", "--user", "ben", "--sessions", "2", user="ben")
    machine.run("gtctl", "kill", session["id"], user="ana")
    client.communicate("go on\n", timeout=DEADLINE_S)
    machine.run("usermod", "--append", "--groups", "gt-admin", "ben")
    machine.run("gtctl", "limits", "set", "--user", "ana", "--weight", "2", user="ben")


def test_a_session_lives_through_a_reload_and_sees_the_new_limits(machine: Machine) -> None:
    program = "a = gt.ones(4)\nprint(a.sum().item(), flush=True)\nsys.stdin.readline()\nprint((a + 1).sum().item())"
    client = machine.client(program, "ana")
    assert client.stdout is not None
    assert client.stdout.readline().strip() == "4.0"
    machine.write(CONFIGURATION, "log: info\nthreads: 1\nusers:\n  ana:\n    memory: 1G\n    weight: 2\n")
    assert "is good" in machine.run("gtctl", "config", "check")
    machine.run("systemctl", "reload", "gtd.service")
    users = json.loads(machine.run("gtctl", "limits", "--json"))["users"]
    assert [(user["allowed"]["memory_bytes"], user["allowed"]["weight"]) for user in users] == [(1 << 30, 2.0)]
    assert machine.said("gtd.yaml changes threads, which a running daemon cannot")
    sessions = json.loads(machine.run("gtctl", "sessions", "--json", user="ana"))
    assert [session["memory_bytes_limit"] for session in sessions] == [0]
    assert client.communicate("go on\n", timeout=DEADLINE_S)[0].strip() == "8.0"


def test_a_wrong_configuration_is_not_taken_up(machine: Machine) -> None:
    machine.compute("ana")
    before = machine.property("gtd.service", "MainPID")
    machine.write(CONFIGURATION, "log: info\nlimits:\n  memroy: 8G\n")
    wrong = "/etc/gt/gtd.yaml:3: limits.memroy: there is no such key; did you mean `memory`?"
    status, said = machine.fails("gtctl", "config", "check")
    assert status == 7
    assert said.startswith(f"gtctl: {wrong}\n")
    assert machine.fails("systemctl", "reload", "gtd.service")[0] != 0
    assert machine.said(wrong)
    machine.run("systemctl", "kill", "--signal=HUP", "--kill-whom=main", "gtd.service")
    eventually(
        "systemd shows that the old one is in force",
        lambda: "old configuration" in machine.property("gtd.service", "StatusText"),
    )
    assert machine.property("gtd.service", "MainPID") == before
    machine.compute("ana")
    # A new start with it fails once, and the journal has the reason.
    machine.fails("systemctl", "restart", "gtd.service")
    assert machine.property("gtd.service", "ExecMainStatus") == "78"
    assert machine.property("gtd.service", "ActiveState") == "failed"


def test_a_daemon_that_hangs_is_started_again(machine: Machine) -> None:
    machine.write("/run/systemd/system/gtd.service.d/soon.conf", "[Service]\nWatchdogSec=5\n")
    machine.run("systemctl", "daemon-reload")
    machine.compute("ana")
    before = machine.property("gtd.service", "MainPID")
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", "gtd.service")
    eventually("another daemon", lambda: machine.property("gtd.service", "MainPID") not in {before, "0"})
    machine.compute("ana")
    entries = machine.run("journalctl", "--no-pager", "--unit=gtd.service")
    assert "Watchdog timeout" in entries
    machine.run("rm", "/run/systemd/system/gtd.service.d/soon.conf")
    machine.run("systemctl", "daemon-reload")


def test_a_daemon_that_was_stopped_comes_back_when_it_is_needed(machine: Machine) -> None:
    machine.compute("ana")
    first = machine.property("gtd.service", "MainPID")
    machine.run("systemctl", "stop", "gtd.service")
    assert machine.property("gtd.service", "Result") == "success"
    assert machine.property("gtd.socket", "ActiveState") == "active"
    machine.compute("ana")
    assert machine.property("gtd.service", "MainPID") not in {first, "0"}


def test_the_journal_names_clients_that_connect_and_disconnect(machine: Machine) -> None:
    machine.compute("ana")
    uid = machine.run("id", "--user", "ana").strip()
    entries = [entry for entry in machine.journal() if f"user {uid}" in str(entry["MESSAGE"])]
    for what in ("began", "ended"):
        assert {entry["PRIORITY"] for entry in entries if what in entry["MESSAGE"]} == {"6"}, machine.journal()


def test_the_journal_names_sessions_that_reach_a_limit(machine: Machine) -> None:
    machine.write(CONFIGURATION, "log: info\nlimits:\n  sessions: 1\n")
    client = machine.client("print(gt.ones(1).item(), flush=True)\nsys.stdin.readline()", "ana")
    assert client.stdout is not None
    assert client.stdout.readline().strip() == "1.0"
    second = machine.client("gt.ones(1)", "ana")
    said, _ = second.communicate(timeout=DEADLINE_S)
    assert second.returncode != 0
    assert "1 sessions of this user are open" in said
    client.communicate("go on\n", timeout=DEADLINE_S)
    assert machine.said("was refused: 1 sessions of this user are open")


def test_the_doctor_finds_nothing_wrong(machine: Machine) -> None:
    machine.compute("ana")
    machine.run("gtctl", "doctor", user="ana")


def test_the_package_goes_without_a_trace_but_the_configuration(machine: Machine) -> None:
    machine.compute("ana")
    machine.run("dpkg", "--no-triggers", "--remove", "gtd")
    assert machine.property("gtd.service", "LoadState") == "not-found"
    assert machine.fails("pidof", "gtd")[0] == 1
    machine.run("test", "-e", CONFIGURATION)
    machine.run("dpkg", "--no-triggers", "--purge", "gtd")
    for words in (["test", "-e", "/run/gt"], ["getent", "passwd", "gt"], ["getent", "group", "gt"]):
        assert machine.fails(*words)[0] != 0, words
    assert machine.fails("getent", "group", "gt-admin")[0] != 0
    assert machine.fails("test", "-e", CONFIGURATION)[0] == 1
