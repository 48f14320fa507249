"""Processes: a private daemon lives exactly as long as its clients, and leaves nothing behind however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import (
    alive,
    daemon,
    environment,
    eventually,
    gtd,
    line_of,
    output_of,
    python,
    sockets,
    started,
    state,
    wait_for_exit,
)

import gt

# Prints the process id of the daemon, and waits for a line on standard input.
CLIENT = """
import gt, sys
x = gt.arange(10)
print(gt._gt.session_info()["daemon_pid"], flush=True)
for word in sys.stdin:
    print((x + int(word)).sum().item(), flush=True)
"""


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


# The private daemon -----------------------------------------------------------------------------------------------


def test_importing_starts_nothing() -> None:
    program = (
        "import gt, os\n"
        "children = open(f'/proc/self/task/{os.getpid()}/children').read\n"
        "assert children() == ''\n"
        "gt.ones(1)\n"
        "print(len(children().split()))\n"
    )
    assert output_of(program).strip() == "1"


def test_the_daemon_ends_with_its_client() -> None:
    pid = int(output_of("import gt; gt.ones(1); print(gt._gt.session_info()['daemon_pid'])"))
    wait_for_exit(pid)


@pytest.mark.parametrize(
    "end", ["raise SystemExit(3)", "os._exit(0)", "os.abort()", "os.kill(os.getpid(), 9)", "1 / 0"]
)
def test_the_daemon_ends_however_its_client_does(end: str) -> None:
    before = shared_memory()
    done = python(f"import gt, os; gt.ones(1); print(gt._gt.session_info()['daemon_pid'], flush=True); {end}")
    wait_for_exit(int(done.stdout))
    assert shared_memory() <= before


def test_the_daemon_ends_after_its_client_is_killed_in_the_middle_of_work() -> None:
    program = """
import gt
x = gt.rand(300, 300)
print(gt._gt.session_info()["daemon_pid"], flush=True)
while True:
    x = x @ x
"""
    with started(program) as client:
        pid = int(line_of(client))
        client.kill()
        wait_for_exit(pid)


def test_a_hundred_killed_clients_cost_a_daemon_nothing(tmp_path: Path) -> None:
    """Kills clients while they connect, upload, compute and fetch."""
    program = """
import os, signal, time
import numpy as np
import gt

def client(ready):
    os.write(ready, b"!")
    while True:
        x = gt.from_numpy(np.ones(10_000, np.float32))
        for _ in range(20): x = x * 2 - x
        x.numpy()

for batch in range(10):
    clients = []
    for _ in range(10):
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            client(writes)
        os.close(writes)
        clients.append((pid, reads))
    for i, (pid, reads) in enumerate(clients):
        if (batch + i) % 3:  # The others are killed while they start.
            os.read(reads, 1)
            time.sleep(0.004 * (i % 5))
        os.kill(pid, signal.SIGKILL)
    for pid, reads in clients:
        os.waitpid(pid, 0)
        os.close(reads)
"""
    survivor = "import gt; assert gt.ones(3).sum().item() == 3; print(gt._gt.session_info()['session_id'])"
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        first = int(output_of(survivor, GT_SOCKET=str(socket)))
        before = descriptors(server.pid)
        assert output_of(program, GT_SOCKET=str(socket)) == ""
        # Those that were killed before they connected had no session.
        assert int(output_of(survivor, GT_SOCKET=str(socket))) > first + 50
        eventually(lambda: descriptors(server.pid) <= before, "the end of the dead clients' sessions")
        server.terminate()
        assert server.wait(timeout=30) == 0
        assert server.stderr.read() == ""
    assert not socket.exists()


def test_a_long_life_leaves_no_descriptor_behind() -> None:
    def use() -> None:
        x = gt.ones(1000)
        for _ in range(100):
            x = x + 1
            x.sum().item()
        gt.from_numpy(x.numpy()).tolist()

    use()
    pid = gt._gt.session_info()["daemon_pid"]
    before = descriptors(os.getpid()), descriptors(pid)
    for _ in range(5):
        use()
    assert (descriptors(os.getpid()), descriptors(pid)) == before


def test_reconnecting_leaves_nothing_behind() -> None:
    gt.disconnect()
    before = descriptors(os.getpid())
    # Tests beside this one start daemons, too; these are of this process.
    own = f"@gt-private-{os.getpid()}-"
    for _ in range(5):
        gt.ones(3).tolist()
        pid = gt._gt.session_info()["daemon_pid"]
        gt.disconnect()
        wait_for_exit(pid)
    assert descriptors(os.getpid()) == before
    eventually(lambda: not any(name.startswith(own) for name in sockets()), "the end of the daemons' sockets")


def test_memory_comes_back_when_tensors_go() -> None:
    """Runs a loop of large tensors in the memory of a few, in the daemon and in the arena."""
    megabytes = 8
    for _ in range(100):
        x = gt.ones(megabytes << 18)
        (x + 1).numpy()
        del x
    info = gt._gt.session_info()
    assert info["arena_bytes"] <= 16 * (megabytes << 20)
    status = Path(f"/proc/{info['daemon_pid']}/status").read_text()
    (resident_kb,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")]
    assert resident_kb < 40 * (megabytes << 10)


def test_a_signal_to_the_terminal_reaches_the_client_alone() -> None:
    """Checks that Ctrl-C, which goes to a whole process group, does not reach the private daemon."""
    with started(CLIENT) as client:
        pid = int(line_of(client))
        assert os.getpgid(pid) != os.getpgid(client.pid)


def test_a_daemon_that_is_killed_is_a_clear_error_and_the_next_tensor_gets_another() -> None:
    program = """
