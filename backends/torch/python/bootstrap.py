"""The program of the process: it takes the modules from the worker that started it, and runs `worker.main`."""

import json
import linecache
import os
import signal
import socket
import sys
import types

# The worker decides when this process ends, and a file `torch.py` in the current folder is none of its modules.
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = [path for path in sys.path if path]
worker = socket.socket(fileno=os.dup(0))
staging = os.dup(1)
os.dup2(2, 1)


def received(count: int) -> bytes:
    """Returns the next `count` bytes from the worker."""
    data = b""
    while len(data) < count:
        part = worker.recv(count - len(data))
        if not part:
            sys.exit("PyTorch's process ends: the worker that started it has ended")
        data += part
    return data


setup = json.loads(received(int.from_bytes(received(4), "little")))
package = types.ModuleType("gt_torch")
package.__path__ = []
sys.modules["gt_torch"] = package


def load(name: str, text: str) -> None:
    """Imports a module from its text."""
    file = f"gt_torch/{name}.py"
    module = types.ModuleType(f"gt_torch.{name}")
    # A traceback shows the lines.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module
    exec(compile(text, file, "exec"), module.__dict__)


def answer(reply: dict) -> None:
    """Tells the worker that PyTorch is ready, or why it is not."""
    text = json.dumps(reply).encode()
    worker.sendall(len(text).to_bytes(4, "little") + text)


try:
    import torch  # noqa: F401
except ImportError as error:
    answer(
        {
            "error": f"PyTorch cannot be imported by {sys.executable} ({error}): install it there, as "
            "pip install 'gt-tensor[torch]' does, or name a Python that has it in GT_TORCH_PYTHON"
        }
    )
    sys.exit(1)
for name, text in setup["sources"]:
    load(name, text)
sys.modules["gt_torch.worker"].main(worker, staging, setup, answer)
