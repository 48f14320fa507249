"""Beside a daemon of an earlier protocol: what it does not know is sent to it as instructions that it knows."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import daemon, output_of

MESSAGE_BYTES_MAX = 1 << 20
DESCRIPTORS_MAX = 8


def forward(source: socket.socket, to: socket.socket) -> None:
    """Forwards the messages of a control socket, with their descriptors, until its end."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(source, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
        if not text:
            to.shutdown(socket.SHUT_WR)
            return
        socket.send_fds(to, [text], descriptors)
        for descriptor in descriptors:
            socket.close(descriptor)


def serve(listener: socket.socket, path: Path, version: int) -> None:
    """Connects clients to the daemon at `path`, which hears that they speak no protocol newer than `version`."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.connect(str(path))
        hello = json.loads(client.recv(MESSAGE_BYTES_MAX))
        server.send(json.dumps({**hello, "protocol_version_max": version}).encode())
        for ends in [(client, server), (server, client)]:
            threading.Thread(target=forward, args=ends, daemon=True).start()


@contextmanager
def older_daemon(folder: Path, version: int) -> Iterator[str]:
    """A daemon that speaks no protocol newer than `version` with those who connect to the returned address."""
    newest, older = folder / "gtd.sock", folder / "older.sock"
    with daemon(newest), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(older))
        listener.listen()
        threading.Thread(target=serve, args=(listener, newest, version), daemon=True).start()
        yield str(older)
        listener.shutdown(socket.SHUT_RDWR)


PROGRAM = """
import gt
gt.connect({address!r})
x = gt.arange(12.0).reshape(4, 3).requires_grad_()
rows = gt.tensor([0, -1, -4])
found = x[rows]
found.sum().backward()
print(found.tolist(), x.grad[:, 0].tolist())
y = gt.zeros(4, 3)
y[gt.tensor([-1, 1]), gt.tensor([0, -3])] = 5.0
y.index_put_((rows,), gt.ones(3, 3), accumulate=True)
print(y.tolist())
half = gt.tensor([[1.0, 2.0]], dtype=gt.float16)
print(gt.addmm(half, half, gt.eye(2, dtype=gt.float16)).tolist())
print(gt.nn.functional.linear(half, half, gt.tensor([1.0], dtype=gt.float16)).tolist())
z = gt.tensor([-4.0, 1.0, 4.0]).requires_grad_()
gt.nn.functional.hardswish(z).sum().backward()
print(gt.nn.functional.silu(gt.zeros(1, dtype=gt.float16)).tolist(), z.grad[2].item())
print(gt.ones(3, dtype=gt.int8).sum().item(), gt.ones(3, dtype=gt.int8).cumsum(0).tolist())
try:
    x[gt.tensor([4])].tolist()
except IndexError as error:
    print(str(error).splitlines()[0])
try:
    gt.ones(2).view(gt.int16)
except NotImplementedError as error:
    print(str(error).splitlines()[0])
try:
    gt.nn.functional.ctc_loss(gt.zeros(3, 1, 2).log_softmax(2), gt.tensor([[1]]), [3], [1])
except NotImplementedError as error:
    print(str(error).splitlines()[0])
print((gt.tensor([1 + 2j]) * gt.tensor([3 - 1j])).tolist(), (gt.tensor([5 + 5j]) / (1 + 2j)).tolist())
done = gt.debug.get_worker_stats().values()
print(sorted({{name for worker in done for name in worker["operations"]}}))
"""


@pytest.mark.parametrize("version", [1, 2])
def test_new_instructions_are_made_of_older_ones(tmp_path: Path, version: int) -> None:
    with older_daemon(tmp_path, version) as address:
        lines = output_of(PROGRAM.format(address=address)).splitlines()
    assert lines[0] == "[[0.0, 1.0, 2.0], [9.0, 10.0, 11.0], [0.0, 1.0, 2.0]] [2.0, 0.0, 0.0, 1.0]"
    assert lines[1] == "[[2.0, 2.0, 2.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0], [6.0, 1.0, 1.0]]"
    assert lines[2:6] == ["[[2.0, 4.0]]", "[[6.0]]", "[0.0] 1.0", "3 [1, 2, 3]"]
    assert "index 4 is out of bounds" in lines[6]
    assert "view(dtype) needs a newer daemon" in lines[7]
    assert "ctc_loss needs a newer daemon" in lines[8]
    assert lines[9] == "[(5+5j)] [(3-1j)]"
    assert "gather" in lines[10]
    newer = ["index", "index_put", "index_put_add", "affine", "matmul_wide", "bitcast", "silu", "hardswish"]
    for name in [*newer, "complex_mul", "complex_div"]:
        assert f"'{name}'" not in lines[10]