import gt, os, signal
x = gt.ones(3)
pid = gt._gt.session_info()["daemon_pid"]
x.tolist()
os.kill(pid, signal.SIGKILL)
try:
    for _ in range(100_000):
        x = x + 1
    x.tolist()
except gt.DisconnectedError as error:
    print(error)
y = gt.ones(3)
print(y.tolist(), gt._gt.session_info()["daemon_pid"] != pid)
"""
    told, went_on = output_of(program).splitlines()
    assert "GT daemon (pid" in told
    assert "create new ones" in told
    assert went_on == "[1.0, 1.0, 1.0] True"


# fork -------------------------------------------------------------------------------------------------------------


def test_a_forked_child_gets_a_session_of_its_own() -> None:
    program = """
import gt, os
gt.manual_seed(1)
x = gt.ones(3)
mine = gt._gt.session_info()
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        x.tolist()
    except gt.DisconnectedError as error:
        refused = "parent process" in str(error)
    info = gt._gt.session_info()
    y = (gt.ones(3) * 2).tolist()
    same_daemon = info["daemon_pid"] == mine["daemon_pid"]
    same_session = info["session_id"] == mine["session_id"]
    os.write(write, repr((refused, y, same_daemon, same_session)).encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(read, 1000).decode())
print((x + 1).tolist())
"""
    assert output_of(program).splitlines() == ["(True, [2.0, 2.0, 2.0], True, False)", "[2.0, 2.0, 2.0]"]


def test_a_child_keeps_the_daemon_when_its_parent_has_gone(tmp_path: Path) -> None:
    result = tmp_path / "result"
    program = f"""
import gt, os, sys, time
gt.ones(1)
pid = gt._gt.session_info()["daemon_pid"]
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    x = gt.ones(3)
    mine = gt._gt.session_info()["daemon_pid"]
    os.write(1, b"joined\\n")
    os.read(read, 1)  # until the parent has gone
    open({str(result)!r} + ".new", "w").write(f"{{x.tolist()}} {{mine == pid}}")
    os.rename({str(result)!r} + ".new", {str(result)!r})
    os._exit(0)
print(pid, flush=True)
sys.stdin.readline()
"""
    with started(program) as parent:
        words = sorted([line_of(parent), line_of(parent)])
        pid = int(words[0])
        assert words[1] == "joined"
        parent.kill()
        eventually(result.exists, "the child's result")
    assert result.read_text() == "[1.0, 1.0, 1.0] True"
    wait_for_exit(pid)


def test_multiprocessing_by_fork_and_by_spawn(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "import gt\n"
        "def work(t):\n"
        "    return (t * 2).sum()\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:\n"
        "        print([r.item() for r in pool.map(work, [gt.full((3,), float(i)) for i in range(4)])])\n"
    )
    for method in ("fork", "spawn"):
        done = subprocess.run(
            [sys.executable, script, method],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout == "[0.0, 6.0, 12.0, 18.0]\n"
        assert done.stderr == ""


# A daemon started by hand -----------------------------------------------------------------------------------------


def test_gt_socket_names_the_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server:
        program = "import gt; i = gt._gt.session_info(); print(i['daemon_pid'], i['private'], i['address'])"
        assert output_of(program, GT_SOCKET=str(socket)).split() == [str(server.pid), "False", f"unix:{socket}"]
        # It stays when its clients disconnect, and ends on request.
        assert alive(server.pid)
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0
    assert not socket.exists()


def test_several_clients_share_a_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with (
        daemon(socket) as server,
        started(CLIENT, GT_SOCKET=str(socket)) as a,
        started(CLIENT, GT_SOCKET=str(socket)) as b,
    ):
        assert {line_of(a), line_of(b)} == {str(server.pid)}
        for client, word, answer in [(a, "1", "55"), (b, "2", "65"), (a, "0", "45")]:
            client.stdin.write(word + "\n")
            client.stdin.flush()
            assert line_of(client) == answer
        a.kill()
        a.wait()
        b.stdin.write("3\n")
        b.stdin.flush()
        assert line_of(b) == "75"


def test_a_daemon_that_ends_finishes_its_work(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server, started(CLIENT, GT_SOCKET=str(socket)) as client:
        line_of(client)
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0
        client.stdin.write("1\n")
        client.stdin.flush()
        assert client.wait(timeout=30) == 1
        assert "DisconnectedError" in client.stderr.read()


def test_memory_has_a_limit_and_comes_back(tmp_path: Path) -> None:
    program = """
