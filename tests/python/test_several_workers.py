"""A session on several workers: the results of one worker, with the least possible communication."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import python

WORKERS = ["cpu:4", "proc-cpu:2", "cpu:1,proc-cpu:2"]
DIVIDED = {"GT_SHARD_BYTES_MIN": "0"}

MOVED = """
import gt, json
from gt import ShardConfig, SignalConfig
from gt.nn import Linear, ReLU, Sequential, functional as F
from gt.signal import tensor
gt.gpu_workers(4)
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0)))
gt.register_config("columns", SignalConfig(shard=ShardConfig(axis=1)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True)))

def moved(step):
    "What each worker sends others while `step` is done."
    before = gt.debug.comm_stats()
    step()
    after = gt.debug.comm_stats()
    def of(stats, worker, name):
        return stats[worker].get(name, {"count": 0, "bytes": 0})
    def since(worker, name):
        now, then = of(after, worker, name), of(before, worker, name)
        return [now["count"] - then["count"], now["bytes"] - then["bytes"]]
    found = {worker: {name: since(worker, name) for name in after[worker]} for worker in after}
    return {worker: {name: it for name, it in all.items() if it[0]} for worker, all in found.items()}
"""


def result_of(program: str, **env: str) -> object:
    """Runs a program; returns its last line, parsed as JSON."""
    done = python(program, **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_data_parallel_step_moves_the_gradients_once() -> None:
    """Checks that each worker sends 2 (n-1)/n of the parameters' bytes, the lower bound of an all-reduce."""
    program = """
model = Sequential(Linear(64, 128), ReLU(), Linear(128, 32))
for p in model.parameters():
    p.data = tensor(p.data, name="copies")
x, y = tensor(gt.rand(64, 64), name="rows"), tensor(gt.rand(64, 32), name="rows")

def step():
    loss = F.mse_loss(model(x), y)
    model.zero_grad()
    loss.backward()
    with gt.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad

step()
bound = 2 * 3 * sum(p.numel() for p in model.parameters()) * 4 // 4
print(json.dumps([moved(step), bound]))
"""
    found, bound = result_of(MOVED + program)
    assert found == {f"cpu:{worker}": {"all_reduce": [4, bound]} for worker in range(4)}


def test_a_data_parallel_transformer_moves_its_gradients_and_three_numbers() -> None:
    """Checks that attention and embeddings need no collective, and a mean of losses only the number of samples."""
    program = """
from gt import nn

class Block(nn.Module):
    def __init__(self, wide, heads):
        super().__init__()
        self.before, self.attend, self.project = nn.LayerNorm(wide), Linear(wide, 3 * wide), Linear(wide, wide)
        self.after, self.up, self.down = nn.LayerNorm(wide), Linear(wide, 4 * wide), Linear(4 * wide, wide)
        self.heads = heads

    def forward(self, x):
        parts = self.attend(self.before(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))

tokens, places, head = nn.Embedding(20, 32), nn.Embedding(16, 32), Linear(32, 20)
blocks = Sequential(Block(32, 4), Block(32, 4))
parameters = [p for part in (tokens, places, head, blocks) for p in part.parameters()]
for p in parameters:
    p.data = tensor(p.data, name="copies")
x, y = (tensor(gt.randint(0, 20, (8, 16)), name="rows") for _ in range(2))

def step():
    hidden = blocks(tokens(x) + places(gt.arange(16)))
    loss = F.cross_entropy(head(hidden).flatten(0, 1), y.flatten())
    for p in parameters:
        p.grad = None
    loss.backward()
    with gt.no_grad():
        for p in parameters:
            p -= 0.1 * p.grad

step()
print(json.dumps([moved(step), len(parameters), sum(p.numel() for p in parameters)]))
"""
    found, parameters, numbers = result_of(MOVED + program)
    # The sum of the losses with the number of samples, and the number again at the start of the backward pass.
    bound = 2 * 3 * (numbers + 2 + 1) * 4 // 4
    assert found == {f"cpu:{worker}": {"all_reduce": [parameters + 2, bound]} for worker in range(4)}


