"""`python -m gt.torch script.py [args]`: runs a program written for PyTorch on GT, as `python script.py [args]` would.

Also `python -m gt.torch -m module [args]` and `-c code [args]`. The program sees its own `sys.argv`, `sys.path[0]` and
`__main__`; its tracebacks and exit status are its own.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType

import gt.torch

USAGE = """usage: python -m gt.torch script.py [args]
       python -m gt.torch -m module [args]
       python -m gt.torch -c code [args]
Runs a program written for PyTorch on GT: `import torch` gives it `gt`."""

_OWN = {__file__, runpy.__file__, "<frozen runpy>"}
_show = sys.excepthook


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an uncaught exception without the frames of this module."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN:
        trace = trace.tb_next
    _show(kind, error.with_traceback(trace), trace)


def _fail(message: str, status: int) -> int:
    sys.stderr.write(message + "\n")
    return status


def _set_folder(folder: str) -> None:
    """Puts the program's folder first in `sys.path`, unless Python's option -P is given."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _run(code: CodeType, path: str | None) -> None:
    """Executes a program as a new `__main__` module, which is kept."""
    main = ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    if path is not None:
        main.__file__ = path
        main.__cached__ = None  # type: ignore[attr-defined]
        main.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def main(args: list[str]) -> int:
    """Runs the program that the arguments name."""
    if not args or args[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0 if args else 2
    if args[0] in ("-m", "-c") and len(args) < 2:
        return _fail(f"{USAGE}\ngt.torch: {args[0]} needs an argument", 2)
    if args[0].startswith("-") and args[0] not in ("-m", "-c", "-"):
        return _fail(f"{USAGE}\ngt.torch: unknown option {args[0]}: Python's own go before -m gt.torch", 2)
    gt.torch.install()
    sys.excepthook = _excepthook
    if args[0] == "-m":
        name = args[1]
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return _fail(f"{sys.executable}: No module named {name}", 1)
        if gt.torch.is_stand_in(found):
            return _fail(f"{sys.executable}: {name} is a module of PyTorch that GT does not have", 1)
        sys.argv = args[1:]
        place = gt.torch.gt_name(name) if name.startswith("torch.") else None
        if place is not None and not hasattr(sys.modules.get(place), "__path__"):
            # It may have been imported to be found, and has to run again.
            sys.modules.pop(place, None)
        runpy.run_module(place or name, run_name="__main__", alter_sys=True)
    elif args[0] == "-c":
        sys.argv = ["-c", *args[2:]]
        _set_folder("")
        _run(compile(args[1], "<string>", "exec", dont_inherit=True), None)
    elif args[0] == "-":
        sys.argv = args
        _set_folder("")
        _run(compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True), None)
    else:
        sys.argv = args
        if os.path.isdir(args[0]):
            # A folder with a __main__.py: run_path puts it first in sys.path.
            if not getattr(sys.flags, "safe_path", False):
                del sys.path[0]
            runpy.run_path(args[0], run_name="__main__")
            return 0
        path = os.path.abspath(args[0])
        try:
            with open(path, "rb") as file:
                source = file.read()
        except OSError as error:
            why = f"[Errno {error.errno}] {error.strerror}"
            return _fail(f"{sys.executable}: can't open file '{path}': {why}", 2)
        _set_folder(os.path.dirname(os.path.realpath(path)))
        _run(compile(source, path, "exec", dont_inherit=True), path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
