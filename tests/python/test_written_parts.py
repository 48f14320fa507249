"""Writing part of a tensor: the worker writes in place where nobody else has the old elements, and what fails changes
nothing.

The programs run beside a daemon whose memory has room for their one large tensor, but not for a second one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import daemon, output_of

# 64 MiB, of 88. `a` is the same in NumPy.
BEGIN = """
import numpy as np
import gt
ROWS, COLUMNS = 4096, 4096
x = gt.arange(ROWS * COLUMNS, dtype=gt.float32).reshape(ROWS, COLUMNS)
a = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
rows, columns = [5, 0, 4095, 7], [4, 4, 2, 1]
i, j = gt.tensor(rows), gt.tensor(columns)
part = np.arange(4 * COLUMNS, dtype=np.float32).reshape(4, COLUMNS)
p = gt.tensor(part)

def check():
    for corner in (np.s_[:10, :10], np.s_[-3:, -3:], np.s_[5:8, :7], np.s_[1000:1003, 17:20]):
        assert np.array_equal(x[corner].numpy(), a[corner]), (corner, x[corner], a[corner])
    assert x.mean().isfinite().item()
"""

# Each writes `x` and `a` alike.
WRITES = {
    "rows": "x[:10] += 1\na[:10] += 1",
    "a row": "x[7] = 3\na[7] = 3",
    "an element": "x[5, 6] *= 2\na[5, 6] *= 2",
    "a column": "x[:, 3].mul_(2)\na[:, 3] *= 2",
    "every third": "x[1::3, ::500] -= 5\na[1::3, ::500] -= 5",
    "a row of the transpose": "x.T[4] += 1\na.T[4] += 1",
    "a part of a view": "v = x.view(64, 64, 4096)[3]\nv[5:7, :2] = 9\na.reshape(64, 64, 4096)[3][5:7, :2] = 9",
    "a view that is kept": "v = x[20:30]\nv += 1\nv.neg_()\nassert v[0, 0].item() == -(a[20, 0] + 1)\n"
    "a[20:30] += 1\na[20:30] *= -1",
    "merged axes": "x.view(-1)[4090:4100] = 2\na.reshape(-1)[4090:4100] = 2",
    "split axes": "x.view(4096, 8, 512)[:, 2, 10] += 1\na.reshape(4096, 8, 512)[:, 2, 10] += 1",
    "a slice of merged axes": "x[2:4].view(-1)[4000:4200].add_(1)\na[2:4].reshape(-1)[4000:4200] += 1",
    "numbers by index": "x[i, j] = 7\na[rows, columns] = 7",
    "rows by index": "x[i] = p\na[rows] = part",
    "rows by a list": "x[[1, 2]] = p[:2]\na[[1, 2]] = part[:2]",
    "sums by index": "x[i] += p\na[rows] += part",
    "index_put_": "x.index_put_((i, j), p[:, 1])\na[rows, columns] = part[:, 1]",
    "index_put_ that adds": "x.index_put_((j,), p, accumulate=True)\nnp.add.at(a, columns, part)",
    "index_add_": "x.index_add_(0, j, p)\nnp.add.at(a, columns, part)",
    "index_add_ along the columns": "x.index_add_(1, j, x[:, :4] * 1)\nb = a[:, :4].copy()\n"
    "for k, c in enumerate(columns): a[:, c] += b[:, k]",
    "index_copy_": "x.index_copy_(0, i, p)\na[rows] = part",
    "index_fill_": "x.index_fill_(0, i, 4)\na[rows] = 4",
    "scatter_": "x.scatter_(0, i[:, None], p[:, :1])\na[rows, 0] = part[:, 0]",
    "scatter_add_": "x.scatter_add_(1, i[:2, None] * 0 + 2, p[:2, 3:4])\na[:2, 2] += part[:2, 3]",
    "masked_fill_ of a view": "x[:3].masked_fill_(x[:3] > 5, -1)\nb = a[:3]\nb[b > 5] = -1",
    "masked_scatter_ of a view": "x[:2].masked_scatter_(x[:2] > -9, p)\na[:2] = part[:2]",
    "a mask": "v = x[:3]\nv[v > 100] = 0\nb = a[:3]\nb[b > 100] = 0",
    "copy_": "x[3:7].copy_(p)\na[3:7] = part",
    "copy_ of another dtype": "x[3:7].copy_(p.int())\na[3:7] = part",
    "fill_": "x[8:12].fill_(3)\na[8:12] = 3",
    "zero_": "x[:, 9:11].zero_()\na[:, 9:11] = 0",
    "a number in the transpose": "x.T[3:9:2, 5:7] = 6\na.T[3:9:2, 5:7] = 6",
    "a number where axes are added and merged": "x[4:8, None].reshape(-1)[100:9000].fill_(0.5)\n"
    "a[4:8].reshape(-1)[100:9000] = 0.5",
    "normal_": "x[8:12].normal_()\na[8:12] = x[8:12].numpy()",
    "uniform_": "x[:, 12].uniform_()\na[:, 12] = x[:, 12].numpy()",
    "nothing": "x.view(-1).unfold(0, 1, 1)[1:, 1:] = 1\nx[5:5] = 3",
    "all": "x.zero_()\na[:] = 0",
    "all by a slice": "x[:] = 2\na[:] = 2",
    "all, twice": "x.add_(1).mul_(2)\na += 1\na *= 2",
}


def run(tmp_path: Path, workers: str, program: str) -> str:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", workers, "--memory", "88M"):
        return output_of(BEGIN + program, GT_SOCKET=str(socket))


@pytest.mark.parametrize("workers", ["cpu:1", "proc-cpu:1"])
def test_a_part_is_written_without_memory_for_a_second_tensor(tmp_path: Path, workers: str) -> None:
    steps = [f"# {what}\n{code}\ncheck()\n" for what, code in WRITES.items()]
    run(tmp_path, workers, "".join(steps))


def test_what_shares_memory_with_the_part_keeps_its_elements(tmp_path: Path) -> None:
    program = """
