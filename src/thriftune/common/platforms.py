"""Refuses to run where thriftune cannot work, before a missing module of Python's does so in other words."""

from __future__ import annotations

import sys

from thriftune.errors import ThriftuneError

_WAYS_OUT = {"win32": "WSL 2", "cygwin": "WSL 2", "darwin": "a Linux container or virtual machine"}


def require_linux() -> None:
    """Raise ThriftuneError on any other system: workers are kept and ended by means that only Linux has."""
    if sys.platform != "linux":
        way_out = _WAYS_OUT.get(sys.platform, "a machine with Linux")
        raise ThriftuneError(f"thriftune runs on Linux only so far, and this is {sys.platform}; use {way_out}")
