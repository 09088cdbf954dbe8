"""What may vary? A space of named parameters, their conditions, and the map to the unit cube and back."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thriftune.errors import SpaceError
from thriftune.space.axes import Axis
from thriftune.space.conditions import (
    Between,
    Conditions,
    checked_whens,
    classes,
    holds,
    in_words,
    quick,
    when_json,
    when_read,
)
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.values import copy_of, identity, is_nested, value_from_json, value_to_json

_KINDS: dict[str, type[Parameter]] = {"float": Float, "int": Int, "choice": Choice, "fixed": Fixed}


# --- the space --------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A named axis with what it depends on and where its columns start."""

    name: str
    axis: Axis
    conditions: Conditions
    start: int


class Space(Mapping[str, Parameter]):
    """Named parameters in order, checked: a Space that exists can be searched.

    A configuration is a dict of the active parameters, in the order of the space. A parameter is active if
    all those its `when` names are active and have a value it asks for. A space never changes once built.
    """

    names: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    searched: tuple[str, ...]
    """Those of the names whose value is searched: all but fixed values."""
    dimensions: int
    """Columns of the unit cube: one a number, one a choice of each Choice, none a fixed value."""
    columns: Mapping[str, slice]
    axes: Mapping[str, Axis]

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """`parameters`: a Float, Int or Choice each, or a fixed value, but no list or tuple. Raises SpaceError."""
        if not isinstance(parameters, Mapping):
            raise SpaceError(f"a space maps names to parameters, which {parameters!r} does not; use a dict")
        if not parameters:
            raise SpaceError("the space is empty; name at least one Float, Int or Choice")
        checked: dict[str, Parameter] = {}
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not name:
                raise SpaceError(f"{name!r} cannot name a parameter; use a string that is not empty")
            if isinstance(parameter, type):
                raise SpaceError(f"{name}: {parameter!r} is no parameter; use Float, Int, Choice or a value")
            if is_nested(parameter):
                raise SpaceError(
                    f"{name}: a {type(parameter).__name__} is no parameter; write tt.Choice([...]) to choose from "
                    "it, tt.Float(low, high) or tt.Int(low, high) for a range, or "
                    f"tt.Choice([{'(...)' if isinstance(parameter, tuple) else '[...]'}]) for the "
                    f"{type(parameter).__name__} itself"
                )
            made = parameter if isinstance(parameter, Parameter) else Fixed(parameter)
            checked[name] = made._check(name)
        if all(isinstance(parameter, Fixed) for parameter in checked.values()):
            raise SpaceError("the space has fixed values only, so nothing varies; make one a Float, Int or Choice")
        axes = {name: parameter._axis() for name, parameter in checked.items()}
        whens = checked_whens(checked, axes)

        self.axes = axes
        self._nested = frozenset(name for name, parameter in checked.items() if _may_be_nested(parameter))
        self._parameters = {name: replace(p, when=whens[name] or None) for name, p in checked.items()}
        self._nodes: list[_Node] = []
        self._blank: list[float] = []
        for name, axis in axes.items():
            conditions = tuple(
                (other, quick(asked, other not in self._nested)) for other, asked in whens[name].items()
            )
            self._nodes.append(_Node(name, axis, conditions, len(self._blank)))
            self._blank += [axis.blank] * axis.width
        self.names = tuple(self._parameters)
        self.parameters = tuple(self._parameters.values())
        self.searched = tuple(name for name, parameter in checked.items() if not isinstance(parameter, Fixed))
        self._fixed = frozenset(self.names) - frozenset(self.searched)
        self.dimensions = len(self._blank)
        self.columns = {name: slice(start, start + axis.width) for name, axis, _, start in self._nodes}

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        """The same parameters in the same order; the choices 1 and True differ, as they do in a config."""
        return self is other or (isinstance(other, Space) and self._written == other._written)

    def __hash__(self) -> int:
        return hash(self._written)

    def __repr__(self) -> str:
        return f"Space({dict(self)!r})"

    @cached_property
    def _written(self) -> str:
        return json.dumps(self.to_json())

    # How many there are, and all of them.

    @cached_property
    def size(self) -> float:
        """The number of configurations, exactly; math.inf if a Float that is no constant can be active.

        Goes through the parameters and keeps the number of configurations so far, one for each set of facts
        that conditions still to come depend on: (parameter, number of its value), where a value stands for all
        that meet the same conditions. One that meets none decides as much as an inactive parameter: nothing.
        """
        order = self._dependents_first()
        last_use = {other: i for i, node in enumerate(order) for other, _ in node.conditions}
        asked: dict[str, list[Any]] = {name: [] for name in self.names}
        for parameter in self.parameters:
            for other, values in (parameter.when or {}).items():
                asked[other].append(values)
        ways: Counter[tuple[tuple[str, int], ...]] = Counter({(): 1})
        for i, (name, axis, conditions, _) in enumerate(order):
            after: Counter[tuple[tuple[str, int], ...]] = Counter()
            for facts, count in ways.items():
                kept = tuple(fact for fact in facts if last_use[fact[0]] > i)
                if not holds(conditions, {known: self.axes[known].nth(number) for known, number in facts}):
                    after[kept] += count
                    continue
                if axis.count is None:
                    return math.inf
                others = axis.count
                for number, size in classes(asked[name], axis):
                    after[(*kept, (name, number))] += count * size
                    others -= size
                if others:
                    after[kept] += count * others
            ways = after
        return sum(ways.values())

    def _dependents_first(self) -> list[_Node]:
        """The parameters in an order that has each as soon as it can be after those it depends on.

        So size can soon forget what those were: 100 switches and then what hangs on each would make 2**100
        sets of facts; each switch followed by what hangs on it makes two.
        """
        dependents: dict[str, list[_Node]] = {name: [] for name in self.names}
        for node in self._nodes:
            for other, _ in node.conditions:
                dependents[other].append(node)
        placed: dict[str, _Node] = {}
        ahead = self._nodes[::-1]  # the next one last
        while ahead:
            node = ahead.pop()
            if node.name not in placed and all(other in placed for other, _ in node.conditions):
                placed[node.name] = node
                ahead += dependents[node.name][::-1]
        return list(placed.values())

    def grid(self, points: int) -> Iterator[dict[str, Any]]:
        """Every combination of `points` values a number, evenly on its scale, and all choices.

        An Int with no more than `points` values gives them all. None comes twice; the first parameter changes
        slowest.
        """
        return self._product([node.axis.levels(points) for node in self._nodes])

    def every(self) -> Iterator[dict[str, Any]]:
        """Every configuration of a finite space, in the order of grid()."""
        if self.size == math.inf:
            raise SpaceError("the space is infinite and cannot be listed; use grid(points)")
        # A Float that is no constant is never active here: what its levels are does not matter.
        return self._product([node.axis.levels(node.axis.count or 1) for node in self._nodes])

    def _product(self, levels: Sequence[Iterable[Any]]) -> Iterator[dict[str, Any]]:
        """Yield every combination of the levels of active parameters, the last one changing fastest."""
        config: dict[str, Any] = {}
        ahead = [iter(levels[0])]  # of each parameter up to the current one, the values that are still to come
        while ahead:
            name = self._nodes[len(ahead) - 1].name
            for value in ahead[-1]:
                if value is not ...:
                    config[name] = value
                break
            else:
                ahead.pop()
                config.pop(name, None)
                continue
            if len(ahead) == len(self._nodes):
                yield config.copy()
            else:
                active = holds(self._nodes[len(ahead)].conditions, config)
                ahead.append(iter(levels[len(ahead)] if active else [...]))

    # To the unit cube and back.

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """A configuration drawn uniformly, each parameter on its own scale."""
        return self.from_unit(rng.random(len(self.searched)).tolist())

    def from_unit(self, values: Sequence[float]) -> dict[str, Any]:
        """The configuration at these numbers in [0, 1], one a searched parameter, whether it is active or not."""
        config: dict[str, Any] = {}
        for (name, axis, conditions, _), u in zip(self._nodes, self._with_fixed(values), strict=True):
            if not conditions or holds(conditions, config):
                config[name] = axis.value(u)
        return config

    def _with_fixed(self, values: Sequence[float]) -> Sequence[float]:
        """Return numbers of searched parameters as numbers of all, with any for those that are fixed."""
        if not self._fixed:
            return values
        searched = dict(zip(self.searched, values, strict=True))
        return [searched.get(name, 0.5) for name in self.names]

    def to_unit(self, config: Mapping[str, Any]) -> list[float]:
        """The inverse of from_unit(); 0.5 for what is inactive."""
        return [self.axes[name].unit(config[name]) if name in config else 0.5 for name in self.searched]

    def encode(self, config: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """The point of the unit cube, shape (dimensions,); inactive numbers are 0.5, inactive choices 0."""
        row = self._blank.copy()
        for name, axis, _, start in self._nodes:
            if name in config:
                axis.write(row, start, config[name])
        return np.array(row)

    def decode(self, vector: npt.ArrayLike) -> dict[str, Any]:
        """The configuration nearest to a point of the unit cube; the largest column of a Choice wins."""
        array = np.asarray(vector, dtype=float)
        row = array.tolist()
        if array.shape != (self.dimensions,) or not math.isfinite(sum(row)):
            raise SpaceError(f"{row} is no point of the unit cube; give {self.dimensions} numbers in [0, 1]")
        config: dict[str, Any] = {}
        for name, axis, conditions, start in self._nodes:
            if not conditions or holds(conditions, config):
                config[name] = axis.read(row, start)
        return config

    # Configurations from outside.

    def check(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration in the order and the types of the space; SpaceError if it is not one of it."""
        if not isinstance(config, Mapping):
            raise SpaceError(f"a configuration maps names to values, which {config!r} does not; use a dict")
        for name in config:
            if name not in self.columns:
                raise SpaceError(f"{name}: is not in the space; known are {', '.join(self.names)}")
        clean: dict[str, Any] = {}
        for name, axis, conditions, _ in self._nodes:
            if holds(conditions, clean):
                if name in config:
                    clean[name] = axis.clean(name, config[name])
                elif name in self._fixed:
                    clean[name] = axis.nth(0)
                else:
                    raise SpaceError(f"{name}: has no value; give it one")
            elif name in config:
                raise SpaceError(f"{name}: is {config[name]!r}, but {in_words(conditions)}; leave it out")
        return clean

    def check_part(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a configuration that may leave parameters open, in order and types of the space.

        A parameter with a condition needs values for which the condition holds. Raises SpaceError.
        """
        if not isinstance(config, Mapping):
            raise SpaceError(f"a configuration maps names to values, which {config!r} does not; use a dict")
        for name in config:
            if name not in self.columns:
                raise SpaceError(f"{name}: is not in the space; known are {', '.join(self.names)}")
        clean: dict[str, Any] = {}
        for name, axis, conditions, _ in self._nodes:
            if name not in config:
                if name in self._fixed and holds(conditions, clean):
                    clean[name] = axis.nth(0)
                continue
            if not holds(conditions, clean):
                missing = next((other for other, _ in conditions if other not in clean), None)
                way_out = "leave it out" if missing is None else f"give {missing}, too"
                raise SpaceError(f"{name}: is {config[name]!r}, but {in_words(conditions)}; {way_out}")
            clean[name] = axis.clean(name, config[name])
        return clean

    def fill(self, given: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return a configuration with these values, as check_part() returns them; all others are drawn."""
        config: dict[str, Any] = {}
        draws = self._with_fixed(rng.random(len(self.searched)).tolist())
        for (name, axis, conditions, _), u in zip(self._nodes, draws, strict=True):
            if holds(conditions, config):
                config[name] = given[name] if name in given else axis.value(u)
        return config

    def key(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """A configuration's identity: equal and hashable, Ellipsis for what is inactive."""
        get = config.get
        if self._nested:
            return tuple([identity(get(name, ...)) for name in self.searched])
        return tuple([get(name, ...) for name in self.searched])

    def restored(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a valid configuration with its tuples and lists as the space has them, in objects of its own.

        A log holds tuples as lists, and the lists of a suggestion are those of the space.
        """
        if self._nested.isdisjoint(config):
            return config
        clean = {name: self.axes[name].clean(name, config[name]) for name in self._nested if name in config}
        return {**config, **{name: copy_of(value) for name, value in clean.items()}}

    # The written form.

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Plain JSON, and the [space] table of a study file. The order of the names is part of it."""
        tables = {}
        for name, parameter in self.items():
            table: dict[str, Any] = {"type": type(parameter).__name__.lower()}
            for field in _settings(parameter):
                value = getattr(parameter, field.name)
                if field.name == "when" and value:
                    value = when_json(value)
                if field.name == "choices":
                    value = [value_to_json(choice) for choice in value]
                if field.name == "value":
                    table[field.name] = value_to_json(value)
                elif value is not None and value is not False:
                    table[field.name] = value
            tables[name] = table
        return tables

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Any]]) -> Space:
        """The inverse of to_json(). A value that is no table is fixed; a list must be in one."""
        if not isinstance(data, Mapping):
            raise SpaceError(f"a space is a table of parameters, not {data!r}; write [space]")
        parameters: dict[str, Any] = {}
        for name, table in data.items():
            if is_nested(table):
                raise SpaceError(
                    f"{name}: a list is no parameter; write [space.{name}] and in it type = 'choice' and "
                    "choices = [...] to choose from it, type = 'float' or 'int', low and high for a range, or "
                    "value = [...] for the list itself"
                )
            if not isinstance(table, Mapping):
                parameters[name] = Fixed(table)
                continue
            settings = dict(table)
            kind = settings.pop("type", "fixed" if "value" in settings else None)
            if not isinstance(kind, str) or kind not in _KINDS:
                raise SpaceError(f"{name}: type {kind!r} is not known; use {', '.join(_KINDS)}")
            known = {field.name: field.default is MISSING for field in _settings(_KINDS[kind])}
            for setting in settings.keys() - known:
                raise SpaceError(f"{name}: {setting} is no setting of {kind}; use {', '.join(known)}")
            for setting, needed in known.items():
                if needed and setting not in settings:
                    raise SpaceError(f"{name}: {setting} is missing; a {kind} needs it")
            if isinstance(choices := settings.get("choices"), list):
                settings["choices"] = [value_from_json(choice) for choice in choices]
            if "value" in settings:
                settings["value"] = value_from_json(settings["value"])
            if "when" in settings:
                settings["when"] = when_read(name, settings["when"])
            parameters[name] = _KINDS[kind](**settings)
        return cls(parameters)

    def difference(self, other: Space) -> list[str]:
        """What became of this space in the other, in sentences; empty if they are equal."""
        sentences = []
        for name, before in self.items():
            if name not in other:
                sentences.append(f"{name}: is gone")
            elif type(before) is not type(after := other[name]):
                sentences.append(f"{name}: was {_kind(before)}, is now {_kind(after)}")
            else:
                for field in _settings(before):
                    was, now = (_shown(field.name, getattr(p, field.name)) for p in (before, after))
                    # By the way they are written, since 1 == True.
                    if was != now:
                        sentences.append(f"{name}: {field.name} was {was}, is now {now}")
        sentences += [f"{name}: is new" for name in other if name not in self]
        was_order = [name for name in self if name in other]
        now_order = [name for name in other if name in self]
        if was_order != now_order:
            sentences.append(f"the order was {', '.join(was_order)}, is now {', '.join(now_order)}")
        return sentences


def _settings(parameter: Parameter | type[Parameter]) -> list[Field[Any]]:
    """In the order in which people write them: conditions last."""
    return sorted(fields(parameter), key=lambda field: field.name == "when")


def _may_be_nested(parameter: Parameter) -> bool:
    values = parameter.choices if isinstance(parameter, Choice) else [getattr(parameter, "value", None)]
    return any(map(is_nested, values))


def _kind(parameter: Parameter) -> str:
    return f"fixed at {parameter.value!r}" if isinstance(parameter, Fixed) else type(parameter).__name__


def _shown(field: str, setting: Any) -> str:
    """Return a setting for people to compare: choices and the values of a condition as lists."""
    if field == "when" and setting:
        return repr({name: v if isinstance(v, Between) else list(v) for name, v in setting.items()})
    return repr(list(setting) if field == "choices" else setting)
