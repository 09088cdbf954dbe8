"""Search spaces: named parameters with conditions, and the map of configurations to the unit cube and back."""

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
from thriftune.space.conditions import (
    Between,
    Conditions,
    allowed_values,
    checked_whens,
    conditions_text,
    holds,
    value_classes,
    when_from_json,
    when_to_json,
)
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.scales import Scale
from thriftune.space.values import copy_of, identity, is_nested, value_from_json, value_to_json

_KINDS: dict[str, type[Parameter]] = {"float": Float, "int": Int, "choice": Choice, "fixed": Fixed}


# --- the space --------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A parameter's scale with its name, its conditions and the index of its first column."""

    name: str
    scale: Scale
    conditions: Conditions
    start: int


class Space(Mapping[str, Parameter]):
    """An ordered, checked set of named parameters. It never changes.

    A configuration is a dict of the active parameters, in the order of the space. A parameter is active if all
    parameters that its `when` names are active and have one of the values in `when`.
    """

    names: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    searched: tuple[str, ...]
    """The names of all parameters that are not fixed."""
    dimensions: int
    """The number of columns of the unit cube: one for a number, one for each choice, none for a fixed value."""
    columns: Mapping[str, slice]
    """The columns of each parameter in the unit cube."""
    scales: Mapping[str, Scale]
    """The scale of each parameter."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Check the parameters.

        Each is a Float, Int, Choice or fixed value. Raises SpaceError.
        """
        if not isinstance(parameters, Mapping):
            raise SpaceError(f"a space maps names to parameters, which {parameters!r} does not; use a dict")
        if not parameters:
            raise SpaceError("the space is empty; name at least one Float, Int or Choice")
        checked: dict[str, Parameter] = {}
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not name:
                raise SpaceError(f"{name!r} cannot name a parameter; use a string that is not empty")
            if isinstance(parameter, type):
                raise SpaceError(f"{name}: {parameter!r} is not a parameter; use Float, Int, Choice or a value")
            if is_nested(parameter):
                raise SpaceError(
                    f"{name}: a plain {type(parameter).__name__} is ambiguous. To choose from it, write "
                    "tt.Choice([...]); for a range, tt.Float(low, high) or tt.Int(low, high); for the "
                    f"{type(parameter).__name__} itself, "
                    f"tt.Choice([{'(...)' if isinstance(parameter, tuple) else '[...]'}])"
                )
            typed = parameter if isinstance(parameter, Parameter) else Fixed(parameter)
            checked[name] = typed._check(name)
        if all(isinstance(parameter, Fixed) for parameter in checked.values()):
            raise SpaceError("the space has fixed values only, so nothing varies; make one a Float, Int or Choice")
        scales = {name: parameter._scale() for name, parameter in checked.items()}
        whens = checked_whens(checked, scales)

        self.scales = scales
        self._nested = frozenset(name for name, parameter in checked.items() if _may_be_nested(parameter))
        self._parameters = {name: replace(p, when=whens[name] or None) for name, p in checked.items()}
        self._nodes: list[_Node] = []
        self._blank: list[float] = []
        for name, scale in scales.items():
            conditions = tuple(
                (other, allowed_values(condition, other not in self._nested))
                for other, condition in whens[name].items()
            )
            self._nodes.append(_Node(name, scale, conditions, len(self._blank)))
            self._blank += [scale.blank] * scale.width
        self.names = tuple(self._parameters)
        self.parameters = tuple(self._parameters.values())
        self.searched = tuple(name for name, parameter in checked.items() if not isinstance(parameter, Fixed))
        self._fixed = frozenset(self.names) - frozenset(self.searched)
        self.dimensions = len(self._blank)
        self.columns = {name: slice(start, start + scale.width) for name, scale, _, start in self._nodes}

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same parameters in the same order.

        The choices 1 and True count as different.
        """
        return self is other or (isinstance(other, Space) and self._json_text == other._json_text)

    def __hash__(self) -> int:
        return hash(self._json_text)

    def __repr__(self) -> str:
        return f"Space({dict(self)!r})"

    @cached_property
    def _json_text(self) -> str:
        return json.dumps(self.to_json())

    # --- counting and listing configurations --------------------------------------------------------------

    @cached_property
    def size(self) -> float:
        """The exact number of configurations; math.inf if a Float that is not constant can be active.

        The algorithm goes through the parameters and counts the configurations of those it has passed,
        separately for each set of facts on which later conditions depend. A fact is a parameter and the number
        of its value. One value represents all values that meet the same conditions. A value that meets none
        needs no fact.
        """
        order = self._dependents_first()
        last_use = {other: i for i, node in enumerate(order) for other, _ in node.conditions}
        conditions_on: dict[str, list[Any]] = {name: [] for name in self.names}
        for parameter in self.parameters:
            for other, condition in (parameter.when or {}).items():
                conditions_on[other].append(condition)
        counts: Counter[tuple[tuple[str, int], ...]] = Counter({(): 1})
        for i, (name, scale, conditions, _) in enumerate(order):
            after: Counter[tuple[tuple[str, int], ...]] = Counter()
            for facts, count in counts.items():
                needed = tuple(fact for fact in facts if last_use[fact[0]] > i)
                if not holds(conditions, {known: self.scales[known].nth(number) for known, number in facts}):
                    after[needed] += count
                    continue
                if scale.count is None:
                    return math.inf
                rest = scale.count
                for number, size in value_classes(conditions_on[name], scale):
                    after[(*needed, (name, number))] += count * size
                    rest -= size
                if rest:
                    after[needed] += count * rest
            counts = after
        return sum(counts.values())

    def _dependents_first(self) -> list[_Node]:
        """Return the parameters in an order that has each as early as possible after those it depends on.

        In this order, `size` needs few facts at a time. Take 100 switches with a dependent parameter each. All
        switches first would need 2**100 sets of facts. Each switch followed by its dependent parameter needs
        two.
        """
        dependents: dict[str, list[_Node]] = {name: [] for name in self.names}
        for node in self._nodes:
            for other, _ in node.conditions:
                dependents[other].append(node)
        placed: dict[str, _Node] = {}
        stack = self._nodes[::-1]  # the next node is the last item
        while stack:
            node = stack.pop()
            if node.name not in placed and all(other in placed for other, _ in node.conditions):
                placed[node.name] = node
                stack += dependents[node.name][::-1]
        return list(placed.values())

    def grid(self, points: int) -> Iterator[dict[str, Any]]:
        """Yield every combination of `points` values for each number, evenly on its scale, and all choices.

        An Int with at most `points` values has all of them in the grid. No configuration is repeated. The first
        parameter changes slowest.
        """
        return self._product([node.scale.levels(points) for node in self._nodes])

    def every(self) -> Iterator[dict[str, Any]]:
        """Yield every configuration of the space, in the order of grid().

        Raises SpaceError if it is infinite.
        """
        if self.size == math.inf:
            raise SpaceError("the space is infinite and cannot be listed; use grid(points)")
        # A Float that is not constant is never active here, so its levels do not matter.
        return self._product([node.scale.levels(node.scale.count or 1) for node in self._nodes])

    def _product(self, levels: Sequence[Iterable[Any]]) -> Iterator[dict[str, Any]]:
        """Yield every combination of the levels of active parameters.

        The last parameter changes fastest.
        """
        config: dict[str, Any] = {}
        remaining = [iter(levels[0])]  # the remaining values of each parameter up to the current one
        while remaining:
            name = self._nodes[len(remaining) - 1].name
            for value in remaining[-1]:
                if value is not ...:
                    config[name] = value
                break
            else:
                remaining.pop()
                config.pop(name, None)
                continue
            if len(remaining) == len(self._nodes):
                yield config.copy()
            else:
                active = holds(self._nodes[len(remaining)].conditions, config)
                remaining.append(iter(levels[len(remaining)] if active else [...]))

    # --- the unit cube ------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return a configuration drawn uniformly, each parameter on its own scale."""
        return self.from_unit(rng.random(len(self.searched)).tolist())

    def from_unit(self, values: Sequence[float]) -> dict[str, Any]:
        """Return the configuration at numbers in [0, 1], one for each searched parameter, active or not."""
        config: dict[str, Any] = {}
        for (name, scale, conditions, _), u in zip(self._nodes, self._with_fixed(values), strict=True):
            if not conditions or holds(conditions, config):
                config[name] = scale.value(u)
        return config

    def _with_fixed(self, values: Sequence[float]) -> Sequence[float]:
        """Return numbers for all parameters from those for searched ones.

        Fixed parameters ignore theirs.
        """
        if not self._fixed:
            return values
        searched = dict(zip(self.searched, values, strict=True))
        return [searched.get(name, 0.5) for name in self.names]

    def to_unit(self, config: Mapping[str, Any]) -> list[float]:
        """Return the numbers of a configuration, with 0.5 for inactive parameters.

        The inverse of from_unit().
        """
        return [self.scales[name].unit(config[name]) if name in config else 0.5 for name in self.searched]

    def encode(self, config: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Return a configuration's point in the unit cube, shape (dimensions,).

        Columns of inactive parameters are 0.5 for numbers and 0 for choices.
        """
        row = self._blank.copy()
        for name, scale, _, start in self._nodes:
            if name in config:
                scale.write(row, start, config[name])
        return np.array(row)

    def decode(self, vector: npt.ArrayLike) -> dict[str, Any]:
        """Return the configuration nearest to a point of the unit cube.

        A Choice takes its largest column.
        """
        array = np.asarray(vector, dtype=float)
        row = array.tolist()
        if array.shape != (self.dimensions,) or not math.isfinite(sum(row)):
            raise SpaceError(f"{row} is no point of the unit cube; give {self.dimensions} numbers in [0, 1]")
        config: dict[str, Any] = {}
        for name, scale, conditions, start in self._nodes:
            if not conditions or holds(conditions, config):
                config[name] = scale.read(row, start)
        return config

    # --- checking configurations --------------------------------------------------------------------------

    def check(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration in the order and types of the space.

        Raises SpaceError if it is not valid.
        """
        self._check_names(config)
        clean: dict[str, Any] = {}
        for name, scale, conditions, _ in self._nodes:
            if holds(conditions, clean):
                if name in config:
                    clean[name] = scale.clean(name, config[name])
                elif name in self._fixed:
                    clean[name] = scale.nth(0)
                else:
                    raise SpaceError(f"{name}: has no value; give it one")
            elif name in config:
                raise SpaceError(f"{name}: is {config[name]!r}, but {conditions_text(conditions)}; leave it out")
        return clean

    def check_part(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration that may leave parameters open, in the order and types of the space.

        A parameter with conditions may have a value only if the configuration meets them. Raises SpaceError.
        """
        self._check_names(config)
        clean: dict[str, Any] = {}
        for name, scale, conditions, _ in self._nodes:
            if name not in config:
                if name in self._fixed and holds(conditions, clean):
                    clean[name] = scale.nth(0)
                continue
            if not holds(conditions, clean):
                missing = next((other for other, _ in conditions if other not in clean), None)
                hint = "leave it out" if missing is None else f"give {missing}, too"
                raise SpaceError(f"{name}: is {config[name]!r}, but {conditions_text(conditions)}; {hint}")
            clean[name] = scale.clean(name, config[name])
        return clean

    def _check_names(self, config: object) -> None:
        """Raise SpaceError unless this is a mapping whose names are all in the space."""
        if not isinstance(config, Mapping):
            raise SpaceError(f"a configuration maps names to values, which {config!r} does not; use a dict")
        for name in config:
            if name not in self.columns:
                raise SpaceError(f"{name} is not a parameter; the space has {', '.join(self.names)}")

    def fill(self, given: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return a configuration with the values from check_part(), and random values for all other parameters."""
        config: dict[str, Any] = {}
        draws = self._with_fixed(rng.random(len(self.searched)).tolist())
        for (name, scale, conditions, _), u in zip(self._nodes, draws, strict=True):
            if holds(conditions, config):
                config[name] = given[name] if name in given else scale.value(u)
        return config

    def key(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a hashable key that is the same for equal configurations.

        Inactive parameters are Ellipsis.
        """
        get = config.get
        if self._nested:
            return tuple([identity(get(name, ...)) for name in self.searched])
        return tuple([get(name, ...) for name in self.searched])

    def restored(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a valid configuration with the tuples and lists of the space, in new objects.

        This is needed because a log holds tuples as lists, and a suggestion shares its lists with the space.
        """
        if self._nested.isdisjoint(config):
            return config
        clean = {name: self.scales[name].clean(name, config[name]) for name in self._nested if name in config}
        return {**config, **{name: copy_of(value) for name, value in clean.items()}}

    # --- JSON ---------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the space as JSON, like the [space] table of a study file.

        The order of names counts.
        """
        tables = {}
        for name, parameter in self.items():
            table: dict[str, Any] = {"type": type(parameter).__name__.lower()}
            for field in _settings(parameter):
                value = getattr(parameter, field.name)
                if field.name == "when" and value:
                    value = when_to_json(value)
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
        """Return the space from the JSON of to_json() or from the [space] table of a study file.

        A value that is not a table is a fixed value. A list must be in a table. Raises SpaceError.
        """
        if not isinstance(data, Mapping):
            raise SpaceError(f"a space is a table of parameters, not {data!r}; write [space]")
        parameters: dict[str, Any] = {}
        for name, table in data.items():
            if is_nested(table):
                raise SpaceError(
                    f"{name}: a plain list is ambiguous. Write [space.{name}] and in it, to choose from the list, "
                    "type = 'choice' and choices = [...]; for a range, type = 'float' or 'int', low and high; "
                    "for the list itself, value = [...]"
                )
            if not isinstance(table, Mapping):
                parameters[name] = Fixed(table)
                continue
            settings = dict(table)
            kind = settings.pop("type", "fixed" if "value" in settings else None)
            if kind is None:
                raise SpaceError(f"{name}: type is missing; use float, int or choice")
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
                settings["when"] = when_from_json(name, settings["when"])
            parameters[name] = _KINDS[kind](**settings)
        return cls(parameters)

    def difference(self, other: Space) -> list[str]:
        """Return how the other space differs from this one, as sentences; empty if they are equal."""
        sentences = []
        for name, before in self.items():
            if name not in other:
                sentences.append(f"{name}: is gone")
            elif type(before) is not type(after := other[name]):
                sentences.append(f"{name}: was {_kind(before)}, is now {_kind(after)}")
            else:
                for field in _settings(before):
                    was, now = (_shown(field.name, getattr(p, field.name)) for p in (before, after))
                    # Compared as text, because 1 == True.
                    if was != now:
                        sentences.append(f"{name}: {field.name} was {was}, is now {now}")
        sentences += [f"{name}: is new" for name in other if name not in self]
        was_order = [name for name in self if name in other]
        now_order = [name for name in other if name in self]
        if was_order != now_order:
            sentences.append(f"the order was {', '.join(was_order)}, is now {', '.join(now_order)}")
        return sentences


def _settings(parameter: Parameter | type[Parameter]) -> list[Field[Any]]:
    """Return the settings of a parameter in the order in which people write them, with `when` last."""
    return sorted(fields(parameter), key=lambda field: field.name == "when")


def _may_be_nested(parameter: Parameter) -> bool:
    """Return whether a value of the parameter is a list or tuple."""
    values = parameter.choices if isinstance(parameter, Choice) else [getattr(parameter, "value", None)]
    return any(map(is_nested, values))


def _kind(parameter: Parameter) -> str:
    """Return the kind of a parameter as text, such as "Float" or "fixed at 3"."""
    return f"fixed at {parameter.value!r}" if isinstance(parameter, Fixed) else type(parameter).__name__


def _shown(field: str, setting: Any) -> str:
    """Return a setting as text.

    Choices and the values of conditions are shown as lists.
    """
    if field == "when" and setting:
        return repr({name: v if isinstance(v, Between) else list(v) for name, v in setting.items()})
    return repr(list(setting) if field == "choices" else setting)
