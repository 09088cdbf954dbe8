"""Start the supervisor of the local workers. The driver uses this module."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thriftune.errors import ThriftuneError

_CODE = """
import sys, json
with open(int(sys.argv[1])) as file: path, control, alive, settings = json.load(file)
sys.path[:] = path
from thriftune.engines.supervisor import main; main(control, alive, settings)
"""
"""The program of the supervisor. Its argument is the descriptor of a file with all other arguments."""


def start_supervisor(
    alive_file: Path, settings: dict[str, Any], variables: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a supervisor; return its watchdog process and a socket for messages.

    - `alive_file`: the file that the supervisor and its descendants lock.
    - `settings`: see worker.main().
    - `variables`: environment variables for the workers. Those that the user has set are not replaced.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The file is locked before the supervisor starts, so that a supervisor always holds the lock.
    with (
        theirs,
        os.fdopen(os.memfd_create("settings"), "w+") as settings_file,  # they may be too long for an argument
        alive_file.open("a") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_SH)
        json.dump([sys.path, theirs.fileno(), lock.fileno(), settings], settings_file)
        settings_file.seek(0)
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(settings_file.fileno())],
                pass_fds=[theirs.fileno(), lock.fileno(), settings_file.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**variables, **os.environ},
            )
        except OSError as error:
            ours.close()
            raise ThriftuneError(f"the supervisor process of the workers cannot be started: {error}") from error
    return process, ours