copied = x[:10].clone()
fetched = x[:10].numpy().copy()
kept = x[2]
x[:10] += 1
x[5, 6] = 0
a[:10] += 1
a[5, 6] = 0
check()
assert np.array_equal(copied.numpy(), np.arange(10 * COLUMNS).reshape(10, COLUMNS)), copied
assert np.array_equal(fetched, copied.numpy())
assert np.array_equal(kept.numpy(), a[2]), "a view shows what is written"
kept.zero_()
a[2] = 0
check()
"""
    run(tmp_path, "cpu:1", program)


def test_gradients_of_written_parts_are_those_of_copies(tmp_path: Path) -> None:
    program = """
del x, a
w = gt.tensor([2.0, 3.0], requires_grad=True)
x = gt.zeros(1 << 16)
x[:2] += w
x[5:7] = (x[:2] * 1) * w
part = x[5:7] * 1
squares = part * part
with gt.no_grad():
    x.detach()[5:110] += 1
squares.sum().backward()
assert np.allclose(w.grad.numpy(), 4 * np.array([2.0, 3.0]) ** 3), w.grad
for _ in range(3):
    w.grad[:1].zero_()
assert w.grad.tolist() == [0, 108]
# Overwritten elements have a gradient of zeros, also where a view shows all, or a handle off the tape wrote them.
w.grad = None
x = gt.ones(1 << 16, requires_grad=True)
y = x * 1
y.view(256, 256)[:] = w[0]
part = y.detach()[:2]
part += 1
y[:2] = part
y[4:6].detach()[:] = 0
y.sum().backward()
assert x.grad.count_nonzero().item() == 0
assert w.grad.tolist() == [65534, 0], w.grad
# A view keeps its gradient though its elements were dropped, or its base was written.
x.grad = None
y = x * 1
part = y[10:20]
part.retain_grad()
y[30:] *= 2
part *= w[0]
(part * 3).sum().backward()
assert part.grad.tolist() == [3] * 10
assert x.grad[:20].tolist() == [0] * 10 + [6] * 10
# The tape saved elements that are written before they are read: PyTorch's error.
x = gt.zeros(1 << 16)
y = x[:2] * w
x[:2].add_(1)
try:
    y.sum().backward()
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error), error
else:
    raise AssertionError("no error")
