"""Where is a trial's state kept? In a local folder: atomic, checksummed, the last few of them and the best.

    step-0000000007/manifest     what was saved, and by which attempt: the size and checksum of every file, and
                                 its own checksum
    step-0000000007/state/...    what the training function wrote
    step-0000000007.1/...        step 7 saved once more; of one step, the highest number is the newest
    .unfinished-.../             being written or being removed; never read, cleared away by the next save

A checkpoint gets its name by one rename, once all of it is on disk, and loses it by one rename, before
anything of it is removed. Whenever a process is killed, what bears a step's name is therefore whole; the
checksums are for what disks, file systems and people do to it later.

Only one process at a time may write a trial's checkpoints; any number may read them meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from thriftune.errors import CheckpointError, SettingError

_FORMAT = 1
_MANIFEST = "manifest"
_STATE = "state"  # a folder of its own, so that no file of the user's can clash with the manifest
_UNFINISHED = ".unfinished-"
_NAME = re.compile(r"step-(\d{10,})(?:\.(\d+))?")
_CHUNK_BYTES = 1 << 20


class DiskFullError(CheckpointError):
    """There was no room for a checkpoint. The earlier ones are intact."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The newest good checkpoint; or step 0 and no folder where there is none.

    `passed_over` has a sentence for each newer checkpoint that could not be used.
    """

    step: int
    folder: Path | None
    passed_over: tuple[str, ...]


class _Found(NamedTuple):
    step: int
    again: int  # how often the step had been saved before
    path: Path


class Checkpoints:
    """All checkpoints of one trial, in a folder that is made by the first save."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        # A trial killed between saving a step and reporting it resumes from the step before, so with one
        # checkpoint kept it would lose everything.
        if keep < 2:
            raise SettingError(f"keep: {keep} is too few; at least the last 2 checkpoints must be kept")
        self.folder = folder
        self.keep = keep

    def save(
        self,
        step: int,
        write: Callable[[Path], object],
        *,
        attempt: int = 0,
        besides: Collection[tuple[int, int]] = (),
    ) -> Path:
        """Keeps what `write(folder)` writes as the checkpoint of `step`; returns where, once it is on disk.

        An error that `write` raises passes through, but for want of room, which becomes DiskFullError; the
        checkpoints there were are then left as they were. Afterwards the newest `keep` up to `step` remain:
        those of later steps were left by an attempt that died before it could report them.

        `attempt`: the one that saves. `besides`: step and attempt of checkpoints to keep whatever their age.
        """
        unfinished = self._unfinished()
        try:
            _make_folder(self.folder)
            for leftover in self.folder.glob(f"{_UNFINISHED}*"):  # first, for the room they take
                shutil.rmtree(leftover, ignore_errors=True)
            state = unfinished / _STATE
            state.mkdir(parents=True)
            write(state)
            # Needed, each, for a checkpoint that survives a power cut as soon as its step is reported: the
            # files and the folders that name them (in _settle), the manifest, the folder that names it, and,
            # after the rename, the trial's folder. What is removed needs none: it may as well come back.
            files = {name: (size, checksum) for name, size, checksum in _settle(state)}
            if not files:
                raise CheckpointError(f"save wrote no file into {state}, the folder it was given for step {step}")
            _write_manifest(unfinished / _MANIFEST, step, attempt, files)
            sync_folder(unfinished)
            before = self._found()
            again = 1 + max((found.again for found in before if found.step == step), default=-1)
            path = unfinished.rename(self.folder / (f"step-{step:010d}" + (f".{again}" if again else "")))
            sync_folder(self.folder)
        except BaseException as error:
            full = _for_want_of_room(error, self.folder)
            shutil.rmtree(unfinished, ignore_errors=True)
            if full:
                raise DiskFullError(
                    f"{self.folder}: no room for the checkpoint of step {step} "
                    f"({_bytes_free(self.folder):,} bytes are free there, less where there is a quota); "
                    f"free some, or keep checkpoints on a larger disk. The earlier checkpoints are intact."
                ) from error
            raise
        kept = {step}
        best = [self._of(wanted, by) for wanted, by in besides]
        for found in before:  # newest first
            if found.step < step and found.step not in kept and len(kept) < self.keep:
                kept.add(found.step)
            elif found.path not in best:
                self._discard(found.path)
        return path / _STATE

    def load(self, at_most: int | None = None) -> Loaded:
        """The newest checkpoint, of step `at_most` or before, in which every byte saved is still there.

        Files added to it since are no flaw: a restore function may well unpack things where they lie.
        """
        flaws: list[tuple[int, str]] = []
        for step, _, path in self._found():
            if at_most is not None and step > at_most:
                continue
            flaw = _flaw(path, step)
            if flaw is None:
                return Loaded(step, path / _STATE, in_sentences(flaws, f"using step {step}"))
            if not path.exists():  # removed while it was read, so there is a newer one now
                return self.load(at_most)
            flaws.append((step, flaw))
        return Loaded(
            0, None, in_sentences(flaws, "no checkpoint is left, so the trial starts from the beginning")
        )

    def find(self, step: int, attempt: int, *, verify: bool = True) -> tuple[Path | None, str | None]:
        """Return the folder of the state that an attempt had saved when it reported a step, and its flaw, if any.

        No folder: it is not there. `verify`: read every byte. A later attempt may have saved the step once more,
        and been killed before it could report that.
        """
        path = self._of(step, attempt)
        flaw = _flaw(path, step) if path is not None and verify else None
        return (path / _STATE if path is not None and path.exists() else None), flaw

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, good or not, rising."""
        return sorted({found.step for found in self._found()})

    def delete(self) -> None:
        """Removes the folder and all checkpoints in it."""
        for found in self._found():
            self._discard(found.path)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _found(self) -> list[_Found]:
        """What bears the name of a checkpoint, newest first."""
        try:
            named = [(path, _NAME.fullmatch(path.name)) for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        found = (_Found(int(name[1]), int(name[2] or 0), path) for path, name in named if name)
        return sorted(found, reverse=True)

    def _of(self, step: int, attempt: int) -> Path | None:
        """The newest checkpoint of a step that this attempt or one before it has saved."""
        of_step = (found.path for found in self._found() if found.step == step)
        return next((path for path in of_step if _attempt(path) <= attempt), None)

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # what cannot be removed now, the next save tries again
            shutil.rmtree(path.rename(self._unfinished()))

    def _unfinished(self) -> Path:
        # Random, so that an attempt taken for dead that still writes does not write into this one's folder.
        return self.folder / f"{_UNFINISHED}{os.urandom(6).hex()}"


# --- what is in a checkpoint ------------------------------------------------------------------------------


def _settle(folder: Path, within: str = "") -> Iterator[tuple[str, int, int]]:
    """Name, size and checksum of each file in the folder; at the end, all of it is on disk."""
    for path in folder.iterdir():
        name = within + path.name
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise CheckpointError(_printable(f"{name}: save may write plain files and folders only"))
        if path.is_dir():
            yield from _settle(path, f"{name}/")
        else:
            yield name, *measure(path, sync=True)
    sync_folder(folder)


def measure(path: Path, sync: bool = False) -> tuple[int, int]:
    """Size and checksum of a file.

    CRC-32, for training stands still meanwhile: it runs at memory speed, several times as fast as BLAKE2 or
    SHA-256, and damage by accident, the only kind there is here, escapes it once in four thousand million.
    """
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
        if sync:
            os.fsync(file.fileno())
    return size, checksum


def _write_manifest(path: Path, step: int, attempt: int, files: dict[str, tuple[int, int]]) -> None:
    """One line of JSON, and below it the checksum of that line."""
    line = json.dumps({"format": _FORMAT, "step": step, "attempt": attempt, "files": files}).encode()
    with path.open("xb") as file:
        file.write(b"%s\n%08x" % (line, zlib.crc32(line)))
        file.flush()
        os.fsync(file.fileno())


def _attempt(path: Path) -> int:
    """Return which attempt saved a checkpoint; 0 where it does not tell, as in those of older versions."""
    try:
        attempt = json.loads((path / _MANIFEST).read_bytes().rpartition(b"\n")[0]).get("attempt", 0)
    except (OSError, ValueError, AttributeError):
        return 0
    return attempt if isinstance(attempt, int) else 0


def _flaw(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, if anything."""
    at = _MANIFEST
    try:
        line, _, checksum = (path / _MANIFEST).read_bytes().rpartition(b"\n")
        if checksum != b"%08x" % zlib.crc32(line):
            return f"{at}: torn"
        manifest = json.loads(line)
        if manifest["format"] != _FORMAT:
            return f"{at}: format {manifest['format']} is not known to this version of thriftune"
        if manifest["step"] != step:
            return f"{at}: is of step {manifest['step']}"
        for at, (size, checksum) in manifest["files"].items():
            found_size, found_checksum = measure(path / _STATE / at)
            if found_size != size:
                return f"{at}: {found_size:,} bytes instead of {size:,}"
            if found_checksum != checksum:
                return f"{at}: checksum differs"
    except FileNotFoundError:
        return f"{at}: missing"
    except OSError as error:
        return f"{at}: {error.strerror}"
    return None


def in_sentences(flaws: list[tuple[int, str]], instead: str) -> tuple[str, ...]:
    """Return a sentence for each step whose checkpoint has a flaw. `instead`: what is done about it."""
    return tuple(_printable(f"checkpoint of step {step} is corrupt ({flaw}); {instead}") for step, flaw in flaws)


def _printable(text: str) -> str:
    """The text with bytes of file names that are no UTF-8 spelled out, so that it can be stored and shown."""
    return text.encode(errors="backslashreplace").decode()


# --- disks ------------------------------------------------------------------------------------------------


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, so that their names are on disk too."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _for_want_of_room(error: BaseException, folder: Path) -> bool:
    """Whether a full disk or quota is behind an error; asked before the unfinished checkpoint is removed."""
    if not isinstance(error, Exception):  # an interrupt stays an interrupt
        return False
    chain: list[BaseException] = [error]
    for link in chain:  # grows as it goes
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        chain += [more for more in (link.__cause__, link.__context__) if more and more not in chain]
    # The writers of NumPy and PyTorch give no errno; they say so, or fail when the last block has been used up.
    mute = isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno is None)
    return mute and ("free space" in str(error) or _bytes_free(folder) == 0)


def _bytes_free(folder: Path) -> int:
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
