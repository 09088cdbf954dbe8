"""Translate the results of sources to the space of a new study."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thriftune.space.conditions import holds
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.space.values import identity
from thriftune.state.events import Config

NEAR = 0.1
"""A value outside a range is replaced by the nearest bound if its distance is at most this fraction of the
range."""

FEWEST = 3
"""The fewest trials with a value that make a source useful."""

_VALUES_SHOWN = 3
"""The most values of a parameter that a note lists."""


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """The results of a study, at the time when another study was started with them.

    - `trials`: pairs of a configuration and its value, in the unit of the metric. The value of a failed trial is
      None.
    - `id`: the unique id of the study.
    - `variances`: the variance of each value; empty if all values were measured. It is 0 for a measured value. The
      value of a trial that was cut short is an estimate. Its variance is relative to the variance of the measured
      values, in the scale of Bayesian search.
    - `step`: the step at which all values were reported, if too few trials finished to compare final values.
      None if the values are final ones or estimates of these.
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
    """The trials of a source that are valid in the new space, in their order.

    - `configs`, `values`, `variances`: one item for each trial, with the meaning that it has in EarlierStudy.
    - `missing`: parameters of the new space that the source did not vary. Their values in the
      configurations have no meaning.
    - `notes`: a text for each change that the translation made.
    """

    configs: list[dict[str, Any]]
    values: list[float | None]
    missing: frozenset[str]
    notes: list[str]
    variances: list[float]

    @property
    def measured(self) -> int:
        """Return the number of values that were measured and not estimated."""
        pairs = zip(self.values, self.variances, strict=True)
        return sum(value is not None and not variance for value, variance in pairs)


def translate(earlier: EarlierStudy, space: Space) -> TranslatedTrials:
    """Translate the trials of a source to a new space.

    All returned configurations are valid in the new space. Parameters are matched by name. A value does not
    change with the range or scale: a learning rate of 0.01 stays 0.01. A value slightly outside the new range
    becomes the nearest bound. A parameter that the earlier trial did not have gets the middle of its range or
    its first choice. A trial with a value that is not possible in the new space is dropped.
    """
    old = earlier.space
    if not any(name in old for name in space):
        return TranslatedTrials([], [], frozenset(space), ["no parameter in common"], [])
    defaults = {name: _default(parameter) for name, parameter in space.items()}
    configs: list[dict[str, Any]] = []
    values: list[float | None] = []
    variances: list[float] = []
    known: set[str] = set()
    changes: Counter[tuple[str, str]] = Counter()  # the number of changed values, by parameter and change
    dropped: dict[str, list[Any]] = {}  # the impossible value of each dropped trial, by parameter
    all_variances = earlier.variances or (0.0,) * len(earlier.trials)
    for (config, value), variance in zip(earlier.trials, all_variances, strict=True):
        new: dict[str, Any] = {}
        known_here: set[str] = set()
        changes_here: list[tuple[str, str]] = []
        for name, parameter in space.items():
            if not holds(tuple((parameter.when or {}).items()), new):
                continue
            if name not in config or name not in old:
                new[name] = defaults[name]
                if name in old:
                    changes_here.append((name, f"unknown and taken as {_text(defaults[name])}"))
                continue
            translated = _translate_value(config[name], old[name], parameter)
            if translated is None:
                dropped.setdefault(name, []).append(config[name])
                break
            new[name], change = translated
            known_here.add(name)
            if change:
                changes_here.append((name, change))
        else:
            configs.append(new)
            values.append(value)
            variances.append(variance)
            known |= known_here
            changes.update(changes_here)
    missing = {name for name in space if name not in known or _constant(old[name])}
    notes = _notes(old, space, known, changes)
    notes += [_drop_note(name, space[name], values_there) for name, values_there in dropped.items()]
    return TranslatedTrials(configs, values, frozenset(missing), notes, variances)


def _default(parameter: Parameter) -> Any:
    """Return the middle of the parameter's range, or its first choice."""
    return parameter._scale().value(0.0 if isinstance(parameter, Choice) else 0.5)


def _constant(parameter: Parameter) -> bool:
    """Return whether the parameter has a single value."""
    if isinstance(parameter, Choice):
        return len(parameter.choices) == 1
    if isinstance(parameter, Fixed):
        return True
    assert isinstance(parameter, Float | Int)
    return parameter.low == parameter.high