"""
    run(tmp_path, "cpu:1", program)


FAILURES = {
    "no memory": ("x[:3000] += 1", "OutOfMemoryError"),
    "no memory for a source": ("x[:10] += gt.ones(8000, 4096).sum(0)", "OutOfMemoryError"),
    "no memory for all": ("x += gt.ones(8000, 4096).sum(0)", "OutOfMemoryError"),
    "a bad index": ("x[gt.tensor([1, 4096])] = 5", "IndexError"),
    "a bad index of two": ("x[gt.tensor([0, 1]), gt.tensor([1, 4096])] = 5", "IndexError"),
    "a bad index to add to": ("x.index_add_(0, gt.tensor([0, 1, 5000, 2]), p)", "IndexError"),
    "a bad place": ("x.view(-1).scatter_(0, gt.tensor([0, -1]), p[0, :2])", "IndexError"),
    "a division": ("x[:2] = (gt.ones(2, 1).int() // gt.zeros(2, 1).int()).float()", "RuntimeError"),
}


@pytest.mark.parametrize("workers", ["cpu:1", "proc-cpu:1"])
def test_a_write_that_fails_is_reported_once_and_changes_nothing(tmp_path: Path, workers: str) -> None:
    lines = [
        f"    {what!r}: (lambda: exec({code!r}, globals()), {kind!r}),\n" for what, (code, kind) in FAILURES.items()
    ]
    failures = "".join(lines)
    program = f"""
failures = {{
{failures}}}
for what, (write, kind) in failures.items():
    write()
    x[3] = -1  # is not carried out either, as it would not be behind an exception
    try:
        x[:2].sum().item()
    except Exception as error:
        assert kind in [base.__name__ for base in type(error).__mro__], (what, error)
    else:
        raise AssertionError(what)
    check()
    x[0] += 1
    a[0] += 1
    check()
"""
    run(tmp_path, workers, program)


def test_shapes_and_dtypes_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    program = """
octets = gt.arange(4, dtype=gt.uint8)
for write, kind in (
    (lambda: octets[1:3].fill_(300), RuntimeError),
    (lambda: octets.__setitem__(slice(1, 3), 256), RuntimeError),
    (lambda: x[:2].copy_(gt.ones(3)), RuntimeError),
    (lambda: x[:2].int().add_(0.5), RuntimeError),
    (lambda: x[:2].add_(gt.ones(5, 4096)), RuntimeError),
    (lambda: x.index_add_(0, i, p.double()), RuntimeError),
    (lambda: x.__setitem__((4096,), 1), IndexError),
):
    version = x._version
    try:
        write()
    except kind:
        assert x._version == version
    else:
        raise AssertionError("no error")
    check()
assert octets.tolist() == [0, 1, 2, 3]
"""
    run(tmp_path, "cpu:1", program)


SHARDED = """
import numpy as np
import gt
from gt import ShardConfig, SignalConfig
from gt.signal import context
gt.register_config("cache", SignalConfig(ShardConfig(axis=0)))
with context("cache"):
    x = gt.arange(1000 * 300, dtype=gt.float32).reshape(1000, 300) * 1
a = np.arange(1000 * 300, dtype=np.float32).reshape(1000, 300)
where = str(gt.debug.placement(x))
assert len(gt.debug.placement(x).workers) == 2, where
for rows in (np.s_[:10], np.s_[495:505], np.s_[999:], np.s_[3::7], np.s_[501:501], np.s_[2:900:399]):
    x[rows] += 1
    a[rows] += 1
    x[rows, 5:9] = 2
    a[rows, 5:9] = 2
x[:, 3].mul_(2)
a[:, 3] *= 2
x[700] = gt.arange(300)
a[700] = np.arange(300)
assert np.array_equal(x.numpy(), a)
assert str(gt.debug.placement(x)) == where, gt.debug.placement(x)
"""


@pytest.mark.parametrize("workers", ["cpu:1,cpu:1", "proc-cpu:1,proc-cpu:1"])
def test_a_divided_tensor_is_written_where_it_is(tmp_path: Path, workers: str) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", workers):
        output_of(SHARDED, GT_SOCKET=str(socket))
