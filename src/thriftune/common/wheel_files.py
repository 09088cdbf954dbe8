"""Write wheels: zip files that pip installs, and that Python can import from when they are unpacked."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

_FILE_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in a wheel. It is constant, so that wheels of the same files have the same bytes."""


def write_wheel_file(path: Path, info: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Write a wheel, and replace one of this path. If this fails, no incomplete file of that name exists.

    - `info`: the name of its folder of metadata, such as "thriftune-1.0.dist-info".
    - `files`: (path in the wheel, content) of each file but RECORD, which is added.
    """
    unfinished = path.with_suffix(".unfinished")
    record = []
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, content in files:
                wheel.writestr(zipfile.ZipInfo(name, _FILE_DATE), content, zipfile.ZIP_DEFLATED)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                record.append(f"{name},sha256={digest},{len(content)}\n")
            record.append(f"{info}/RECORD,,\n")
            wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", _FILE_DATE), "".join(record), zipfile.ZIP_DEFLATED)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
