"""What do past studies tell? What one knew, and how that reads in the space of another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.space.values import identity
from thriftune.state.events import Config

NEAR = 0.1
"""A value outside a range counts as the range's end if it is no further from it than this part of the span."""

FEWEST = 3
"""Trials with a value that a study must have to tell anything."""

_VALUES_TOLD = 3


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """What a study knew when another one started from it.

    - `trials`: a configuration and its value each, in the units of the metric. None: the trial failed.
    - `id`: the study's; unlike its name, no other study has it.
    - `variances`: one for each trial, or none at all if every value is measured. 0: the value is measured. Else
      the trial was cut and the value is a guess; the variance is relative to that of the measured values, as
      Bayesian search scales them.
    - `step`: the step that all values are of, where too few trials finished to compare their final values. None:
      values are final ones, or guesses of them.
    """

    study: str
    space: Space
    metric: str
    maximize: bool
    trials: tuple[tuple[Config, float | None], ...]
    id: str = ""
    variances: tuple[float, ...] = ()
    step: int | None = None


@dataclass(frozen=True, slots=True)
class TranslatedTrials:
    """An earlier study's trials, as many as have a place in the new space, in their order.

    - `configs`, `values`, `variances`: one for each trial, as in EarlierStudy.
    - `missing`: parameters of the new space that the earlier study did not vary. What the configurations have for
      them says nothing.
    - `notes`: what could not be taken unchanged; empty if all could.
    """

    configs: list[dict[str, Any]]
    values: list[float | None]
    missing: frozenset[str]
    notes: list[str]
    variances: list[float]

    @property
    def measured(self) -> int:
        """The number of values that are neither missing nor guesses."""
        return sum(v is not None and not guess for v, guess in zip(self.values, self.variances, strict=True))


def translate(earlier: EarlierStudy, space: Space) -> TranslatedTrials:
    """Translates the trials of an earlier study to a new space; every configuration returned is valid there.

    Parameters are matched by name, and a value stays what it is, whatever the ranges and scales: lr 0.01 is lr
    0.01. One a little outside the new range counts as the range's end. What an earlier trial did not have is
    filled in, with the middle of a range or the first choice. A trial with a value that has no place is dropped.
    """
    old = earlier.space
    if not any(name in old for name in space):
        return TranslatedTrials([], [], frozenset(space), ["no parameter in common"], [])
    fillings = {name: _filling(parameter) for name, parameter in space.items()}
    configs: list[dict[str, Any]] = []
    values: list[float | None] = []
    variances: list[float] = []
    known: set[str] = set()
    done: Counter[tuple[str, str]] = Counter()  # what was done to the values of a parameter
    dropped: dict[str, list[Any]] = {}  # by the parameter that was to blame, its value in each trial
    all_variances = earlier.variances or (0.0,) * len(earlier.trials)
    for (config, value), variance in zip(earlier.trials, all_variances, strict=True):
        new: dict[str, Any] = {}
        own: set[str] = set()
        doing: list[tuple[str, str]] = []
        for name, parameter in space.items():
            if not _active(parameter, new):
                continue
            if name not in config or name not in old:
                new[name] = fillings[name]
                doing += [(name, f"unknown and taken as {_text(fillings[name])}")] if name in old else []
                continue
            found = _across(config[name], old[name], parameter)
            if found is None:
                dropped.setdefault(name, []).append(config[name])
                break
            new[name], how = found
            own.add(name)
            doing += [(name, how)] if how else []
        else:
            configs.append(new)
            values.append(value)
            variances.append(variance)
            known |= own
            done.update(doing)
    missing = {name for name in space if name not in known or _constant(old[name])}
    notes = [*_notes(old, space, known, done), *(_drop_note(name, space[name], dropped[name]) for name in dropped)]
    return TranslatedTrials(configs, values, frozenset(missing), notes, variances)


def _active(parameter: Parameter, config: Config) -> bool:
    # An inactive parameter is not in the configuration; Ellipsis stands for it, as no value can be one.
    return all(config.get(other, ...) in allowed for other, allowed in (parameter.when or {}).items())


