"""Install packages that a machine lacks into a folder of its cache.

    ~/.cache/thriftune/packages/HASH/requirements.txt     the packages, each with its version
    ~/.cache/thriftune/packages/HASH/site/                what was installed

uv installs if the machine has it, and otherwise pip, or a pip that Python brings. Their own configuration applies:
indexes, proxies, certificates. Nothing of the machine's environment is changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from thriftune.common.user_cache import cache_folder, user_cache
from thriftune.engines.node_cache import cached_folder
from thriftune.engines.node_packages import shortened
from thriftune.errors import SettingError

_LIMIT_SECONDS = 1800.0
"""The longest time that an installation may take. PyTorch with CUDA has about 3 GB."""

_QUICK_SECONDS = 2.0
"""An installation that took less is not reported."""

_ERROR_LINES = 15
"""How many of the last lines of a failed installer an error shows."""

_PIP_INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE")
_UV_INDEX = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX", "UV_FIND_LINKS", "UV_CONFIG_FILE")
"""Variables that tell the installers where packages are."""

_PIP_FILES = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf", f"{sys.prefix}/pip.conf")

_END_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
"""Runs a command that the kernel kills when its parent ends; 1 is PR_SET_PDEATHSIG. Arguments: the parent's
process id, and the command."""


class Installed(NamedTuple):
    """Installed packages.

    - `folder`: the folder for sys.path.
    - `remark`: says what this process has installed; empty if it was there or took little time.
    """

    folder: str
    remark: str


def install_packages(lines: Mapping[str, str]) -> Installed:
    """Install packages unless the cache has exactly these, and return their folder.

    Several processes may call it at the same time: one installs, and the others wait. Raises SettingError if they
    cannot be installed.

    - `lines`: of a requirements file, by the package's name. What the packages need must be included.
    """
    seconds = 0.0

    def fill(folder: Path, lock: int) -> None:
        nonlocal seconds
        started = time.monotonic()
        _install(folder, lines, lock)
        seconds = time.monotonic() - started

    try:
        folder = cached_folder(user_cache("packages"), _key(lines), fill)
    except OSError as error:
        raise _failed(lines, f"{error.filename}: {error.strerror}") from None
    remark = ""
    if seconds > _QUICK_SECONDS:
        remark = f"installed on {socket.gethostname()} in {seconds:.0f} s: {shortened(lines.values())}"
    return Installed(str(folder / "site"), remark)


def _key(lines: Mapping[str, str]) -> str:
    """Return the name of the folder for these packages."""
    parts = [sys.version, sys.platform, platform.machine(), *sorted(lines.values())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _install(folder: Path, lines: Mapping[str, str], lock: int) -> None:
    """Run an installer. `folder`: an empty folder."""
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in sorted(lines.values())))
    what = ["--target", str(folder / "site"), "--no-deps", "--requirement", str(requirements)]
    temporary = folder / "temporary"
    temporary.mkdir()
    if (uv := _uv()) is not None:
        command = [uv, "pip", "install", "--python", sys.executable, *what]
    else:
        pip = [sys.executable, "-m", "pip"] if _has_pip() else _own_pip(temporary, lines, lock)
        command = [*pip, "install", "--no-input", "--disable-pip-version-check", *what]
    _run(command, temporary, lines, lock)
    shutil.rmtree(temporary)
    (folder / "site").mkdir(exist_ok=True)


def _uv() -> str | None:
    """Return the path of uv, if it is to be used.

    It does not know pip's configuration. If only pip's tells where packages are, pip is used.
    """
    beside_python = Path(sys.executable).with_name("uv")
    path = str(beside_python) if os.access(beside_python, os.X_OK) else shutil.which("uv")
    pip_is_configured = any(map(os.environ.get, _PIP_INDEX)) or any(map(_is_file, _PIP_FILES))
    if path is None or (pip_is_configured and not any(map(os.environ.get, _UV_INDEX)) and _has_pip()):
        return None
    return path


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return False


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _own_pip(folder: Path, lines: Mapping[str, str], lock: int) -> list[str]:
    """Make an environment with the pip that Python brings, and return the command that runs it."""
    command = [sys.executable, "-m", "venv", str(folder / "venv")]
    _run(command, folder, lines, lock)
    return [str(folder / "venv/bin/python"), "-m", "pip"]


def _run(command: Sequence[str], folder: Path, lines: Mapping[str, str], lock: int) -> None:
    """Run a command to its end. It ends with this process, and holds the lock until then.

    Raises SettingError if it fails. `folder`: in which it runs, so that it imports no modules of the user.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _END_WITH_PARENT, str(os.getpid()), *command],
        cwd=folder,
        env=_environment(),
        pass_fds=(lock,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        output, _ = process.communicate()
        output += f"\nended after {_LIMIT_SECONDS / 60:.0f} minutes, which is the limit"
    finally:
        _kill_group(process.pid)  # what it has started
    if process.returncode != 0:
        raise _failed(lines, "\n".join(output.strip().splitlines()[-_ERROR_LINES:]))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Return the environment of the installers."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}  # both contradict --target
    if not user_cache("packages").is_relative_to(cache_folder()):  # the home folder cannot be written
        environment.setdefault("UV_NO_CACHE", "1")
    return environment


def _failed(lines: Mapping[str, str], why: str) -> SettingError:
    return SettingError(
        f"{socket.gethostname()} lacks packages that the code of the study needs, and they cannot be installed "
        f"there: {shortened(lines.values())}. Install them on the machines, such as in their image; or name an "
        f"index by variables of the engine, such as PIP_INDEX_URL. The installer ended with:\n{why}"
    )
