"""`torch.__config__`: how GT was built."""

from gt import version


def show() -> str:
    """A description of the build, over several lines."""
    return f"GT built with:\n  - version {version.gt}\n"


def parallel_info() -> str:
    """How many threads compute: the daemon decides."""
    return "GT: the daemon's workers compute; `gtctl status` lists them\n"
