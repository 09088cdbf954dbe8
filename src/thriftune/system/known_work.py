"""What is known of past work, and where is it kept? In one file of JSON lines, for all studies of a store.

    {"version":1,"machine":"...","profile":{"user_seconds":0.98,...},"effects":{"{\"threads\":1}":0.83,...}}

It tells nothing of anybody's data, model or configurations: a profile is names of counters and numbers, an effect
is names of knobs, their plain values and a number, and a Work of anything else cannot be made.

Any number of processes may add to the file and read it at once. They add under a lock, which the kernel lets go of
when its holder dies; a process killed in the middle leaves a torn line, and whatever is no line of ours is passed
over. Readers need no lock. The newest lines count, and the file is cut back to them now and then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError

KEPT_LINES = 2000
"""So many of the newest count; the file is cut back to them when it has twice as many."""

UNTURNED = "{}"
"""The key of the setting in which nothing is turned."""

_VERSION = 1
_PATIENCE_SECONDS = (
    5.0  # a lock is held for milliseconds, unless its holder was stopped; a study must not stop too
)
_GIB = 1 << 30


# --- work and settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What some training did to its machine, and what turning knobs did to it.

    - `profile`: by counter, its average a second in a step with nothing turned.
    - `effects`: by the key of a setting, the seconds a step takes relative to nothing turned; below 1 is better.
      Nothing turned is 1, and need not be there.
    - `under`: the key of what was turned in that step, if something was; then the effects are relative to it.
    """

    profile: Mapping[str, float]
    effects: Mapping[str, float]
    under: str = UNTURNED

    def __post_init__(self) -> None:
        if not _is_key(self.under):
            raise SettingError(f"under: {self.under!r} is not the key of a setting; use key(setting)")
        for counter, rate in self.profile.items():
            if not isinstance(counter, str) or not _is_number(rate):
                raise SettingError(
                    f"profile: {counter!r} is {rate!r}; give finite numbers by the names of counters"
                )
        for setting, effect in self.effects.items():
            if not isinstance(setting, str) or not _is_key(setting):
                raise SettingError(f"effects: {setting!r} is not the key of a setting; use key(setting)")
            if not _is_number(effect) or effect <= 0:
                raise SettingError(f"effects: {setting} is {effect!r}; give a finite number above 0")


def key(setting: Mapping[str, Any]) -> str:
    """The setting as text: the same text for the same setting."""
    for knob, value in setting.items():
        plain = value is None or isinstance(value, (str, bool)) or _is_number(value)
        if not isinstance(knob, str) or not plain:
            raise SettingError(
                f"{knob}: {value!r} is no plain value; use a text, a finite number, True, False or None"
            )
    return json.dumps(dict(setting), sort_keys=True, separators=(",", ":"))


def setting_of(text: str) -> dict[str, Any]:
    """The setting of which this is the key."""
    if not _is_key(text):
        raise SettingError(f"{text!r} is not the key of a setting; use key(setting)")
    setting: dict[str, Any] = json.loads(text)
    return setting


def best(effects: Mapping[str, float]) -> str:
    """The key of the setting with the shortest steps; nothing turned where that is as good as any."""
    return min({**effects, UNTURNED: 1.0}.items(), key=lambda item: (item[1], item[0] != UNTURNED, item[0]))[0]


