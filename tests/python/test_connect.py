"""`gt.connect`, `gt.disconnect` and `gt.session`: the daemon that a program uses, and the name of its session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import daemon, environment, eventually, gtd, line_of, output_of, python, started

# The beginning of the programs below: the daemon's process and address, and the text of an exception.
PROLOGUE = """
import gt, os, signal, sys
def daemon(): return gt._gt.session_info()["daemon_pid"]
def address(): return gt._gt.session_info()["address"]
def told(f, *args, **kwargs):
    try: f(*args, **kwargs)
    except Exception as error: return f"{type(error).__name__}: {error}"
    return "nothing"
"""


def lines_of(program: str, **env: str | None) -> list[str]:
    return output_of(PROLOGUE + program, **env).splitlines()


def status(socket: Path) -> dict:
    gtctl = gtd().with_name("gtctl")
    done = subprocess.run(
        [gtctl, "status", "--json", "--socket", str(socket)], capture_output=True, text=True, timeout=30, check=True
    )
    return json.loads(done.stdout)


def names(socket: Path) -> list[str | None]:
    return [session["name"] for session in status(socket)["sessions"]]


# Which daemon -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["", "toaster:1"])
def test_an_environment_that_no_daemon_understands_is_said(workers: str) -> None:
    # The daemon says it on its standard error, too.
    told = python(f"{PROLOGUE}print(told(gt.ones, 1))", GT_CONNECT="private", GT_WORKERS=workers).stdout
    assert f"invalid value '{workers}' for '--workers" in told
    assert "GT_WORKERS and GT_DEVICES set the workers, and may be unset" in told


def test_a_log_that_cannot_be_written_is_said() -> None:
    done = python(
        f"{PROLOGUE}print(told(gt.ones, 1))",
        GT_CONNECT="private",
        GT_DAEMON=str(gtd()),
        GT_INSTRUCTION_LOG="/nowhere/ops.log",
    )
    assert "cannot write the instruction log /nowhere/ops.log: No such file" in done.stdout


# The system call that makes shared memory, by machine.
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}


@pytest.mark.skipif(os.uname().machine not in MEMFD_CREATE, reason="the number of memfd_create is not known here")
def test_a_system_without_shared_memory_is_said() -> None:
    """Checks a daemon that may not call memfd_create, by a filter of system calls."""
    filtered = f"""
import ctypes, struct
libc = ctypes.CDLL(None)
# Loads the number of the call; if it is memfd_create, the call fails with EPERM; others are allowed.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, {MEMFD_CREATE[os.uname().machine]}), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0): raise SystemExit("no filters")
"""
    done = python(f"{PROLOGUE}{filtered}\nprint(told(gt.ones, 1))", GT_CONNECT="private", GT_DAEMON=str(gtd()))
    if "no filters" in done.stderr:
        pytest.skip("this system filters no system calls")
    assert "cannot create a segment (memfd_create): Operation not permitted" in done.stdout
    assert "exit status" not in done.stdout


@pytest.mark.parametrize("form", ["{}", "unix:{}", "unix://{}"])
def test_a_daemon_is_named_by_its_socket(tmp_path: Path, form: str) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        program = f"gt.connect({form.format(socket)!r}); print(gt.ones(2).tolist(), daemon(), address())"
        assert lines_of(program) == [f"[1.0, 1.0] {server.pid} unix:{socket}"]


@pytest.mark.parametrize("variable", ["GT_CONNECT", "GT_SOCKET"])
def test_the_environment_names_it_where_the_program_does_not(tmp_path: Path, variable: str) -> None:
    one, other = tmp_path / "gtd-1.sock", tmp_path / "gtd-2.sock"
    with daemon(one) as first, daemon(other) as second:
        assert lines_of("gt.connect(); print(daemon())", **{variable: str(one)}) == [str(first.pid)]
        program = f"gt.connect({str(other)!r}); print(daemon())"
        assert lines_of(program, **{variable: str(one)}) == [str(second.pid)]
        assert lines_of("print(daemon())", GT_CONNECT=f"unix:{other}", GT_SOCKET=str(one)) == [str(second.pid)]


def test_a_private_daemon_can_be_asked_for(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        program = "gt.connect('private'); print(address(), daemon() != " + str(server.pid) + ")"
        assert lines_of(program, GT_SOCKET=str(socket)) == ["private True"]
        assert lines_of("print(address())", GT_SOCKET=str(socket), GT_CONNECT="private") == ["private"]


def test_connecting_again_to_the_same_daemon_changes_nothing(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket):
        program = f"""
