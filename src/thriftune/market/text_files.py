"""Reading text files that may be gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from thriftune.errors import SettingError

_GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: str | Path) -> str:
    """Return the text of a UTF-8 file, gzipped or not, without a byte order mark."""
    try:
        data = Path(path).read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise SettingError(f"{path}: is gzipped but incomplete; get the file again") from None
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise SettingError(f"{path}: is not UTF-8 text; give a text file, gzipped or not") from None
