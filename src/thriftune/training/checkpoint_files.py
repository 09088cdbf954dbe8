"""The checkpoints of a trial in a local folder: atomic, with checksums, the newest ones and the best.

    step-0000000007/manifest     the attempt that saved it, the size and checksum of every file, and the
                                 checksum of the manifest itself
    step-0000000007/state/...    the files that the training function has written
    step-0000000007.1/...        step 7 saved once more; the highest number is the newest. It may be partial: saved
                                 in the middle of the step after step 7, as its manifest says
    .unfinished-.../             being written or removed; never read, and removed by the next save

A checkpoint gets its name by a rename after all of it is on disk, and is renamed again before it is removed. So a
kill at any time leaves only complete checkpoints under the names of steps. The checksums detect later damage by
disks, file systems and people.

Only one process at a time may write a trial's checkpoints; any number may read them at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
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
    """The disk has no room for a checkpoint. The earlier ones are intact."""


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """The newest intact checkpoint; step 0 and no folder without one.

    - `passed_over`: a sentence for each newer checkpoint that is damaged.
    - `partial`: it was saved in the middle of the step after `step`.
    """

    step: int
    folder: Path | None
    passed_over: tuple[str, ...]
    partial: bool = False


class _NamedFolder(NamedTuple):
    step: int
    repeat: int  # how often the step had been saved before
    path: Path


class Checkpoints:
    """All checkpoints of one trial; the first save creates their folder."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        # A trial that is killed between saving a step and reporting it resumes from the previous checkpoint. With
        # a single checkpoint, it would lose everything.
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
        partial: bool = False,
        also_keep: Collection[tuple[int, int]] = (),
    ) -> Path:
        """Save a checkpoint of the step, and return the folder of its state once it is on disk.

        `write(folder)` writes the state. An error that it raises is raised again; if the disk is full,
        DiskFullError is raised. The earlier checkpoints are then unchanged. After a save, the newest `keep`
        checkpoints up to `step` remain. Those of later steps are removed: an attempt that was killed could not
        report them.

        - `attempt`: the attempt that saves.
        - `partial`: the state is of the middle of the step after `step`. It does not replace the checkpoint of
          `step` itself.
        - `also_keep`: step and attempt of other checkpoints to keep, which are not partial.
        """
        unfinished = self._unfinished()
        try:
            _make_folder(self.folder)
            for leftover in self.folder.glob(f"{_UNFINISHED}*"):  # first, to free their room
                shutil.rmtree(leftover, ignore_errors=True)
            state = unfinished / _STATE
            state.mkdir(parents=True)
            write(state)
            # All of these must be synced, so that the checkpoint survives a power cut once its step is reported:
            # the files and their folders (in _sync_files), the manifest, the folder of the manifest, and, after
            # the rename, the trial's folder. Removals need no sync: it does no harm if they are undone.
            files = {name: (size, checksum) for name, size, checksum in _sync_files(state)}
            if not files:
                raise CheckpointError(f"save wrote no file into {state}, its folder for step {step}")
            _write_manifest(unfinished / _MANIFEST, step, attempt, partial, files)
            sync_folder(unfinished)
            earlier = self._named_folders()
            repeat = 1 + max((each.repeat for each in earlier if each.step == step), default=-1)
            path = unfinished.rename(self.folder / (f"step-{step:010d}" + (f".{repeat}" if repeat else "")))
            sync_folder(self.folder)
        except BaseException as error:
            disk_full = disk_full_error(error, self.folder, step)
            shutil.rmtree(unfinished, ignore_errors=True)
            if disk_full is not None:
                raise disk_full from error
            raise
        kept = {(step, partial)}
        kept_paths = [self._path_of(*each) for each in also_keep]
        for each, is_partial in _with_partial(earlier, step):  # newest first
            candidate = each.step < step or (each.step == step and partial and not is_partial)
            if candidate and (each.step, is_partial) not in kept and len(kept) < self.keep:
                kept.add((each.step, is_partial))
            elif each.path not in kept_paths:
                self._remove(each.path)
        return path / _STATE

    def load(self, at_most: int | None = None) -> LoadedCheckpoint:
        """Return the newest intact checkpoint, of step `at_most` or an earlier one.

        Files that were added to it later do no harm: a restore function may unpack archives in its folder.
        """
        flaws: list[tuple[int, str]] = []
        for step, _, path in self._named_folders():
            if at_most is not None and step > at_most:
                continue
            flaw = _flaw(path, step)
            if flaw is None:
                partial = _about(path)[1]
                return LoadedCheckpoint(step, path / _STATE, in_sentences(flaws, f"using step {step}"), partial)
            if not path.exists():  # removed while it was read, so a newer one exists
                return self.load(at_most)
            flaws.append((step, flaw))
        return LoadedCheckpoint(
            0, None, in_sentences(flaws, "no other checkpoint exists, so the trial starts from the beginning")
        )

    def find(self, step: int, attempt: int, *, verify: bool = True) -> tuple[Path | None, str | None]:
        """Return the folder of the state that an attempt saved and reported for a step, and its flaw, if any.

        The folder is None if the checkpoint does not exist. `verify`: read and check every byte. A checkpoint of
        the step by a later attempt is not returned: that attempt may not have reported it. Neither is a partial
        one, which does not belong to the step's metrics.
        """
        path = self._path_of(step, attempt)
        flaw = _flaw(path, step) if path is not None and verify else None
        return (path / _STATE if path is not None and path.exists() else None), flaw

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, intact or not, in increasing order."""
        return sorted({each.step for each in self._named_folders()})

    def delete(self) -> None:
        """Remove the folder and all checkpoints in it."""
        for each in self._named_folders():
            self._remove(each.path)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _named_folders(self) -> list[_NamedFolder]:
        """Return the folders that have the name of a checkpoint, the newest first."""
        try:
            names = [(path, _NAME.fullmatch(path.name)) for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        folders = (_NamedFolder(int(name[1]), int(name[2] or 0), path) for path, name in names if name)
        return sorted(folders, reverse=True)

    def _path_of(self, step: int, attempt: int) -> Path | None:
        """Return the newest checkpoint of a step by this attempt or an earlier one that is not partial."""
        of_step = ((each.path, *_about(each.path)) for each in self._named_folders() if each.step == step)
        return next((path for path, by, partial in of_step if by <= attempt and not partial), None)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # the next save tries again to remove it
            shutil.rmtree(path.rename(self._unfinished()))

    def _unfinished(self) -> Path:
        # Random, so that a lost attempt that still runs does not write into the folder of this one.
        return self.folder / f"{_UNFINISHED}{os.urandom(6).hex()}"


# --- files of a checkpoint ------------------------------------------------------------------------------


def _sync_files(folder: Path, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield the name, size and checksum of each file in the folder; afterwards, all of it is on disk.

    `prefix`: put before each name.
    """
    for path in folder.iterdir():
        name = prefix + path.name
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise CheckpointError(_printable(f"{name}: save must write only plain files and folders"))
        if path.is_dir():
            yield from _sync_files(path, f"{name}/")
        else:
            yield name, *measure(path, sync=True)
    sync_folder(folder)