gt.connect({str(socket)!r})
x, number = gt.ones(2), gt._gt.session_info()["session_id"]
gt.connect("unix:{socket}")
gt.connect()
print((x + 1).tolist(), gt._gt.session_info()["session_id"] == number)
"""
        assert lines_of(program) == ["[2.0, 2.0] True"]


def test_another_daemon_is_connected_to_only_after_disconnecting(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        program = f"""
x = gt.ones(2)
print(told(gt.connect, {str(socket)!r}))
print(x.tolist(), address())
gt.disconnect()
gt.connect({str(socket)!r})
print(daemon(), told(x.tolist))
print(told(gt.connect, "private"))
gt.disconnect()
print(gt.ones(1).tolist(), address())
"""
        late, kept, moved, back, private = lines_of(program)
        assert late == (
            f"RuntimeError: connect(unix:{socket}) comes too late: this process has a session with a private daemon; "
            "connect before the first operation, or after gt.disconnect(), which ends that session and its tensors"
        )
        assert kept == "[1.0, 1.0] private"
        assert moved.startswith(f"{server.pid} DisconnectedError: the session is closed: its tensors are gone")
        assert f"this process has a session with unix:{socket};" in back
        assert private == "[1.0] private"


def test_a_forked_child_connects_to_the_same_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        program = f"""
gt.connect({str(socket)!r})
gt.ones(1)
child = os.fork()
if child == 0:
    os._exit(0 if daemon() == {server.pid} and gt.ones(2).sum().item() == 2 else 1)
print(os.waitpid(child, 0)[1])
"""
        assert lines_of(program) == ["0"]


# Addresses that lead nowhere --------------------------------------------------------------------------------------


def test_an_invalid_address_is_named() -> None:
    program = "print(told(gt.connect, 'gpu-box')); print(told(gt.connect, '')); print(told(gt.connect, 3))"
    box, empty, number = lines_of(program)
    assert box == (
        "ValueError: `gpu-box` is no address of a daemon: write unix:/run/gt/gtd.sock, localhost:12345, "
        "tls://box:12345#sha256:… for another machine, or private for one of your own"
    )
    assert empty.startswith("ValueError: `` is no address of a daemon")
    assert number.startswith("TypeError")
    (told,) = lines_of("print(told(gt.ones, 1))", GT_CONNECT="gpu-box")
    assert told.startswith("DisconnectedError: GT_CONNECT: `gpu-box` is no address of a daemon")


def test_a_failed_connect_leaves_the_program_as_it_was(tmp_path: Path) -> None:
    program = f"print(told(gt.connect, '{tmp_path}/none.sock')); print(gt.ones(1).tolist(), address())"
    told, went_on = lines_of(program)
    assert told == (
        f"DisconnectedError: cannot connect to the daemon at {tmp_path}/none.sock: there is no such socket: start gtd "
        "there, or correct the path"
    )
    assert went_on == "[1.0] private"


def test_the_socket_of_a_daemon_that_was_killed(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        server.kill()
        server.wait()
        (told,) = lines_of(f"print(told(gt.connect, {str(socket)!r}))")
    assert told.endswith("nobody listens there: the daemon that did has ended; start it again")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that all users can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


# Root has every permission, so the process becomes the user `nobody`.
DROP = "os.getuid() == 0 and (os.setgroups([]), os.setgid(65534), os.setuid(65534))\n"


def test_without_permission_the_group_is_named() -> None:
    with open_folder() as folder, daemon(folder / "gtd.sock"):
        socket = folder / "gtd.sock"
        program = DROP + f"print(told(gt.connect, {str(socket)!r}))"
        for mode, why in [
            (0o660, "it is for members of the group gt; sudo usermod -aG gt $USER makes you one, from your next login"),
            (0o600, "it is its owner's alone"),
        ]:
            socket.chmod(mode)
            (told,) = lines_of(program)
            assert told == f"DisconnectedError: cannot connect to the daemon at {socket}: permission denied: {why}"


# A daemon that ends -----------------------------------------------------------------------------------------------


def test_after_the_daemon_has_died_the_next_tensor_is_with_the_one_at_the_same_address(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = f"""
gt.connect({str(socket)!r})
x = gt.ones(2)
print(daemon(), flush=True)
sys.stdin.readline()
print(told(x.tolist))
print(told(gt.ones, 2), flush=True)
sys.stdin.readline()
print(gt.ones(2).tolist(), daemon())
print(told(x.tolist))
"""
    with started(PROLOGUE + program) as client:
        with daemon(socket) as first:
            assert line_of(client) == str(first.pid)
            first.kill()
            first.wait()
            client.stdin.write("\n")
            client.stdin.flush()
            lost, none = line_of(client), line_of(client)
        assert lost.startswith(f"DisconnectedError: the GT daemon (pid {first.pid}) closed the session or is gone")
        assert none.startswith(f"DisconnectedError: cannot connect to the daemon at {socket}: ")
        with daemon(socket) as second:
            client.stdin.write("\n")
            client.stdin.flush()
            assert line_of(client) == f"[1.0, 1.0] {second.pid}"
            assert line_of(client).startswith("DisconnectedError")


def test_disconnecting_from_a_dead_daemon_is_quiet(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket):
        program = f"""
