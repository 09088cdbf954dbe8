"""The spec of a study: its settings in the form in which a store keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from thriftune.common.checks import LARGEST_INT, check_whole
from thriftune.common.setting_kinds import check_positive, check_settings, metadata_of, settings_of
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
from thriftune.state.stored_settings import (
    FailurePolicy,
    StoredSettings,
    ValuePolicy,
)
from thriftune.state.trial_record import NO_FILES, TrialFiles

TargetKind = Literal["pickled", "function", "command", "outside"]
KINDS: tuple[TargetKind, ...] = get_args(TargetKind)


@dataclass(frozen=True)
class Target:
    """The code that a trial runs.

    It is a pickled function, an importable function, a command, or the user's own code, which uses Study.ask() and
    Study.tell().
    """

    kind: TargetKind
    where: str = ""  # the path of the pickle, or "file.py:function" or "module:function"
    command: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict)  # metric (or "step") -> regular expression
    folder: str = ""  # the working folder of a command, or the folder of a function's file
    paths: tuple[str, ...] = ()  # the folders of a pickled function's modules
    project: str = ""  # the folder of a pickled function's script

    def __str__(self) -> str:
        return " ".join(self.command) if self.kind == "command" else self.where or self.kind


_QUESTION = ("name", "space", "objectives", "seed", "constraints", "id", "warm_start")
"""The fields of a spec that never change, except that rename() changes the name."""


_STORED_SETTINGS = settings_of(StoredSettings)


@dataclass(frozen=True)
class Spec(StoredSettings):
    """The settings of one study as its log stores them.

    The first group of fields is the study's question, which never changes. The other fields say how the study
    runs and when it ends. They may change. Settings that users give in the form in which they are stored are
    inherited.
    """

    name: str
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    constraints: tuple[Constraint, ...] = ()
    id: str = ""  # unique, also among studies of the same name
    warm_start: tuple[str, ...] = ()  # the names of the studies whose results it was started with

    searcher: str = "bayes"
    searcher_options: Mapping[str, Any] = field(default_factory=dict)
    stopping: str = "none"
    stopping_options: Mapping[str, Any] = field(default_factory=dict)
    target: Target = Target("outside")
    deadline_seconds: float | None = None  # the most seconds during which drivers run the study
    deadline_at: float | None = None  # unix seconds
    budget_dollars: float | None = None
    timeout_seconds: float | None = None  # the time limit of an attempt, after which it is killed
    max_trial_seconds: float | None = (
        None  # the time limit of all attempts of a trial; it then ends with its value
    )
    target_value: float | None = None  # the study ends when a trial's value reaches it
    workers: int | None = 1  # the most trials at the same time; None: as many as fit on the machines
    engine: str = "local"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] | None = None  # how trials may be tuned to their machine; None: not at all
    storage: str = ""  # the folder or object store for checkpoints and output; empty: beside the store
    data: Mapping[str, str] = field(default_factory=dict)  # the URL or absolute path of each dataset, by name
    code: Mapping[str, str] = field(default_factory=dict)  # fingerprints of the trials' code and data, by kind
    moved_from: str = ""  # if the study was renamed: its earlier name, which its folder may still have

    # Logs that are older than these settings do not have them. These defaults are what they mean.
    value: ValuePolicy = field(default="last", kw_only=True, metadata=metadata_of(StoredSettings, "value"))
    on_failure: FailurePolicy = field(
        default="go_on", kw_only=True, metadata=metadata_of(StoredSettings, "on_failure")
    )

    def __post_init__(self) -> None:
        _check_name(self.name)
        check_objectives(self.objectives)
        check_settings(self, _STORED_SETTINGS)
        check_whole("seed", self.seed, 0)
        if self.workers is not None or self.engine == "local":
            check_whole("workers", self.workers, 1)
        for name in ("deadline_seconds", "budget_dollars", "timeout_seconds", "max_trial_seconds"):
            if getattr(self, name) is not None:
                check_positive(_as_given(name), getattr(self, name))
        check_criteria(self)
        if self.value == "best" and not self._may_count_best:
            raise SettingError(
                "value: 'best' needs a single objective and no constraints, as no step may be the best in all; "
                "use value='last'"
            )

    @property
    def metric(self) -> str:
        """Return the metric of the first objective."""
        return self.objectives[0].metric

    @property
    def maximize(self) -> bool:
        """Return whether the first objective is maximised."""
        return self.objectives[0].maximize

    @property
    def judged(self) -> bool:
        """Return whether a stopping rule may end trials before their last step."""
        if self.stopping == "auto":  # the default rule needs all three, and does nothing without them
            return self.max_steps is not None and len(self.objectives) == 1 and not self.constraints
        return self.stopping != "none"

    @property
    def _may_count_best(self) -> bool:
        return len(self.objectives) == 1 and not self.constraints

    @property
    def counts_best(self) -> bool:
        """Return whether a trial's value is the best of all steps, and not the last."""
        return self.value == "best" or (self.value == "auto" and self._may_count_best)

    @property
    def needed_metrics(self) -> tuple[str, ...]:
        """Return the metrics of all objectives and constraints, which a trial must report."""
        return needed_metrics(self.objectives, self.constraints)

    @property
    def goal(self) -> str:
        """Return the objectives and constraints as a text for users."""
        return goal(self.objectives, self.constraints)

    def new_history(self, folder: str = "", files: TrialFiles = NO_FILES) -> History:
        """Return a history of this study without any entry.

        - `folder`: the folder of the study's files.
        - `files`: reads the files of its trials.
        """
        question = self.space, self.objectives, self.seed, self.constraints, self.max_steps
        return History(*question, folder, files, self.counts_best)

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

    def difference(self, given: Spec) -> list[str]:
        """Return how the question of another spec differs from this one.

        Returns a text for each difference. `given`: the spec with which the user resumes the study.
        """
        found = self.space.difference(given.space)
        if len(self.objectives) == len(given.objectives) == 1:
            if self.metric != given.metric:
                found.append(f"metric: was {self.metric}, is now {given.metric}")
            if self.maximize != given.maximize:
                was, now = ("maximize", "minimize") if self.maximize else ("minimize", "maximize")
                found.append(f"direction: was {was}, is now {now}")
        elif self.objectives != given.objectives:  # their order counts: the first one is the main objective
            found.append(f"objectives: were {goal(self.objectives)}, are now {goal(given.objectives)}")
        if set(self.constraints) != set(given.constraints):
            were, are = (", ".join(map(str, each.constraints)) or "none" for each in (self, given))
            found.append(f"constraints: were {were}, are now {are}")
        if (self.target.kind == "outside") != (given.target.kind == "outside"):
            ways = "run by ask and tell", "run by thriftune"
            was, now = ways if self.target.kind == "outside" else ways[::-1]
            found.append(f"trials: were {was}, are now {now}")
        # Without the setting, a resumed study keeps the sources that it was started with.
        if given.warm_start and set(given.warm_start) != set(self.warm_start):
            was, now = (", ".join(names) or "none" for names in (self.warm_start, given.warm_start))
            found.append(f"warm_start: was {was}, is now {now}")
        return found

    def changes_of_meaning(self, given: Spec) -> list[str]:
        """Return a text for each setting of `given` that changes the meaning of values."""
        found = []
        if given.max_steps != self.max_steps:
            found.append(f"max_steps was {self.max_steps}, is now {given.max_steps}")
        if given.value != "auto" and given.counts_best != self.counts_best:
            was, now = ("best", "last") if self.counts_best else ("last", "best")
            found.append(f"a trial's value was its {was}, is now its {now}")
        return found

    def changes_of_data(self, given: Spec) -> list[str]:
        """Return a text for each dataset that `given` takes from another place, adds or leaves out."""
        found = []
        for name in sorted(self.data.keys() | given.data.keys()):
            was, now = (spec.data.get(name, "not given") for spec in (self, given))
            if was != now:
                found.append(f"data: {name} was {was}, is now {now}")
        return found

    def with_limits_of(self, given: Spec) -> Spec:
        """Return a spec with this study's question, and all other settings of `given`."""
        kept = {name: getattr(self, name) for name in (*_QUESTION, "moved_from")}
        # If `given` names the same searcher or stopping rule without options, the options stay.
        for part in ("searcher", "stopping"):
            options = f"{part}_options"
            if getattr(given, part) == getattr(self, part) and not getattr(given, options):
                kept[options] = getattr(self, options)
        if given.value == "auto":
            kept["value"] = self.value
        return replace(given, **kept, storage=given.storage or self.storage)