def merged(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The effects of several pieces of work as one's: by setting, the geometric mean of those that have it."""
    logarithms: dict[str, list[float]] = {}
    for effects in several:
        for setting, effect in effects.items():
            logarithms.setdefault(setting, []).append(math.log(effect))
    return {setting: math.exp(math.fsum(some) / len(some)) for setting, some in logarithms.items()}


@functools.lru_cache(maxsize=10_000)  # the same few settings are on every line of the file
def _is_key(text: str) -> bool:
    try:
        setting = json.loads(text)
        return isinstance(setting, dict) and key(setting) == text
    except (ValueError, RecursionError):
        return False


def _is_number(value: object) -> bool:
    """Whether it is one, and finite; NaN is neither above nor below anything."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


# --- machines ---------------------------------------------------------------------------------------------


def signature(kind: str) -> str:
    """This machine in a few words: effects are only to be expected again where it is the same.

    `kind`: of its counters, for profiles of different kinds cannot be compared.
    """
    return f"{_machine()}, {kind} counters"


@functools.cache
def _machine() -> str:
    cores = os.cpu_count() or 1  # of the machine, whatever this process may use of it at the moment
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    # The kernel keeps some for itself, and more or less of it after an update.
    rounded_gib = 2 ** max(0, round(math.log2(memory_gib)))
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}, {rounded_gib} GiB"


def _processor() -> str:
    try:
        return _processor_in(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        return platform.machine()


def _processor_in(cpuinfo: str) -> str:
    """Its model; of those that have only numbers (ARM), these; else the architecture."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    numbers = [fields[name] for name in ("CPU implementer", "CPU part") if fields.get(name)]
    return fields.get("model name") or " ".join([platform.machine(), *numbers])


# --- the file ---------------------------------------------------------------------------------------------


class KnownWork:
    """The file, which is made when something is first added."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, signature: str) -> list[Work]:
        """All that is known of work on such a machine, the newest last. What cannot be read is not known."""
        try:
            lines = _newest(self._path.read_bytes()) if self._path.is_file() else []  # a pipe would be waited for
        except OSError:
            return []
        return [work for line in lines if (work := _read(line, signature)) is not None]

    def add(self, signature: str, works: Sequence[Work]) -> str | None:
        """Keeps what was learnt on such a machine, and is not there yet: a study that is resumed tells all it has
        again. None, or a sentence that says why it could not be kept.

        Not an error, for a study is none the worse for it; but its user should be told, once.
        """
        if not works:
            return None
        try:
            if self._path.exists() and not self._path.is_file():
                raise FileExistsError(errno.EEXIST, "it is no plain file")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as file:
                there = set(os.pread(file, os.fstat(file).st_size, 0).splitlines(keepends=True))
                new = (line for work in works if (line := _line(signature, work)) not in there)
                _append(file, b"".join(new))
                self._cut_back(file)
        except OSError as error:
            return (
                f"{self._path} cannot be written ({error.strerror or error}): "
                "what is learnt of how trials use their machine is not kept for other studies"
            )
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open, while nobody else changes it."""
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                if _try_lock(file):
                    try:
                        # Else another process has put a new file in its place, and this is the old one's lock.
                        if self._is(file):
                            yield file
                            return
                    finally:
                        # Closing is not enough while a child between fork and exec has the file open too.
                        fcntl.flock(file, fcntl.LOCK_UN)
            finally:
                os.close(file)
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"another process has had it locked for {_PATIENCE_SECONDS:g} seconds")
            time.sleep(0.002)

    def _is(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def _cut_back(self, file: int) -> None:
        """Puts a file of the newest lines in its place, if it has grown too long."""
        status = os.fstat(file)
        content = os.pread(file, status.st_size, 0)
        if content.count(b"\n") <= 2 * KEPT_LINES:
            return
        unfinished = self._path.with_name(
            f"{self._path.name}.unfinished"
        )  # whoever has the lock has this name too
        with unfinished.open("wb") as shorter:
            os.fchmod(shorter.fileno(), status.st_mode & 0o777)
            shorter.write(b"".join(line + b"\n" for line in _newest(content)))
            shorter.flush()
            os.fsync(shorter.fileno())  # or a power cut might leave the new name and nothing in it
        unfinished.replace(self._path)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _append(file: int, lines: bytes) -> None:
    """All of it, or nothing where there is no room."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        lines = b"\n" + lines  # somebody was killed in the middle of a line
    try:
        while lines:
            lines = lines[os.write(file, lines) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _newest(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line][-KEPT_LINES:]


def _line(signature: str, work: Work) -> bytes:
    content = {
        "version": _VERSION,
        "machine": signature,
        "profile": dict(work.profile),
        "effects": dict(work.effects),
        "under": work.under,
    }
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _read(line: bytes, signature: str) -> Work | None:
    """What the line tells of such a machine, if it is one of ours, whole and of this version."""
    try:
        content = json.loads(line)
        if content["version"] != _VERSION or content["machine"] != signature:
            return None
        return Work(content["profile"], content["effects"], content.get("under", UNTURNED))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
