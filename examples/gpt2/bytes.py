"""Trains a GPT-2 on the bytes of texts until it writes words.

    python examples/gpt2/bytes.py model.bin docs/*.md

The model is saved as a file of llm.c, for `python -m gt.llm.test` and examples/c/gpt2.c.
"""

import argparse
import re
import tempfile
from pathlib import Path

import gt
import gt.llm

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("model", help="the file that is written")
parser.add_argument("texts", nargs="+", type=Path, help="the files that are learned")
parser.add_argument("--steps", type=int, default=3000, help="the steps of training [3000]")
arguments = parser.parse_args()

gt.manual_seed(1)
text = b"\n".join(path.read_bytes() for path in arguments.texts)
model = gt.llm.GPT2(gt.llm.Config(context=64, vocabulary=256, layers=4, heads=4, channels=128)).initialise()
optimizer = model.optimizer(lr=2e-3, betas=(0.9, 0.95), eps=1e-8, decay=0.1)
with tempfile.TemporaryDirectory() as folder:
    gt.llm.write_tokens(f"{folder}/text.bin", text)
    loader = gt.llm.TokenLoader(f"{folder}/text.bin", batch=16, length=64, shuffle=True)
    for step in range(arguments.steps):
        # The learning rate falls in a straight line.
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 2e-3 * (1 - step / arguments.steps)
        inputs, targets = (gt.from_numpy(part) for part in loader.next_batch())
        _, loss = model(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        gt.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == arguments.steps - 1:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)
gt.llm.save(arguments.model, model)


def written():
    """Returns what the model writes after a line break."""
    return bytes(gt.llm.generate(model, b"\n", 63, temperature=0.6)).decode(errors="replace")


def words(text):
    """Returns the words of three letters or more."""
    return re.findall(r"[a-z]{3,}", text.lower())


samples = [written() for _ in range(20)]
print(*samples[:4], sep="\n---\n")
# A sample ends within a word.
found = [word for sample in samples for word in words(sample)[:-1]]
known = set(words(text.decode(errors="replace")))
share = sum(word in known for word in found) / max(len(found), 1)
print(f"{share:.0%} of {len(found)} written words are words of the texts")