def _filling(parameter: Parameter) -> Any:
    return parameter._axis().value(0.0 if isinstance(parameter, Choice) else 0.5)


def _constant(parameter: Parameter) -> bool:
    if isinstance(parameter, Choice):
        return len(parameter.choices) == 1
    if isinstance(parameter, Fixed):
        return True
    assert isinstance(parameter, Float | Int)
    return parameter.low == parameter.high


# --- one value --------------------------------------------------------------------------------------------


def _across(value: Any, old: Parameter, new: Parameter) -> tuple[Any, str] | None:
    """The value as the new parameter has it, and what was done to it, if anything; None: it has no place there."""
    if isinstance(new, Choice):
        identities = [identity(choice) for choice in new.choices]
        return (new.choices[identities.index(identity(value))], "") if identity(value) in identities else None
    if isinstance(new, Fixed) or new.low == new.high:  # type: ignore[attr-defined]
        # Much like gone: what the values did there counts as noise.
        only = _filling(new)
        return only, "" if identity(value) == identity(only) else f"taken as {_text(only)}, the only one here"
    assert isinstance(new, Float | Int)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        x, how = float(value), ""
    except OverflowError:
        return None
    if isinstance(new, Int) and not x.is_integer():
        x, how = float(math.floor(x + 0.5)), "rounded"
    if not new.low <= x <= new.high:
        end = new.low if x < new.low else new.high
        if not _near(x, end, old, new):
            return None
        which = "below" if x < end else "above"
        what = "of 0, which has no logarithm," if new.log and x == 0 else f"{which} {_text(end)}"
        x, how = end, f"{what} taken as {_text(end)}"
    if new.step is not None:
        axis = new._axis()
        near = axis.value(axis.unit(x))
        x, how = near, how or ("" if abs(near - x) <= 1e-6 * new.step else "rounded")
    return (int(x) if isinstance(new, Int) else x), how


def _near(x: float, end: float, old: Parameter, new: Float | Int) -> bool:
    """Whether a value outside the new range is close enough to its end.

    On the new scale; or, where only that one is a logarithm, on the old one, on which 0 is as good a value as any
    and may lie right beside the smallest one here.
    """
    if new.log and x > 0 and abs(math.log(x) - math.log(end)) <= NEAR * (math.log(new.high) - math.log(new.low)):
        return True
    if new.log and (x < 0 or getattr(old, "log", False)):
        return False
    span = new.high - new.low
    if new.log and isinstance(old, Float | Int):
        span = min(span, old.high - old.low)
    return abs(x - end) <= NEAR * span


# --- what is said of it -----------------------------------------------------------------------------------


def _notes(old: Space, new: Space, known: set[str], done: Counter[tuple[str, str]]) -> list[str]:
    notes = [
        f"{name}: {count} {'value' if count == 1 else 'values'} {how}"
        for name in new
        for (of, how), count in done.items()
        if of == name
    ]
    varies_now = [name for name in new if name in known and _constant(old[name]) and not _constant(new[name])]
    notes += [f"{name} did not vary there" for name in varies_now]
    if added := [name for name in new if name not in old]:
        notes.append(f"{_are(added)} new here")
    if gone := [name for name in old if name not in new and not _constant(old[name])]:
        notes.append(f"{_are(gone)} gone here, the effect counts as noise")
    return notes


def _drop_note(name: str, parameter: Parameter, values: list[Any]) -> str:
    trials = f"{len(values)} {'trial' if len(values) == 1 else 'trials'} dropped"
    told = list(dict.fromkeys(map(_text, values)))
    if len(told) > _VALUES_TOLD:
        told = [*told[: _VALUES_TOLD - 1], f"{len(told) - _VALUES_TOLD + 1} more"]
    where = "not among the choices here"
    if isinstance(parameter, Float | Int):
        where = f"outside {_text(parameter.low)} to {_text(parameter.high)}"
    return f"{trials}: {name} {_are(told)} {where}"


def _are(things: Sequence[str]) -> str:
    *first, last = things
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