def measure(path: Path, sync: bool = False) -> tuple[int, int]:
    """Return the size and the CRC-32 checksum of a file.

    Training waits for it, and CRC-32 is several times as fast as BLAKE2 or SHA-256. It misses accidental damage
    with a probability of one in four billion.
    """
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
        if sync:
            os.fsync(file.fileno())
    return size, checksum


def _write_manifest(path: Path, step: int, attempt: int, partial: bool, files: dict[str, tuple[int, int]]) -> None:
    """Write the manifest: one line of JSON, and below it the checksum of that line."""
    about = {"format": _FORMAT, "step": step, "attempt": attempt, "partial": partial, "files": files}
    line = json.dumps(about).encode()
    with path.open("xb") as file:
        file.write(b"%s\n%08x" % (line, zlib.crc32(line)))
        file.flush()
        os.fsync(file.fileno())


def _about(path: Path) -> tuple[int, bool]:
    """Return the attempt that saved a checkpoint, and whether it is partial.

    Manifests of older versions lack both; this is as if attempt 0 had saved a whole step.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes().rpartition(b"\n")[0])
        attempt, partial = manifest.get("attempt", 0), manifest.get("partial", False)
    except (OSError, ValueError, AttributeError):
        return 0, False
    return attempt if isinstance(attempt, int) else 0, partial is True


def _with_partial(folders: Sequence[_NamedFolder], saved_step: int) -> Iterator[tuple[_NamedFolder, bool]]:
    """Yield each folder and whether it is partial. That counts, and is read, only for steps saved repeatedly."""
    of_step = Counter([saved_step, *(each.step for each in folders)])
    for each in folders:
        yield each, of_step[each.step] > 1 and _about(each.path)[1]


def _flaw(path: Path, step: int) -> str | None:
    """Return what is wrong with a checkpoint; None if it is intact."""
    file = _MANIFEST
    try:
        line, _, checksum = (path / _MANIFEST).read_bytes().rpartition(b"\n")
        if checksum != b"%08x" % zlib.crc32(line):
            return f"{file}: incomplete"
        manifest = json.loads(line)
        if manifest["format"] != _FORMAT:
            return f"{file}: this version of thriftune does not know format {manifest['format']}"
        if manifest["step"] != step:
            return f"{file}: belongs to step {manifest['step']}"
        for file, (size, checksum) in manifest["files"].items():
            actual_size, actual_checksum = measure(path / _STATE / file)
            if actual_size != size:
                return f"{file}: {actual_size:,} bytes instead of {size:,}"
            if actual_checksum != checksum:
                return f"{file}: checksum differs"
    except FileNotFoundError:
        return f"{file}: missing"
    except OSError as error:
        return f"{file}: {error.strerror}"
    return None


def in_sentences(flaws: list[tuple[int, str]], instead: str) -> tuple[str, ...]:
    """Return a sentence for each step whose checkpoint has a flaw. `instead`: how the sentence ends."""
    return tuple(_printable(f"checkpoint of step {step} is corrupt ({flaw}); {instead}") for step, flaw in flaws)


def _printable(text: str) -> str:
    """Escape bytes of file names that are not UTF-8, so that the text can be stored and shown."""
    return text.encode(errors="backslashreplace").decode()


# --- disks ------------------------------------------------------------------------------------------------


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk; the contents of its files are not included."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, and write their names to disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def disk_full_error(error: BaseException, folder: Path, step: int) -> DiskFullError | None:
    """Return the error to raise if a full disk caused this one while a checkpoint was written, else None.

    Called while the unfinished checkpoint exists.
    """
    if not _is_disk_full(error, folder):
        return None
    free = _bytes_free(folder)
    return DiskFullError(
        f"{folder}: no room for the checkpoint of step {step} ({free:,} bytes are free, or less with a quota); "
        f"free some room, or keep checkpoints on a larger disk. The earlier checkpoints are intact."
    )


def _is_disk_full(error: BaseException, folder: Path) -> bool:
    """Return whether a full disk or quota caused the error; called while the unfinished checkpoint exists."""
    if not isinstance(error, Exception):  # such as KeyboardInterrupt
        return False
    chain: list[BaseException] = [error]
    for link in chain:  # the loop extends it
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        chain += [each for each in (link.__cause__, link.__context__) if each and each not in chain]
    # NumPy and PyTorch give no errno. Their error mentions the free space, or no byte is free.
    without_errno = isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno is None)
    return without_errno and ("free space" in str(error) or _bytes_free(folder) == 0)


def _bytes_free(folder: Path) -> int:
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
