"""The settings of a study as plain data that a store can hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from thriftune.common.checks import LARGEST_INT, check_whole
from thriftune.errors import SettingError
from thriftune.space.objectives import (
    Constraint,
    Objective,
    check_objectives,
    goal,
    join_with_and,
    needed_metrics,
    objectives_from_json,
    objectives_to_json,
    parse_constraints,
)
from thriftune.space.space import Space
from thriftune.state.history import History
from thriftune.state.trial_record import NO_FILES, TrialFiles

DiskFullPolicy = Literal["stop", "go_on"]
FailurePolicy = Literal["stop", "go_on"]
ChangePolicy = Literal["stop", "go_on"]
ValuePolicy = Literal["auto", "best", "last"]


TargetKind = Literal["pickled", "function", "command", "outside"]
KINDS: tuple[TargetKind, ...] = get_args(TargetKind)


@dataclass(frozen=True)
class Target:
    """The code that a trial runs: a pickled or importable function, a command, or the user's own code."""

    kind: TargetKind
    where: str = ""  # the path of the pickle, or "file.py:function" or "module:function"
    command: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict)  # metric (or "step") -> regular expression
    folder: str = ""  # the folder in which a command runs, and to which a file's path is relative
    paths: tuple[str, ...] = ()  # the folders of a pickled function's modules

    def __str__(self) -> str:
        return " ".join(self.command) if self.kind == "command" else self.where or self.kind


_QUESTION = ("name", "space", "objectives", "seed", "constraints", "id", "warm_start")
"""Fields of a spec that never change. Only rename() changes the name."""


