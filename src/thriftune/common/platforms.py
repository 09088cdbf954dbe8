"""Refuse to run on systems that thriftune does not support, before an import fails with a less clear error."""

from __future__ import annotations

import sys

from thriftune.errors import ThriftuneError

_ALTERNATIVES = {"win32": "WSL 2", "cygwin": "WSL 2", "darwin": "a Linux container or virtual machine"}


def require_linux() -> None:
    """Raise ThriftuneError unless this is Linux, whose process control the engines depend on."""
    if sys.platform != "linux":
        alternative = _ALTERNATIVES.get(sys.platform, "a machine with Linux")
        raise ThriftuneError(f"thriftune runs only on Linux, and this is {sys.platform}; use {alternative}")
