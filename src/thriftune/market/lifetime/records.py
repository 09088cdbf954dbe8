"""Recorded lifetimes of machines, read from a file, with fits by machine type."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thriftune.errors import SettingError
from thriftune.market.lifetime.base import Array
from thriftune.market.lifetime.phases import Phases
from thriftune.market.lifetime.pooling import fit_lifetime
from thriftune.market.text_files import read_text

COLUMNS = ("machine_type", "zone", "lifetime_s", "end_kind", "hour_of_day")
END_KINDS = {"preempted": True, "stop": False}  # whether the provider ended the machine
NIGHT_START, NIGHT_END = 20, 8  # hours of the day in the zone's local time, as in SciSpot

Strings = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """A record of machine lifetimes.

    Each field is an array with one element per machine.
    """

    type: Strings
    zone: Strings
    night: npt.NDArray[np.bool_]  # whether the machine started at night
    hours: Array  # how long the machine was observed
    ended: npt.NDArray[np.bool_]  # true if the provider preempted the machine, false if its user stopped it

    @classmethod
    def read(cls, path: str | Path) -> Lifetimes:
        """Read a CSV file, gzipped or not.

        Its columns are machine_type, zone, lifetime_s (seconds), end_kind (`preempted` or `stop`) and hour_of_day
        (0 to 24, when the machine started).
        """
        rows = list(_rows(Path(path)))
        if not rows:
            raise SettingError(f"{path}: has a header but no lifetime; give a file with at least one row")
        types, zones, nights, hours, ended = zip(*rows, strict=True)
        return cls(np.array(types), np.array(zones), np.array(nights), np.array(hours), np.array(ended))

    def __len__(self) -> int:
        return len(self.hours)

    @property
    def types(self) -> list[str]:
        """Return the distinct machine types, sorted.

        Numbers in their names are in numeric order.
        """
        return sorted({str(name) for name in self.type}, key=_natural_key)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Lifetimes:
        """Return the machines for which `chosen` is true."""
        arrays = {name: getattr(self, name)[chosen] for name in ("type", "zone", "night", "hours", "ended")}
        return replace(self, **arrays)

    def fit(self, type: str, zone: str | None = None, night: bool | None = None) -> Phases:
        """Fit the default distribution to the lifetimes of a machine type.

        `zone` and `night` select the machines in that zone, and those started at night (true) or by day (false).
        Other machines of the type, and other sizes of its family, are added at a low weight.
        """
        if type not in self.type:
            raise SettingError(f"no lifetime of a {type} is recorded; recorded types are {', '.join(self.types)}")
        if zone is not None and zone not in self.zone:
            zones = ", ".join(sorted({str(name) for name in self.zone}))
            raise SettingError(f"no lifetime in the zone {zone!r} is recorded; recorded zones are {zones}")
        of_type = self.type == type
        own = of_type.copy()
        if zone is not None:
            own &= self.zone == zone
        if night is not None:
            own &= self.night == night
        family = np.array([family_of(str(name)) == family_of(type) for name in self.type])
        masks = [own, of_type & ~own, family & ~of_type]
        if not own.any():
            masks = masks[1:]
        first, *others = ((self.hours[mask], self.ended[mask]) for mask in masks)
        return fit_lifetime(*first, relatives=others)


def family_of(type: str) -> str:
    """Return a type's name without its size.

    The family of n1-highcpu-16 is n1-highcpu, and that of c7i.large is c7i.
    """
    return re.split(r"[.]|-\d+$", type)[0]


def _rows(path: Path) -> Iterator[tuple[str, str, bool, float, bool]]:
    text = read_text(path)
    if not text.strip():
        raise SettingError(f"{path}: is empty; its first line must name the columns {', '.join(COLUMNS)}")
    table = csv.DictReader(io.StringIO(text))
    if missing := [name for name in COLUMNS if name not in (table.fieldnames or ())]:
        raise SettingError(
            f"{path}: the columns {', '.join(missing)} are missing; the file needs {', '.join(COLUMNS)}"
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
        if row["end_kind"] not in END_KINDS:
            raise SettingError(f"{where}: end_kind is {row['end_kind']!r}; it must be {' or '.join(END_KINDS)}")
        night = hour >= NIGHT_START or hour < NIGHT_END
        yield row["machine_type"], row["zone"], night, hours, END_KINDS[row["end_kind"]]


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n1-highcpu-2 before n1-highcpu-16."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