# --- one value --------------------------------------------------------------------------------------------


def _translate_value(value: Any, old: Parameter, new: Parameter) -> tuple[Any, str] | None:
    """Translate a value of the old parameter to the new one.

    Returns the new value and a text on how it differs, which is empty if it does not. Returns None if the value is
    not possible for the new parameter.
    """
    if isinstance(new, Choice):
        identities = [identity(choice) for choice in new.choices]
        return (new.choices[identities.index(identity(value))], "") if identity(value) in identities else None
    if isinstance(new, Fixed) or new.low == new.high:  # type: ignore[attr-defined]
        # The parameter has one value now. The effect of its earlier values then counts as noise.
        only = _default(new)
        return only, "" if identity(value) == identity(only) else f"taken as {_text(only)}, the only one here"
    assert isinstance(new, Float | Int)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        x, change = float(value), ""
    except OverflowError:
        return None
    if isinstance(new, Int) and not x.is_integer():
        x, change = float(math.floor(x + 0.5)), "rounded"
    if not new.low <= x <= new.high:
        bound = new.low if x < new.low else new.high
        if not _is_near(x, bound, old, new):
            return None
        side = "below" if x < bound else "above"
        which = "of 0, which has no logarithm," if new.log and x == 0 else f"{side} {_text(bound)}"
        x, change = bound, f"{which} taken as {_text(bound)}"
    if new.step is not None:
        scale = new._scale()
        nearest = scale.value(scale.unit(x))
        x, change = nearest, change or ("" if abs(nearest - x) <= 1e-6 * new.step else "rounded")
    return (int(x) if isinstance(new, Int) else x), change


def _is_near(x: float, bound: float, old: Parameter, new: Float | Int) -> bool:
    """Return whether a value outside the new range is close enough to its bound.

    The distance is measured on the scale of the new parameter. If only the new scale is logarithmic, a small
    distance on the old, linear scale suffices, too: there, 0 can be close to the new lower bound.
    """
    if new.log and x > 0 and abs(math.log(x) - math.log(bound)) <= NEAR * (math.log(new.high) - math.log(new.low)):
        return True
    if new.log and (x < 0 or getattr(old, "log", False)):
        return False
    span = new.high - new.low
    if new.log and isinstance(old, Float | Int):
        span = min(span, old.high - old.low)
    return abs(x - bound) <= NEAR * span


# --- notes ------------------------------------------------------------------------------------------------


def _notes(old: Space, new: Space, known: set[str], changes: Counter[tuple[str, str]]) -> list[str]:
    """Return the notes about parameters.

    - `known`: the parameters of `new` whose value came from an earlier trial.
    - `changes`: the number of changed values, by parameter and change.
    """
    notes = [
        f"{name}: {count} {'value' if count == 1 else 'values'} {change}"
        for name in new
        for (changed, change), count in changes.items()
        if changed == name
    ]
    varies_now = [name for name in new if name in known and _constant(old[name]) and not _constant(new[name])]
    notes += [f"{name} did not vary there" for name in varies_now]
    if added := [name for name in new if name not in old]:
        notes.append(f"{_are(added)} new here")
    if removed := [name for name in old if name not in new and not _constant(old[name])]:
        notes.append(f"{_are(removed)} gone here, the effect counts as noise")
    return notes


def _drop_note(name: str, parameter: Parameter, values: list[Any]) -> str:
    """Return the note about trials that were dropped.

    `values`: the values of the parameter that are not possible in the new space.
    """
    trials = f"{len(values)} {'trial' if len(values) == 1 else 'trials'} dropped"
    shown = list(dict.fromkeys(map(_text, values)))
    if len(shown) > _VALUES_SHOWN:
        shown = [*shown[: _VALUES_SHOWN - 1], f"{len(shown) - _VALUES_SHOWN + 1} more"]
    where = "not among the choices here"
    if isinstance(parameter, Float | Int):
        where = f"outside {_text(parameter.low)} to {_text(parameter.high)}"
    return f"{trials}: {name} {_are(shown)} {where}"


def _are(things: Sequence[str]) -> str:
    """Return a text such as "a is" or "a, b and c are"."""
    *first, last = things
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