def dataset_part(name: str = "", place: str = "") -> str:
    """Return the key of a dataset's version in a fingerprint. Without arguments: the beginning of such keys."""
    return f"dataset {name} ({place})" if name else "dataset "


def data_sources(spec: Spec) -> dict[str, tuple[str, str]]:
    """Return the URL or path of each dataset, and its version when the study was started; empty if unknown."""
    return {name: (place, spec.code.get(dataset_part(name, place), "")) for name, place in spec.data.items()}


def _as_given(name: str) -> str:
    """Return the user's name of a stored setting: "deadline" for deadline_seconds."""
    return {"max_trial_seconds": "max_trial_time"}.get(name, name.split("_")[0])


def _check_name(name: str) -> None:
    """Raise SettingError for a name that could fail in a file system or a shell.

    The name of a study is also that of its folder.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise SettingError(
            f"name: {name!r} must be letters, digits, '.', '_' and '-', begin with a letter or digit, "
            "and be at most 100 long"
        )


def check_criteria(spec: Spec) -> None:
    """Check that the criteria for the end of a study suit its objectives.

    Raises SettingError for a wrong target, and for a target, patience or convergence with several objectives.
    """
    target = spec.target_value
    if target is not None:
        if isinstance(target, bool) or not isinstance(target, (int, float)):
            raise SettingError(f"target: {target!r} must be a number, a value of {spec.metric!r}")
        if not -LARGEST_INT < target < LARGEST_INT:
            raise SettingError(f"target: {target} must be finite")
    criteria = {
        "target": target,
        "patience": spec.patience,
        "stop_when_converged": spec.stop_when_converged or None,
    }
    if len(spec.objectives) > 1 and (given := [name for name, value in criteria.items() if value is not None]):
        raise SettingError(
            f"{given[0]}: needs a single objective, and there are {len(spec.objectives)}: "
            f"{join_with_and(each.metric for each in spec.objectives)}"
        )