gt.connect({str(socket)!r})
x = gt.ones(2)
os.kill(daemon(), signal.SIGKILL)
gt.disconnect()
gt.disconnect()
print(gt.ones(1).tolist(), address())
"""
        assert lines_of(program) == ["[1.0] private"]


# Work that was issued ---------------------------------------------------------------------------------------------


def test_issued_work_is_done_before_a_session_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = """
x = gt.rand(400, 400)
for _ in range(200): x = x @ x + 1
gt.disconnect()
"""
    lines_of(program, GT_INSTRUCTION_LOG=str(log))
    done = [line for line in log.read_text().splitlines() if "WORKER_RECV" in line and "op=matmul" in line]
    assert len(done) == 200


def test_ctrl_c_ends_a_session_that_has_much_to_do() -> None:
    program = """
x = gt.rand(4000, 4000)
for _ in range(6): x = x @ x
import threading
timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.start()
try: gt.disconnect()
except KeyboardInterrupt: print("interrupted")
print(gt._gt.is_connected())
"""
    assert lines_of(program) == ["interrupted", "False"]


# Names ------------------------------------------------------------------------------------------------------------


def test_a_session_is_named_before_it_begins_or_after(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = """
gt.ones(1).tolist()
print(flush=True); sys.stdin.readline()
gt.session("ana-finetune"); gt.ones(1).tolist()
print(flush=True); sys.stdin.readline()
gt.disconnect(); gt.ones(1).tolist()
print(flush=True); sys.stdin.readline()
with gt.session(name="ana-eval") as session:
    print(session, flush=True); sys.stdin.readline()
print(flush=True); sys.stdin.readline()
"""
    with daemon(socket), started(PROLOGUE + program, GT_SOCKET=str(socket)) as client:
        for wanted in [None, "ana-finetune", "ana-finetune", "ana-eval", "ana-finetune"]:
            said = client.stdout.readline()
            assert said == ("gt.session('ana-eval')\n" if wanted == "ana-eval" else "\n")
            eventually(lambda wanted=wanted: names(socket) == [wanted], f"a session called {wanted}")
            client.stdin.write("\n")
            client.stdin.flush()


def test_a_name_that_cannot_be_is_refused() -> None:
    program = """
print(told(gt.session, "x" * 65))
print(told(gt.session, "a\\nb"))
print(told(gt.session, None))
"""
    assert lines_of(program) == [
        "ValueError: a session's name has 65 bytes; 64 are allowed",
        "ValueError: a session's name has control characters, or others that cannot be seen; use letters",
        "TypeError: session(): argument 'name' must be str, not NoneType",
    ]


def test_a_program_that_never_computes_connects_to_nothing() -> None:
    done = python("import gt; gt.session('x'); gt.disconnect(); print(gt._gt.is_connected())", **environment())
    assert (done.stdout, done.stderr) == ("False\n", "")