@dataclass(frozen=True)
class Spec:
    """The settings of one study.

    The first group of fields defines the study and never changes. The others may change when it is resumed.
    """

    name: str
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    constraints: tuple[Constraint, ...] = ()
    id: str = ""  # unique to this study; a name may be used again after a study is deleted
    warm_start: tuple[str, ...] = ()  # the names of the studies whose results it started with

    searcher: str = "bayes"
    searcher_options: Mapping[str, Any] = field(default_factory=dict)
    stopping: str = "none"
    stopping_options: Mapping[str, Any] = field(default_factory=dict)
    target: Target = Target("outside")
    trials: int | None = None
    max_steps: int | None = None
    deadline_seconds: float | None = None
    budget_dollars: float | None = None
    timeout_seconds: float | None = None
    retries: int = 1
    workers: int | None = 1  # trials that run at the same time; None: as many as fit on the machines
    engine: str = "local"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] | None = None  # settings for tuning the knobs of trials; None: knobs are not tuned
    storage: str = ""
    keep: int = 2
    disk_full: DiskFullPolicy = "stop"
    value: ValuePolicy = "last"  # the report that gives a trial's value: its best or its last; see counts_best
    on_failure: FailurePolicy = "go_on"  # what to do when the first trials all fail with the same error
    target_value: float | None = None  # a value of the objective; the study ends when a trial reaches it
    patience: int | None = None  # no trial is created after this many in a row without a better value
    stop_when_converged: bool = False  # end when the searcher expects no improvement that is worth its cost
    max_trial_seconds: float | None = None  # over all attempts; the trial then ends and its value counts
    deadline_at: float | None = None  # unix seconds
    code: Mapping[str, str] = field(default_factory=dict)  # digests of the code that trials run
    moved_from: str = ""  # the folder that had the files before a rename; they may still be in it

    def __post_init__(self) -> None:
        _check_name(self.name)
        check_objectives(self.objectives)
        for name, least in (("trials", 1), ("max_steps", 1), ("workers", 1), ("patience", 1)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least)
        for name, least in (("seed", 0), ("retries", 0), ("keep", 2)):
            check_whole(name, getattr(self, name), least)
        if self.workers is None and self.engine == "local":
            raise SettingError("workers: None must be a whole number")
        for name in ("deadline_seconds", "budget_dollars", "timeout_seconds", "max_trial_seconds"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SettingError(f"{_as_given(name)}: {value!r} must be a number")
            if not 0 < value < LARGEST_INT:
                raise SettingError(f"{_as_given(name)}: {value} must be above zero and finite")
        check_criteria(self)
        for name in ("disk_full", "on_failure"):
            if getattr(self, name) not in ("stop", "go_on"):
                raise SettingError(f"{name}: {getattr(self, name)!r} must be 'stop' or 'go_on'")
        if self.value not in get_args(ValuePolicy):
            raise SettingError(f"value: {self.value!r} must be 'best', 'last' or 'auto'")
        if self.value == "best" and not self._may_count_best:
            raise SettingError(
                "value: 'best' needs a single objective and no constraints, as no step may be the best in all; "
                "use value='last'"
            )

    @property
    def metric(self) -> str:
        """The metric of the first objective."""
        return self.objectives[0].metric

    @property
    def maximize(self) -> bool:
        """Return whether the first objective is maximised."""
        return self.objectives[0].maximize

    @property
    def judged(self) -> bool:
        """Return whether a stopping rule may end trials before their last step."""
        if self.stopping == "auto":  # the default; it judges only where its decision is clear
            return self.max_steps is not None and len(self.objectives) == 1 and not self.constraints
        return self.stopping != "none"

    @property
    def _may_count_best(self) -> bool:
        return len(self.objectives) == 1 and not self.constraints

    @property
    def counts_best(self) -> bool:
        """Return whether a trial's value is its best over all steps, and not its last."""
        return self.value == "best" or (self.value == "auto" and self._may_count_best)

    @property
    def needed_metrics(self) -> tuple[str, ...]:
        """The metrics that a trial must have at its end: all objectives and all constrained metrics."""
        return needed_metrics(self.objectives, self.constraints)

    @property
    def goal(self) -> str:
        """Return the objectives and constraints as text, such as "minimize loss with size <= 3"."""
        return goal(self.objectives, self.constraints)

    def new_history(self, folder: str = "", files: TrialFiles = NO_FILES) -> History:
        """Return the empty history of this study, to which its log can be applied.

        `folder`: the folder of the study's files. `files`: reads the files of its trials.
        """
        definition = self.space, self.objectives, self.seed, self.constraints, self.max_steps
        return History(*definition, folder, files, self.counts_best)

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["objectives"] = objectives_to_json(self.objectives)
        data["constraints"] = [str(constraint) for constraint in self.constraints]
        data["space"] = self.space.to_json()
        data["target"] = {f.name: getattr(self.target, f.name) for f in fields(Target)}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        target = dict(data["target"])
        target["command"] = tuple(target["command"])
        target["paths"] = tuple(target.get("paths", ()))
        given = {
            **{name: value for name, value in data.items() if name not in ("metric", "maximize")},
            "space": Space.from_json(data["space"]),
            "target": Target(**target),
            "objectives": objectives_from_json(data),
            "constraints": parse_constraints(data.get("constraints")),
            "warm_start": tuple(data.get("warm_start", ())),
        }
        known = {f.name for f in fields(cls)}
        if unknown := given.keys() - known:
            raise SettingError(f"the study has settings this version does not know: {', '.join(sorted(unknown))}")
        return cls(**given)

    def difference(self, asked: Spec) -> list[str]:
        """Return what `asked` would change in the definition of this study, as sentences; empty if nothing."""
        found = self.space.difference(asked.space)
        if len(self.objectives) == len(asked.objectives) == 1:
            if self.metric != asked.metric:
                found.append(f"metric: was {self.metric}, is now {asked.metric}")
            if self.maximize != asked.maximize:
                was, now = ("maximize", "minimize") if self.maximize else ("minimize", "maximize")
                found.append(f"direction: was {was}, is now {now}")
        elif self.objectives != asked.objectives:  # their order counts: the first one is the main objective
            found.append(f"objectives: were {goal(self.objectives)}, are now {goal(asked.objectives)}")
        if set(self.constraints) != set(asked.constraints):
            were, are = (", ".join(map(str, each.constraints)) or "none" for each in (self, asked))
            found.append(f"constraints: were {were}, are now {are}")
        if (self.target.kind == "outside") != (asked.target.kind == "outside"):
            ways = "run by ask and tell", "run by thriftune"
            was, now = ways if self.target.kind == "outside" else ways[::-1]
            found.append(f"trials: were {was}, are now {now}")
        # Without warm_start, the study keeps the studies that it started with.
        if asked.warm_start and set(asked.warm_start) != set(self.warm_start):
            was, now = (", ".join(names) or "none" for names in (self.warm_start, asked.warm_start))
            found.append(f"warm_start: was {was}, is now {now}")
        return found

    def changes_of_meaning(self, asked: Spec) -> list[str]:
        """Return the settings of `asked` that change what a trial's value means, as text."""
        found = []
        if asked.max_steps != self.max_steps:
            found.append(f"max_steps was {self.max_steps}, is now {asked.max_steps}")
        if asked.value != "auto" and asked.counts_best != self.counts_best:
            was, now = ("best", "last") if self.counts_best else ("last", "best")
            found.append(f"a trial's value was its {was}, is now its {now}")
        return found

    def with_limits_of(self, asked: Spec) -> Spec:
        """Return a spec with the definition of this study and all other settings of `asked`."""
        kept = {name: getattr(self, name) for name in (*_QUESTION, "moved_from")}
        # The same searcher or stopping rule without options keeps the options that the study has.
        for part in ("searcher", "stopping"):
            options = f"{part}_options"
            if getattr(asked, part) == getattr(self, part) and not getattr(asked, options):
                kept[options] = getattr(self, options)
        if asked.value == "auto":
            kept["value"] = self.value
        return replace(asked, **kept, storage=asked.storage or self.storage)


def _as_given(name: str) -> str:
    """Return the name under which a user gives a setting: "deadline" for deadline_seconds."""
    return {"max_trial_seconds": "max_trial_time"}.get(name, name.split("_")[0])


def _check_name(name: str) -> None:
    """Raise SettingError for a name that some file system or shell would not accept as a folder's name."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise SettingError(
            f"name: {name!r} must be letters, digits, '.', '_' and '-', begin with a letter or digit, "
            "and be at most 100 long"
        )


def check_criteria(spec: Spec) -> None:
    """Raise SettingError if the target, patience or convergence does not fit the study's objectives."""
    target = spec.target_value
    if target is not None:
        if isinstance(target, bool) or not isinstance(target, (int, float)):
            raise SettingError(f"target: {target!r} must be a number, a value of {spec.metric!r}")
        if not -LARGEST_INT < target < LARGEST_INT:
            raise SettingError(f"target: {target} must be finite")
    if not isinstance(spec.stop_when_converged, bool):
        raise SettingError(f"stop_when_converged: {spec.stop_when_converged!r} must be true or false")
    asked = {"target": target, "patience": spec.patience, "stop_when_converged": spec.stop_when_converged or None}
    if len(spec.objectives) > 1 and (given := [name for name, value in asked.items() if value is not None]):
        raise SettingError(
            f"{given[0]}: needs a single objective, and there are {len(spec.objectives)}: "
            f"{join_with_and(each.metric for each in spec.objectives)}"
        )
