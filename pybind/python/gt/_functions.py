"""The functions that the extension declares, by module and name; its methods are added to `Tensor` here."""

from __future__ import annotations

from typing import Any

from gt import _gt

MODULES: dict[str, dict[str, Any]] = _gt.install_functions()