def test_two_layers_cut_by_rows_and_then_columns_need_one_all_reduce_each_way() -> None:
    program = """
up, down = Linear(64, 256), Linear(256, 64)
for p in (up.weight, up.bias):
    p.data = tensor(p.data, name="rows")
down.weight.data = tensor(down.weight.data, name="columns")
down.bias.data = tensor(down.bias.data, name="copies")
x = tensor(gt.rand(32, 64), name="copies").requires_grad_()
kept = {}

def forward():
    kept["y"] = down(F.relu(up(x)))

def backward():
    kept["y"].square().sum().backward()
    x.grad + 1

print(json.dumps([moved(forward)["cpu:1"], moved(backward)["cpu:1"], 2 * 3 * x.numel() * 4 // 4]))
"""
    forward, backward, bound = result_of(MOVED + program)
    assert forward == {"all_reduce": [1, bound]}
    assert backward == {"all_reduce": [1, bound]}


def test_the_bias_of_an_affine_map_with_divided_terms_is_added_once_before_the_sum_is_rounded() -> None:
    # 257 and the bias are 258, which bfloat16 has; it does not have 257.
    program = """
found = {}
for dtype in (gt.float32, gt.bfloat16):
    x, weight = gt.tensor([[64.0, 64.0, 64.0, 65.0]] * 8, dtype=dtype), gt.ones(6, 4, dtype=dtype)
    bias = gt.ones(6, dtype=dtype)
    whole = F.linear(x, weight, bias)
    for name, own, others in (
        ("both", tensor(x, name="columns"), tensor(weight, name="columns")),
        ("input", tensor(x, name="columns"), weight),
        ("weight", x, tensor(weight, name="columns")),
        ("rows", tensor(x, name="rows"), tensor(weight, name="copies")),
        ("results", tensor(x, name="copies"), tensor(weight, name="rows")),
    ):
        made = F.linear(own, others, bias)
        assert made.dtype == dtype and made.shape == (8, 6)
        found[f"{name} {dtype}"] = sorted(set(made.flatten().tolist()) | set(whole.flatten().tolist()))
print(json.dumps(found))
"""
    found = result_of(MOVED + program)
    assert len(found) == 10
    assert set(map(tuple, found.values())) == {(258.0,)}


def test_signals_say_where_results_lie() -> None:
    program = """
gt.register_config("second", SignalConfig(shard=ShardConfig(axis=0, workers=[2])))
gt.register_config("nowhere", SignalConfig(shard=ShardConfig(axis=5)))
x = gt.rand(10, 8)
with gt.signal.context("rows"):
    rows = x * 2
    with gt.signal.context("second"):
        second = x * 2
    with gt.signal.context("nowhere"):
        left = x * 2
whole = x * 2
same = all((part == whole).all().item() for part in (rows, second, left, rows.T.T, tensor(rows, name="columns")))
print(json.dumps([*(str(gt.debug.placement(t)) for t in (x, rows, second, left, tensor(rows, name="columns"))), same]))
"""
    x, rows, second, left, columns, same = result_of(MOVED + program)
    cut = "over [cpu:0, cpu:1, cpu:2, cpu:3]"
    assert (rows, columns) == (f"sharded along axis 0 {cut}", f"sharded along axis 1 {cut}")
    assert (x, second, left) == ("on cpu:0", "on cpu:2", "on cpu:0")
    assert same


# Without a signal ---------------------------------------------------------------------------------------------------

CHAINS = """
import gt, json
gt.manual_seed(5)
def start():
    return gt.randn(96, 96) / 96, gt.randn(96, 96) / 10
def where(*tensors):
    return [str(gt.debug.placement(x)) for x in tensors]
def sent():
    return sum(of["bytes"] for told in gt.debug.comm_stats().values() for of in told.values())
(a, v), (b, w) = start(), start()
"""


