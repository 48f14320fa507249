"""The functions that the extension declares; its methods are added to `Tensor` here.

Each module below `gt` that has such functions has a module here, which it imports them from: `gt._functions.top` for
`gt` itself, `gt._functions.nn_functional` and so on. The build writes their type stubs.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from gt import _gt

MODULES: dict[str, dict[str, Any]] = _gt.install_functions()

for _name, _functions in MODULES.items():
    _module = ModuleType(f"{__name__}.{_name.replace('.', '_') or 'top'}", f"The declared functions of `gt.{_name}`.")
    vars(_module).update(_functions, __all__=list(_functions))
    sys.modules[_module.__name__] = _module
