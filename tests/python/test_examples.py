"""The examples and the README's program do what they say."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support import ROOT, environment


def run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_digits_are_read() -> None:
    pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
    pytest.importorskip("rich", reason="the example shows its progress with rich")
    told = run(ROOT / "examples" / "digits.py")
    losses = [float(loss) for loss in re.findall(r"epoch +\d+ +loss (\d+\.\d+)", told)]
    assert len(losses) > 3
    assert losses[-1] < 0.1 * losses[0]
    (accuracy,) = re.findall(r"unseen images: +(\d+\.\d)%", told)
    assert float(accuracy) >= 96.0


def _programs() -> list[object]:
    """Every Python block of the README and the docs."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        found += [pytest.param(block, id=f"{page.stem}-{i}") for i, block in enumerate(blocks, start=1)]
    return found


@pytest.mark.parametrize("program", _programs())
def test_the_programs_of_the_pages_run(program: str) -> None:
    run("-c", program)