def test_independent_work_goes_to_different_workers() -> None:
    """Runs two independent computations, each too small to shard: each gets a worker, and nothing moves afterwards."""
    program = """
places = []
for turn in range(4):
    before = sent()
    for _ in range(400):
        a, b = gt.tanh(a @ v), gt.tanh(b @ w)
    places.append([*where(a, b), sent() - before])
print(json.dumps([places, (a + b).sum().item()]))
"""
    places, total = result_of(CHAINS + program, GT_WORKERS="cpu:2")
    assert places[-1] == ["on cpu:0", "on cpu:1", 0] or places[-1] == ["on cpu:1", "on cpu:0", 0]
    assert sum(moved for *_, moved in places) <= 4 * 96 * 96 * 4
    assert total == pytest.approx(result_of(CHAINS + program, GT_WORKERS="cpu:1")[1], rel=1e-5)


def test_dependent_work_stays_on_one_worker() -> None:
    """Checks one chain, two chains that join, and work under signals."""
    program = """
for _ in range(400):
    a = gt.tanh(a @ v)
alone = where(a)
for _ in range(400):
    a, b = gt.tanh(a @ v + b / 96), gt.tanh(b @ w + a / 96)
print(json.dumps([alone, where(a, b, v, w), sent()]))
"""
    assert result_of(CHAINS + program, GT_WORKERS="cpu:2") == [["on cpu:0"], ["on cpu:0"] * 4, 0]


def test_tensors_placed_by_a_signal_stay_there() -> None:
    program = """
gt.register_config("second", gt.SignalConfig(shard=gt.ShardConfig(axis=0, workers=[1])))
v, w = (gt.signal.tensor(x, name="second") for x in (v, w))
for _ in range(400):
    a, b = gt.tanh(a @ v), gt.tanh(b @ w)
print(json.dumps([where(v, w), len({*where(a, b)})]))
"""
    assert result_of(CHAINS + program, GT_WORKERS="cpu:2") == [["on cpu:1"] * 2, 1]


# Results of any program --------------------------------------------------------------------------------------

RANDOM_PROGRAM = """
import gt, json, numpy as np
from gt import ShardConfig, SignalConfig
rng = np.random.default_rng(SEED)
for axis in (0, 1, -1):
    gt.register_config(f"axis {axis}", SignalConfig(shard=ShardConfig(axis=axis)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True)))
gt.register_config("last", SignalConfig(shard=ShardConfig(axis=0, workers=[WORKER])))
SIGNALS = ["axis 0", "axis 1", "axis -1", "copies", "last", None]
gt.manual_seed(1)
values = [gt.tensor(rng.standard_normal(shape)) for shape in [(10, 8), (8, 3), (2, 5, 4), (1, 8), (7,), ()]]
values += [gt.randn(5, 6, dtype=gt.float64), gt.arange(12, dtype=gt.float64).reshape(3, 4)]

def pick():
    return values[rng.integers(len(values))]

def axis_of(x):
    return int(rng.integers(x.dim()))

def step():
    x = pick()
    kind = rng.integers(14)
    if kind == 0: return gt.tanh(x) + 0.5
    if kind == 1: return x * rng.standard_normal()
    if kind == 2:
        y = pick()
        return (x + y) / 2 if x.shape == y.shape else x - x.mean()
    if x.dim() == 0: return x * 2
    axis = axis_of(x)
    if kind == 3: return x.sum(axis) / max(1, x.shape[axis])
    if kind == 4: return x.amax(axis, keepdim=True) if x.shape[axis] else x
    if kind == 5: return x.transpose(axis, axis_of(x))
    if kind == 6: return x.reshape(-1)
    if kind == 7: return gt.softmax(x, axis)
    if kind == 8: return gt.cat([x, x * 0.5], axis)
    if kind == 9: return x.narrow(axis, 0, (x.shape[axis] + 1) // 2)
    if kind == 10: return x.flip(axis)
    if kind == 11: return gt.sort(x, axis)[0]
    if kind == 12: return x.mean(axis)
    if x.dim() == 2: return gt.tanh(x @ x.T)
    return x.cumsum(axis) / 4

for _ in range(60):
    signal = SIGNALS[rng.integers(len(SIGNALS))]
    if signal is None:
        made = step()
    else:
        with gt.signal.context(signal):
            made = step()
    if made.numel() < 4000:
        values.append(made)
leaf = values[0].detach().requires_grad_()
(gt.softmax(leaf, 1).square().sum() + (leaf @ leaf.T).mean()).backward()
values.append(leaf.grad)
print(json.dumps([(list(v.shape), v.reshape(-1).tolist()) for v in values]))
"""


