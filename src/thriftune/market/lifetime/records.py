"""Which machines lived how long? A record of lifetimes, read from a file, and who is whose relative."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thriftune.errors import SettingError
from thriftune.market.lifetime.base import Array
from thriftune.market.lifetime.phases import Phases
from thriftune.market.lifetime.pooling import fit_lifetime

COLUMNS = ("machine_type", "zone", "lifetime_s", "end_kind", "hour_of_day")
ENDS = {"preempted": True, "stop": False}
NIGHT = (20, 8)  # from, to: SciSpot's, in the zone's own time

Words = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Each an array, a machine each."""

    type: Words
    zone: Words
    night: npt.NDArray[np.bool_]  # it was started at night
    hours: Array
    ended: npt.NDArray[np.bool_]  # by the provider; else its owner stopped it

    @classmethod
    def read(cls, path: str | Path) -> Lifetimes:
        """A CSV file, also one that is packed by gzip, with the columns machine_type, zone, lifetime_s, end_kind
        (`preempted` or `stop`) and hour_of_day (0 to 24, in which it was started)."""
        rows = list(_rows(Path(path)))
        if not rows:
            raise SettingError(f"{path}: there is no lifetime in it")
        types, zones, nights, hours, ended = zip(*rows, strict=True)
        return cls(np.array(types), np.array(zones), np.array(nights), np.array(hours), np.array(ended))

    def __len__(self) -> int:
        return len(self.hours)

    @property
    def types(self) -> list[str]:
        return sorted({str(each) for each in self.type}, key=_natural)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Lifetimes:
        kept = {name: getattr(self, name)[chosen] for name in ("type", "zone", "night", "hours", "ended")}
        return replace(self, **kept)

    def fit(self, type: str, zone: str | None = None, night: bool | None = None) -> Phases:
        """Of machines of that type, in that zone, started at that time of day. Others of the type, and others of
        its family, count a little."""
        if type not in self.type:
            raise SettingError(f"no lifetime of a {type} is recorded; there are {', '.join(self.types)}")
        if zone is not None and zone not in self.zone:
            zones = ", ".join(sorted({str(each) for each in self.zone}))
            raise SettingError(f"no lifetime in the zone {zone!r} is recorded; there are some in {zones}")
        of_type = self.type == type
        own = of_type.copy()
        if zone is not None:
            own &= self.zone == zone
        if night is not None:
            own &= self.night == night
        family = np.array([family_of(str(each)) == family_of(type) for each in self.type])
        degrees = [own, of_type & ~own, family & ~of_type]
        if not own.any():
            degrees = degrees[1:]
        first, *others = ((self.hours[each], self.ended[each]) for each in degrees)
        return fit_lifetime(*first, relatives=others)


def family_of(type: str) -> str:
    """What machines that differ in size alone have in common: n1-highcpu of n1-highcpu-16, c7i of c7i.large."""
    return re.split(r"[.]|-\d+$", type)[0]


def _rows(path: Path) -> Iterator[tuple[str, str, bool, float, bool]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (EOFError, zlib.error):
        raise SettingError(f"{path}: is gzipped, but not whole; get it again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    if not text.strip():
        raise SettingError(f"{path}: is empty")
    table = csv.DictReader(io.StringIO(text))
    if missing := [name for name in COLUMNS if name not in (table.fieldnames or ())]:
        raise SettingError(
            f"{path}: there is no column {' or '.join(missing)}; there must be {', '.join(COLUMNS)}"
        )
    for row in table:
        where = f"{path}, line {table.line_num}"
        try:
            hours, hour = float(row["lifetime_s"]) / 3600.0, float(row["hour_of_day"])
        except (TypeError, ValueError):
            raise SettingError(f"{where}: lifetime_s and hour_of_day must be numbers, not {row}") from None
        if not (np.isfinite(hours) and hours >= 0.0):
            raise SettingError(f"{where}: lifetime_s is {row['lifetime_s']}; it must be finite and not negative")
        if not 0.0 <= hour <= 24.0:
            raise SettingError(f"{where}: hour_of_day is {row['hour_of_day']}; it must be from 0 to 24")
        for name in ("machine_type", "zone"):
            if not (row[name] or "").strip():
                raise SettingError(f"{where}: {name} is empty")
        if row["end_kind"] not in ENDS:
            raise SettingError(f"{where}: end_kind is {row['end_kind']!r}; it must be {' or '.join(ENDS)}")
        yield row["machine_type"], row["zone"], hour >= NIGHT[0] or hour < NIGHT[1], hours, ENDS[row["end_kind"]]


def _natural(name: str) -> list[tuple[int, str]]:
    """So that 16 comes after 2."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
