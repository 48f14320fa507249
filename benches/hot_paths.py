"""Hot paths: the dispatcher's time per instruction, and steps of training, with plans beside without (bare).

Each daemon belongs to a process of its own. To measure the dispatcher alone, the daemon is stopped while the program
issues instructions, so that it never waits for them; the time includes that of the small kernels, which it runs itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from benches.harness import Row, Target
from benches.workers import Session

# With a plan, an instruction takes at most this part of the dispatcher's time without.
PLANNED = 0.85
# Where nothing repeats, the search takes at most this part of the dispatcher's time without.
SEARCHED = 1.1
# No program takes more than this part of its time without plans.
NEVER_SLOWER = 1.03

BEGIN = """
import os, signal
import gt.nn.functional as F
from gt import nn
"""

DISPATCHER = """
x, y = gt.ones(1), gt.ones(1)
daemon = gt._gt.session_info()["daemon_pid"]
# They fit in the ring of submissions.
COUNT, BURSTS = 1200, 60

def spent_s():
    with open(f"/proc/{daemon}/task/{daemon}/schedstat") as file:
        return int(file.read().split()[0]) * 1e-9

def round_s():
    times = []
    for _ in range(BURSTS):
        gt.synchronize()
        time.sleep(0.002)
        os.kill(daemon, signal.SIGSTOP)
        try:
            burst(COUNT)
            before = spent_s()
        finally:
            os.kill(daemon, signal.SIGCONT)
        gt.synchronize()
        times.append(spent_s() - before)
    return sorted(times)[BURSTS // 2] / COUNT
"""

ADDITIONS = """
def burst(count):
    z = y
    for _ in range(count):
        z = z + x
"""

OPTIMIZER = """
w, m, g = gt.rand(4), gt.zeros(4), gt.rand(4)
def burst(count):
    global w, m
    for n in range(count // 8):
        m = m * 0.9 + g * 0.1
        w = (w - m * (0.01 / (1 + n)) - w * 0.0001).tanh()
"""

# The sizes are chosen at random, so nothing repeats: what is looked for in vain must cost little.
NEVER = """
import random
def burst(count):
    for _ in range(count):
        gt.ones(random.randrange(1, 2000))
"""

STEPS = """
def round_s():
    begin = time.perf_counter()
    for _ in range(COUNT):
        step()
    gt.synchronize()
    return (time.perf_counter() - begin) / COUNT
"""

MLP = """
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = gt.optim.Adam(model.parameters(), lr=1e-3)
x, y, COUNT = gt.rand(32, 784), gt.randint(0, 10, (32,)), 100
def step():
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""

LSTM = """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(1000, 200), nn.LSTM(200, 200, 2, batch_first=True)
        self.head = nn.Linear(200, 1000)
    def forward(self, words):
        return self.head(self.lstm(self.embedding(words))[0])
model = Words()
optimizer = gt.optim.SGD(model.parameters(), lr=0.1)
words, COUNT = gt.randint(0, 1000, (20, 36)), 3
def step():
    optimizer.zero_grad()
    F.cross_entropy(model(words[:, :-1]).reshape(-1, 1000), words[:, 1:].reshape(-1)).backward()
    optimizer.step()
"""

GPT = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(128), nn.LayerNorm(128)
        self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)
    def forward(self, x):
        q, k, v = (part.reshape(12, 64, 4, 32).transpose(1, 2) for part in self.qkv(self.before(x)).split(128, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(12, 64, 128))
        return x + self.down(F.gelu(self.up(self.after(x))))
class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(65, 128), nn.Embedding(64, 128)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.last, self.head = nn.LayerNorm(128), nn.Linear(128, 65)
    def forward(self, x):
        return self.head(self.last(self.blocks(self.letters(x) + self.places.weight)))
model = Letters()
optimizer = gt.optim.AdamW(model.parameters(), lr=1e-3)
x, y, COUNT = gt.randint(0, 65, (12, 64)), gt.randint(0, 65, (12, 64)), 5
def step():
    optimizer.zero_grad()
    F.cross_entropy(model(x).reshape(-1, 65), y.reshape(-1)).backward()
    optimizer.step()
"""


def _session(program: str, plans: bool) -> Session:
    """Returns a process with its own daemon, with plans or without."""
    return Session(1, BEGIN + program, GT_WORKERS="cpu:1", GT_AUTO_COMPILE="1" if plans else "0")


def rows() -> Iterator[Row]:
    """Yields the dispatcher's time per instruction, and steps of training, each with plans and without."""
    for what, program, limit in (
        ("dispatcher, an addition of one element", DISPATCHER + ADDITIONS, PLANNED),
        ("dispatcher, an instruction of a small optimizer", DISPATCHER + OPTIMIZER, PLANNED),
        ("dispatcher, an instruction that never repeats", DISPATCHER + NEVER, SEARCHED),
        ("MLP 784-128-10, batch 32, a step", MLP + STEPS, NEVER_SLOWER),
        ("LSTM 2x200, 20 x 35 words, a step", LSTM + STEPS, NEVER_SLOWER),
        ("GPT 4x128, batch 12 x 64, a step", GPT + STEPS, NEVER_SLOWER),
    ):
        planned, bare = _session(program, plans=True), _session(program, plans=False)
        contenders = {"GT": planned.round_s, "bare": bare.round_s}
        yield Row(f"{what}; bare: without plans", contenders, (Target(limit, "bare"),), rounds=9)
        planned.end()
        bare.end()