def random_program(seed: int, last_worker: int) -> str:
    return RANDOM_PROGRAM.replace("SEED", str(seed)).replace("WORKER", str(last_worker))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_have_the_results_of_one_worker(seed: int) -> None:
    expected = result_of(random_program(seed, 0), GT_WORKERS="cpu:1")
    workers = WORKERS[seed % len(WORKERS)]
    env = DIVIDED if seed % 2 else {}
    found = result_of(random_program(seed, 1), GT_WORKERS=workers, **env)
    assert [shape for shape, _ in found] == [shape for shape, _ in expected]
    for (_, one), (_, several) in zip(expected, found, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("workers", WORKERS)
def test_random_numbers_are_the_same_on_any_number_of_workers(workers: str) -> None:
    program = """
import gt, json
gt.manual_seed(3)
drawn = [gt.rand(7, 5), gt.randn(9), gt.randint(0, 100, (4, 4)), gt.randperm(9), gt.rand(1, 11, 3)]
drawn += [gt.rand(5, 3, dtype=dtype) for dtype in (gt.float64, gt.float16, gt.bfloat16)]
drawn += [gt.randn(5, 3, dtype=dtype) for dtype in (gt.float64, gt.float16)]
print(json.dumps([numbers.tolist() for numbers in drawn]))
"""
    assert result_of(program, GT_WORKERS=workers, **DIVIDED) == result_of(program, GT_WORKERS="cpu:1")


@pytest.mark.parametrize("workers", WORKERS)
def test_shards_may_be_uneven_and_empty(workers: str) -> None:
    program = """
import gt, json
x = gt.arange(80.0).reshape(10, 8)
few = gt.arange(2.0)
none = gt.ones(0, 3)
print(json.dumps([x.sum(0).tolist(), (x @ x.T).trace().item(), few.mean().item(), few.max().item(),
    none.sum().item(), gt.cat([few, few + 5]).tolist(), x[3:7, ::2].sum().item(),
    few.sort(descending=True)[0].tolist()]))
"""
    assert result_of(program, GT_WORKERS=workers, **DIVIDED) == result_of(program, GT_WORKERS="cpu:1")


def test_parts_that_cancel_are_added_before_a_large_factor() -> None:
    program = """
import gt, json
x = gt.tensor([-2.0, 1.0], dtype=gt.float16)
x.index_put_((gt.tensor([0, 1]),), gt.tensor(2.0, dtype=gt.float16), accumulate=True)
print(json.dumps([str((2147483648 * x).tolist()), str((x / 1e-9).tolist())]))
"""
    assert result_of(program, GT_WORKERS="cpu:3", **DIVIDED) == ["[0.0, inf]"] * 2


def test_an_infinite_factor_of_partial_sums_makes_no_nan() -> None:
    program = """
import gt, json
x = gt.tensor([3.25, -3.0, 0.25, 0.0], dtype=gt.float64)
y = gt.tensor([3.0, 3.0, 3.0, 0.0], dtype=gt.float64) * 1
steps = (lambda t: t / 0, lambda t: t * gt.inf, lambda t: t * 2, lambda t: t / 2)
print(json.dumps([str(step(x @ y).item()) for step in steps]))
"""
    for workers in ("cpu:1", "cpu:3"):
        assert result_of(program, GT_WORKERS=workers, **DIVIDED) == ["inf", "inf", "3.0", "0.75"]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_on_one_worker_poisons_the_whole_tensor_only(workers: str) -> None:
    program = """
import gt, json
x = gt.arange(40.0).reshape(10, 4)
index = gt.tensor([[0] * 4] * 9 + [[77] * 4])
bad = x.gather(0, index)
total = bad.sum() + x.sum()
try:
    total.item()
except IndexError as error:
    print(json.dumps([str(error).splitlines()[0].split(": ")[1], x.sum().item()]))
"""
    text, total = result_of(program, GT_WORKERS=workers, **DIVIDED)
    assert text == "index 77 is out of bounds for dimension 0 with size 10"
    assert total == 780.0


@pytest.mark.parametrize("workers", ["proc-cpu:2", "cpu:1,proc-cpu:2"])
def test_a_worker_that_dies_takes_its_parts_with_it_and_the_next_tensors_are_whole(workers: str) -> None:
    program = """
import gt, json, os, re, signal
from pathlib import Path

def parent(process):
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0

def total(x):
    return (x @ x.T).sum().item()
x = gt.ones(64, 64)
first = total(x)
found = []
for _ in range(3):
    daemon = gt._gt.session_info()["daemon_pid"]
    processes = [int(found.name) for found in Path("/proc").glob("[0-9]*") if parent(found) == daemon]
    os.kill(max(processes), signal.SIGKILL)
    for _ in range(2):
        try:
            total(x)
        except RuntimeError as error:
            found.append(re.search("worker cpu:[0-9] .*and the tensors it held are lost", str(error)) is not None)
    x = gt.ones(64, 64)
    found.append(total(x) == first)
print(json.dumps(found))
"""
    done = python(program, GT_WORKERS=workers, **DIVIDED)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found
    assert all(found)


SHARED = """
shape = (512, 1024)
given = gt.arange(512 * 1024, dtype=gt.float32).reshape(shape)

def held():
    gt.synchronize()
    return [worker["session_bytes"] for worker in gt.debug.get_worker_stats().values()]

def added(make):
    "The bytes that the workers hold more together when `make` has made a tensor, and the tensor."
    before = sum(held())
    made = make()
    made.sum().item()
    return (sum(held()) - before) / given.nbytes, made
"""


@pytest.mark.parametrize(("workers", "copies"), [("cpu:2", 1), ("proc-cpu:2", 2)])
def test_workers_of_one_process_hold_a_replica_together(workers: str, copies: int) -> None:
    """Checks the memory of a gathered replica, and updates of it that both workers make in place."""
    program = f"""{MOVED.replace("gt.gpu_workers(4)", "")}{SHARED}
parts = tensor(given, name="rows")
parts.sum().item()
before = held()
bytes, whole = added(lambda: tensor(parts, name="copies"))
other = whole.clone()
whole += 1
whole *= 2
found = [bool((tensor == numbers).all()) for tensor, numbers in
         [(parts, given), (other, given), (whole, (given + 1) * 2)]]
del whole, other
found.append(held() == before)
print(json.dumps([bytes, found]))
"""
    assert result_of(program, GT_WORKERS=workers) == [copies, [True] * 4]


def test_an_update_of_replicas_is_divided_among_workers_of_one_process() -> None:
    """Checks where an optimizer's state lies, and that the parameters are bit for bit those of one worker."""
    program = f"""{MOVED.replace("gt.gpu_workers(4)", "")}{SHARED}
gt.register_config("update", SignalConfig(shard=ShardConfig(replicated=True)))
small, large = (gt.nn.Parameter(tensor(part.clone(), name="copies")) for part in (given[0], given))
optimizer = gt.optim.Adam([small, large], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    ((small / 1000).sin().sum() + (large / 1000).sin().sum()).backward()
    with gt.signal.context("update"):
        optimizer.step()
where = [str(gt.debug.placement(optimizer.state[part]["exp_avg"])) for part in (small, large)]
digits = [part.detach().view(gt.int32).sum().item() for part in (small, large)]
print(json.dumps([where, digits]))
"""
    (small, large), digits = result_of(program, GT_WORKERS="cpu:2")
    assert (small, large) == ("replicated on [cpu:0, cpu:1]", "sharded along axis 0 over [cpu:0, cpu:1]")
    (_, large), apart = result_of(program, GT_WORKERS="proc-cpu:2")
    assert large == "replicated on [cpu:0, cpu:1]"
    _, alone = result_of(program, GT_WORKERS="cpu:1")
    assert digits == apart == alone