import gt
held = []
try:
    while True:
        held.append(gt.ones(4 << 20) + 1)  # 16 MB
        held[-1][0].item()
except gt.OutOfMemoryError as error:
    print(len(held) - 1, str(error).splitlines()[0])
print(held[0].sum().item())
held.clear()
print((gt.ones(4 << 20) + 1).sum().item())
"""
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--memory", "100M"):
        said, held, again = output_of(program, GT_SOCKET=str(socket)).splitlines()
        count, text = said.split(" ", 1)
        assert 3 <= int(count) <= 6
        assert "out of memory: 16.00 MiB asked for" in text
        assert "100.00 MiB allowed" in text
        assert held == again == f"{2.0 * (4 << 20)}"


def test_cumulative_sums_of_small_integers_need_no_memory_for_wide_ones(tmp_path: Path) -> None:
    program = """
import gt
x = gt.ones(8 << 20, dtype=gt.int8)  # 8 MB; the results have 64 MB
for scan in (gt.cumsum, gt.cumprod):
    result = scan(x, 0)
    print(result.dtype, result[-1].item())
    del result
"""
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--memory", "100M"):
        said = output_of(program, GT_SOCKET=str(socket)).splitlines()
    assert said == [f"gt.int64 {8 << 20}", "gt.int64 1"]


def test_a_second_daemon_at_the_same_place_is_refused(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket):
        second = subprocess.run([gtd(), "--socket", socket], capture_output=True, text=True, timeout=30, check=False)
        assert second.returncode != 0
        assert "already listening" in second.stderr


def test_a_dead_daemon_s_socket_is_taken_over(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as first:
        first.kill()
        first.wait()
        assert socket.exists()
    with daemon(socket):
        assert output_of("import gt; print(gt.ones(2).tolist())", GT_SOCKET=str(socket)) == "[1.0, 1.0]\n"


# A daemon that is not there, or not the right one -----------------------------------------------------------------


def error_of(**env: str) -> str:
    """Returns the last line of the traceback of importing and using GT."""
    done = python("import gt; gt.ones(1).tolist()", **env)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_a_socket_without_a_listener(tmp_path: Path) -> None:
    told = error_of(GT_SOCKET=str(tmp_path / "none.sock"))
    assert "cannot connect to the daemon at" in told
    assert "none.sock" in told


def test_a_daemon_program_that_is_not_there() -> None:
    told = error_of(GT_DAEMON="/nonexistent/gtd")
    assert "GT_DAEMON names /nonexistent/gtd, where there is no file" in told


def test_a_daemon_program_that_is_no_daemon() -> None:
    told = error_of(GT_DAEMON="/bin/true")
    assert "/bin/true could not be used" in told


def test_a_daemon_of_another_protocol(tmp_path: Path) -> None:
    """Connects to a program that answers with something that is not GT's protocol."""
    import socket

    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(30)
        with started("import gt; gt.ones(1)", GT_SOCKET=path) as client:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.send(b'{"welcome": "to another protocol"}')
                assert client.wait(timeout=30) == 1
                assert "DisconnectedError" in client.stderr.read()


# Waiting ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_long_wait_and_the_session_goes_on() -> None:
    program = """
import gt
x = gt.rand(1500, 1500)
gt.synchronize()
for _ in range(80):
    x = x @ x
try:
    print("waiting", flush=True)
    x.sum().item()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(gt.ones(2).sum().item(), flush=True)
"""
    with started(program) as client:
        assert line_of(client) == "waiting"
        eventually(lambda: state(client.pid) == "S", "the client's sleep")
        client.send_signal(signal.SIGINT)
        assert line_of(client) == "interrupted"
        assert line_of(client) == "2.0"


def test_unneeded_work_delays_neither_program_nor_daemon() -> None:
    """Ends a program with minutes of work in flight: the daemon drops the work and ends."""
    told = output_of("""
import gt
x = gt.ones(1, 1).expand(1 << 20, 1 << 21)
print(gt._gt.session_info()["daemon_pid"])
sums = [x.sum(), x.sum()]
""")
    wait_for_exit(int(told))
