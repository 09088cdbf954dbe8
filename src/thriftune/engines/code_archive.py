"""Pack the files of a project into one archive, and read and check such an archive.

An archive is a zip file. It is named by a hash of its entries, and not of its bytes, which differ between versions
of zlib. Equal projects therefore have the same name on every machine, and the reader can check each archive.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MOST_BYTES = 100_000_000
"""The largest project. Each new machine fetches it, so larger files should be given as data."""

MOST_FILES = 20_000
"""The most entries of an archive. Unpacking this many takes about two seconds."""

FILE, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120777
"""The only modes of entries."""

_FILE_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every entry. It is constant, so that equal files give an equal archive."""

_LONGEST_LINK = 4096


class ArchiveError(ValueError):
    """The data are no archive of a project, or an archive that must not be unpacked. The message says why."""


class Entry(NamedTuple):
    """A file or a symbolic link of a project.

    - `mode`: FILE, EXECUTABLE or LINK.
    - `content`: the target of a link, relative to the folder of the link.
    """

    mode: int
    content: bytes


def content_hash(entries: Mapping[str, Entry]) -> str:
    """Return the hash that names the archive of these entries: 64 hexadecimal digits."""
    total = hashlib.sha256()
    for name in sorted(entries):
        mode, content = entries[name]
        encoded = name.encode()
        total.update(b"%o %d %d\n" % (mode, len(encoded), len(content)))
        total.update(encoded)
        total.update(content)
    return total.hexdigest()


def pack(entries: Mapping[str, Entry]) -> bytes:
    """Return the archive of these entries. Raise ArchiveError if unpack() would refuse it."""
    _check(entries)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries):
            mode, content = entries[name]
            info = zipfile.ZipInfo(name, _FILE_DATE)
            info.create_system = 3  # Unix: the upper half of external_attr is the mode
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, Entry]:
    """Return the entries of an archive, by their paths relative to the project.

    Raise ArchiveError for data that pack() does not write. What is returned can be written into an empty folder
    without leaving it: see _check().
    """
    entries = _read(data)
    _check(entries)
    return entries


def unpack_wheel(data: bytes) -> dict[str, Entry]:
    """Return the files of a wheel as they would be in site-packages. Raise ArchiveError if that is not possible.

    Its programs, headers and data files are left out, as they would not be in site-packages either.
    """
    entries = {}
    for name, content in _read(data).items():
        parts = name.split("/")
        if parts[0].endswith(".data") and len(parts) > 2:
            if parts[1] not in ("purelib", "platlib"):
                continue
            parts = parts[2:]
        entries["/".join(parts)] = Entry(FILE, content.content)
    _check(entries)
    return entries


def _read(data: bytes) -> dict[str, Entry]:
    """Return the entries of a zip file without its folders. They are not checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if not info.orig_filename.endswith("/")]
            _check_sizes(infos)
            entries = {info.orig_filename: Entry(info.external_attr >> 16, archive.read(info)) for info in infos}
    except ArchiveError:
        raise
    # zipfile raises many kinds of errors for damaged data.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, IndexError) as error:
        raise ArchiveError(f"is not a complete zip file ({error})") from None
    if len(entries) < len(infos):
        raise ArchiveError("contains two files of one name")
    return entries


def _check_sizes(infos: Iterable[zipfile.ZipInfo]) -> None:
    """Raise ArchiveError for an archive whose files would use too much memory. Called before they are read."""
    sizes = [info.file_size for info in infos]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise ArchiveError(f"contains {len(sizes)} files with {sum(sizes)} bytes, which is too much")
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"contains {info.orig_filename!r} in an unknown format")


def _check(entries: Mapping[str, Entry]) -> None:
    """Raise ArchiveError unless all entries stay within the folder into which they are written.

    No entry is below a link. A link's target has ".." only at its beginning: those lead through real folders, and
    cannot leave the project if they are few enough. The rest of the target may lead through other links, which do
    not leave the project either.
    """
    for name, (mode, content) in entries.items():
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise ArchiveError(f"contains the path {name!r}, which is not a path below a folder")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if any(each in entries for each in above):
            raise ArchiveError(f"contains {name!r} below something that is not a folder")
        if mode not in (FILE, EXECUTABLE, LINK):
            raise ArchiveError(f"contains {name!r}, which is neither a file nor a link")
        if mode == LINK and not _stays_inside(content, depth=len(parts) - 1):
            raise ArchiveError(f"contains the link {name!r}, which leaves the project")


def _stays_inside(target: bytes, depth: int) -> bool:
    """Return whether a link in a folder of this depth leads to a place within the project."""
    try:
        text = target.decode()
    except UnicodeDecodeError:
        return False
    if not text or "\0" in text or len(target) > _LONGEST_LINK or posixpath.isabs(text):
        return False
    parts = text.split("/")
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return up <= depth and ".." not in parts[up:]
