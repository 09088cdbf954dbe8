"""Summaries of a store's studies, as their drivers wrote them; most need no reading of logs."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from thriftune.errors import SettingError, StoreConflict, StoreError, StudyBusy, StudyDamaged
from thriftune.space.objectives import Objective, objectives_from_json
from thriftune.store.protocol import DriverInfo, Store, StudyListing

StudyState = Literal["not started", "running", "stopped", "finished", "ask-tell", "damaged"]

_ENDED = ("COMPLETED", "STOPPED", "FAILED")


@dataclass(frozen=True, slots=True, repr=False)
class StudySummary:
    """The state and progress of a study at the time when its store was read.

    - `created_at`: unix seconds.
    - `counts`: the number of trials in each state; `limit`: the limit on trials, None for no limit.
    - `finished`: why the study ended; None if it has not.
    - `best_trial`: its id ("trial"), "value", "config", "step", and whether it has "finished"; None without one.
    - `front_size`: with several objectives, the number of trials that no other trial beats; None with one
      objective.
    - `front_step`: the step of the values on the front, if its trials have not finished.
    - `seconds`, `dollars`: the time and money that the study has used.
    - `driver`: the process that runs it now.
    - `damage`: a description of the part that cannot be read; then only the name and `created_at` are known.
    """

    name: str
    created_at: float
    state: StudyState
    counts: Mapping[str, int]
    limit: int | None = None
    max_steps: int | None = None
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[str, ...] = ()
    finished: str | None = None
    best_trial: Mapping[str, Any] | None = None
    front_size: int | None = None
    front_step: int | None = None
    seconds: float = 0.0
    dollars: float = 0.0
    driver: DriverInfo | None = None
    damage: str | None = None

    @property
    def trials(self) -> int:
        """Return the number of trials in all states."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """Return the number of trials that have ended; with the paused ones once the study has finished."""
        return sum(self.counts.get(name, 0) for name in (*_ENDED, *(("PAUSED",) if self.finished else ())))

    @property
    def best(self) -> float | None:
        """Return the best value; None without a best trial, as with several objectives."""
        return None if self.best_trial is None else self.best_trial["value"]

    @property
    def best_config(self) -> Mapping[str, Any] | None:
        """Return the configuration of the best trial."""
        return None if self.best_trial is None else self.best_trial["config"]

    def __repr__(self) -> str:
        if self.damage is not None:
            return f"<StudySummary {self.name}: damaged, {self.damage}>"
        trials = f"{self.ended} of {self.limit} trials" if self.limit else f"{self.ended} trials"
        parts = [self.state, trials]
        if self.best is not None:
            parts.append(f"best {self.objectives[0].metric} {self.best:.6g}")
        elif self.front_size:
            parts.append(f"front of {self.front_size}")
        parts.append(f"created {datetime.datetime.fromtimestamp(self.created_at):%Y-%m-%d %H:%M}")
        return f"<StudySummary {self.name}: {', '.join(parts)}>"


def summaries(store: Store) -> list[StudySummary]:
    """Return a summary of every study of the store, the newest first; a damaged study has its `damage` set."""
    return [_summary_or_damage(store, listed) for listed in store.studies()]


def _summary_or_damage(store: Store, listed: StudyListing) -> StudySummary:
    damage = listed.damage
    if not damage:
        try:
            return _summary(store, listed)
        except StudyDamaged as error:
            damage = error.reason
        except (ArithmeticError, AttributeError, LookupError, SettingError, TypeError, ValueError) as error:
            damage = f"its settings cannot be read ({type(error).__name__}: {error})"
    return StudySummary(listed.name, listed.created_at, "damaged", {}, damage=damage)


def _summary(store: Store, listed: StudyListing) -> StudySummary:
    spec, summary, driver = listed.spec, listed.summary, listed.driver
    if not _is_sound(summary):
        summary = {}
    if driver is None and summary.get("entries", 0) != listed.entries:
        summary = _summary_from_log(store, listed)
    counts: dict[str, int] = dict(summary.get("counts", {}))
    if driver is None and spec["target"]["kind"] != "outside" and (interrupted := counts.pop("RUNNING", 0)):
        counts["WAITING"] = counts.get("WAITING", 0) + interrupted  # no trial runs without the study's driver
    for name in ("trials", "max_steps"):
        if not isinstance(spec.get(name), int | None):
            raise ValueError(f"{name} is {spec[name]!r}")
    return StudySummary(
        name=listed.name,
        created_at=listed.created_at,
        state=_state(listed, summary),
        counts=counts,
        limit=spec["trials"],
        max_steps=spec.get("max_steps"),
        objectives=objectives_from_json(spec),
        constraints=tuple(spec.get("constraints", ())),
        finished=summary.get("finished"),
        best_trial=summary.get("best"),
        front_size=summary.get("front_size"),
        front_step=summary.get("front_step"),
        seconds=summary.get("seconds", 0.0),
        dollars=summary.get("dollars", 0.0),
        driver=driver,
    )


def _state(listed: StudyListing, summary: Mapping[str, Any]) -> StudyState:
    if listed.spec["target"]["kind"] == "outside":
        return "ask-tell"
    if listed.driver is not None:
        return "running"
    if summary.get("finished"):
        return "finished"
    return "stopped" if summary.get("counts") else "not started"


def _is_sound(summary: Mapping[str, Any]) -> bool:
    """Return whether a summary has the form in which summarize() writes it."""
    counts, best = summary.get("counts", {}), summary.get("best")
    if not isinstance(counts, dict) or not all(isinstance(count, int) for count in counts.values()):
        return False
    if not all(isinstance(summary.get(name, 0.0), int | float) for name in ("seconds", "dollars")):
        return False
    if not all(isinstance(summary.get(name), int | None) for name in ("front_size", "front_step")):
        return False
    return best is None or (
        isinstance(best, dict)
        and isinstance(best.get("value"), int | float)
        and isinstance(best.get("config"), dict)
        and isinstance(best.get("step", 0), int | None)
    )


def _summary_from_log(store: Store, listed: StudyListing) -> dict[str, Any]:
    """Compute and store the summary of a study whose driver was killed before it could write one."""
    from thriftune.results.loading import load_history, load_spec
    from thriftune.state.summary import summarize  # late: most listings need neither

    history = load_history(store, load_spec(store, listed.name))
    summary = summarize(history, history.last_at)
    with contextlib.suppress(StudyBusy, StoreConflict, StoreError), store.drive(listed.name):
        store.append(listed.name, history.entries, [], summary)
    return summary
