"""How should a trial use its machine? What a user may set about it.

What measures, turns and decides is loaded when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from thriftune.errors import SettingError

if TYPE_CHECKING:  # workers load this room, too, and shall not pay for what they do not need
    from thriftune.system.knobs import CannotTurn as CannotTurn
    from thriftune.system.knobs import Cores as Cores
    from thriftune.system.knobs import GpuPower as GpuPower
    from thriftune.system.knobs import Knob as Knob
    from thriftune.system.knobs import Memory as Memory
    from thriftune.system.knobs import MemoryLimit as MemoryLimit
    from thriftune.system.knobs import Nice as Nice
    from thriftune.system.knobs import Precision as Precision
    from thriftune.system.knobs import Threads as Threads
    from thriftune.system.protocol import Tuner as Tuner
    from thriftune.system.similarity import KMeans as KMeans
    from thriftune.system.similarity import Match as Match
    from thriftune.system.similarity import Nearest as Nearest
    from thriftune.system.similarity import Similarity as Similarity

_HOMES = {
    "protocol": ["Tuner"],
    "knobs": ["CannotTurn", "Cores", "GpuPower", "Knob", "Memory", "MemoryLimit", "Nice", "Precision", "Threads"],
    "similarity": ["KMeans", "Match", "Nearest", "Similarity"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["System", "system_of", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


AIMS = ("time", "energy", "dollars")
PROBING = ("bandit", "grid")


@dataclass(frozen=True, slots=True)
class System:
    """What may be done about how trials use their machine, while they train.

    - `knobs`: what may be turned between steps: "memory" (freed memory stays with the process), "threads" (of
      linear algebra, within the cores that are the trial's), "cores", "nice", "precision" (which changes results),
      or knobs of your own.
    - `options`: what your training code lets vary: by name, the values to try, the usual one first. It reads them
      from `trial.system["name"]` at the beginning of each step.
    - `aim`: what shall be least of a step: "time", "energy", or "dollars" (time, times the cores that it takes).
    - `probing`: "bandit" looks at one knob after the other, and drops at once what is worse; "grid" looks at every
      combination.
    - `similarity`: which past work is like a trial's: "nearest", "kmeans", or your own.
    - `remember`: past studies of the same store are learned from, and learn from this one.
    - `meter`: a command that prints the joules that the machine has used so far.
    """

    knobs: Sequence[str | Knob] = ("memory", "threads")
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    aim: str = "time"
    probing: str = "bandit"
    similarity: str | Similarity = "nearest"
    remember: bool = True
    meter: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, value, may in (("aim", self.aim, AIMS), ("probing", self.probing, PROBING)):
            if value not in may:
                raise SettingError(f"system: {name}: {value!r} must be one of {', '.join(map(repr, may))}")
        if isinstance(self.knobs, str) or not isinstance(self.knobs, Sequence):
            raise SettingError(f"system: knobs: {self.knobs!r} must be a list, such as ['memory', 'threads']")
        if not isinstance(self.options, Mapping):
            raise SettingError(f"system: options: {self.options!r} must be a table, such as {{loaders = [0, 2]}}")
        listed = isinstance(self.meter, Sequence) and not isinstance(self.meter, str)
        if not listed or not all(isinstance(part, str) for part in self.meter):
            raise SettingError(
                f"system: meter: {self.meter!r} must be a list of strings, such as ['my-meter', '-j']"
            )
        if not isinstance(self.remember, bool):
            raise SettingError(f"system: remember: {self.remember!r} must be true or false")
        self._check_parts()

    def _check_parts(self) -> None:
        """Loads what they are in: now, and not with this room."""
        from thriftune.system.checks import check_apart, check_knobs, check_options
        from thriftune.system.similarity import SIMILARITIES

        SIMILARITIES.check(self.similarity)
        check_knobs(self.knobs)
        check_options(self.options)
        check_apart(self.knobs, self.options)

    @property
    def own(self) -> dict[str, Any]:
        """What cannot be written into a study's settings: a user's own objects."""
        knobs = [knob for knob in self.knobs if not isinstance(knob, str)]
        return {"knobs": knobs, "similarity": None if isinstance(self.similarity, str) else self.similarity}

    @property
    def written(self) -> dict[str, Any]:
        """As a study's settings and a study file have it; a user's own objects by their names."""
        return {
            "knobs": [knob if isinstance(knob, str) else knob.name for knob in self.knobs],
            "options": {name: list(values) for name, values in self.options.items()},
            "aim": self.aim,
            "probing": self.probing,
            "similarity": self.similarity if isinstance(self.similarity, str) else type(self.similarity).__name__,
            "remember": self.remember,
            "meter": list(self.meter),
        }


def system_of(given: str | System | Mapping[str, Any] | None) -> System | None:
    """As a user gives it: "auto", "off", a System, or a study file's table. None: off."""
    if given is None or given == "off":
        return None
    if given == "auto":
        return System()
    if isinstance(given, System):
        return given
    if isinstance(given, Mapping):
        may = System.__dataclass_fields__
        if unknown := [name for name in given if name not in may]:
            raise SettingError(f"system: {', '.join(unknown)} is not known; it has {', '.join(may)}")
        return System(**given)
    raise SettingError(f"system: {given!r} must be 'auto', 'off', or tt.System(...)")
