"""What does a study begin with? What others know, copied into its log, and what is said of it.

A source is given as a result, or as a string: the name of a study in the same store, or "other.db:name".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, nan
from pathlib import Path

from thriftune import events as ev
from thriftune.earlier import FEWEST, Earlier, translate
from thriftune.errors import SettingError
from thriftune.history import History
from thriftune.objectives import feasible
from thriftune.result import Result
from thriftune.search import BLIND
from thriftune.spec import Spec
from thriftune.trial import State, TrialRecord
from thriftune.words import several

Source = str | Result


# --- how it is named --------------------------------------------------------------------------------------


def place_and_name(source: str) -> tuple[str, str]:
    """Of the store, nothing if it is the new study's own, and of the study. No study's name has a colon."""
    place, _, name = source.rpartition(":")
    return place, name


def name_of(source: Source) -> str:
    return source.name if isinstance(source, Result) else place_and_name(source)[1]


def in_folder(folder: Path, source: str) -> str:
    """A source whose path is relative to this folder, as one that holds anywhere."""
    place, name = place_and_name(source)
    return f"{folder / Path(place).expanduser()}:{name}" if place and "://" not in place else source


def same_store(sources: Iterable[Source]) -> bool:
    """Whether any of them is looked up in the new study's own store, which then must be there."""
    return any(isinstance(source, str) and not place_and_name(source)[0] for source in sources)


def check_not_itself(sources: Iterable[Source], name: str, study_id: str | None) -> None:
    """`study_id`: of the study of that name, if there is one already."""
    if any(source == name if isinstance(source, str) else source.spec.id == study_id for source in sources):
        raise SettingError(
            f"warm_start: study {name!r} cannot begin with itself; give the new one another name, "
            "or leave warm_start out to go on with the one there is"
        )


# --- what is copied ---------------------------------------------------------------------------------------


def knowledge(sources: Sequence[Result], asked: Spec, now: float) -> list[ev.WarmStarted]:
    """What the sources know now that `asked` may want to, to begin its log with: one entry each, none for one with
    nothing to tell.

    A source hands on what it began with itself, too, so that studies can follow one upon another. What comes by
    several ways is taken once, as it was last.
    """
    own = [_told_by(source, asked) for source in sources]
    handed_on = [each for source in sources for each in source.history.earlier]
    known: dict[tuple[str, str], Earlier] = {}
    for each in own + handed_on:
        before = known.get((each.id, each.study))
        if before is None or len(each.trials) > len(before.trials):
            known[each.id, each.study] = each
    return [
        ev.WarmStarted(now, each.study, each.space.to_json(), each.metric, each.maximize, each.trials, each.id)
        for each in known.values()
        if each.trials
    ]


def _told_by(source: Result, asked: Spec) -> Earlier:
    """Of the metric that the new study is about, where the source's trials have it; else of their own."""
    spec = source.spec
    same = any(asked.metric in trial.metrics for trial in source.trials)
    metric, maximize = (asked.metric, asked.maximize) if same else (spec.metric, spec.maximize)
    trials: list[tuple[ev.Config, float | None]] = []
    for trial in source.trials:
        value = trial.metrics.get(metric, nan)
        if trial.state is State.FAILED:  # which tells where not to go
            trials.append((trial.config, None))
        elif trial.state in (State.COMPLETED, State.STOPPED, State.PAUSED) and isfinite(value):
            trials.append((trial.config, value if _may_be_used(trial, source, asked) else None))
    return Earlier(spec.name, spec.space, metric, maximize, tuple(trials), spec.id)


def _may_be_used(trial: TrialRecord, source: Result, asked: Spec) -> bool:
    """By the new study's constraints as far as its metrics tell, else by those of its own study."""
    allowed = feasible(trial.metrics, asked.constraints)
    return (source.history.feasible(trial) if allowed is None else allowed) is not False


# --- what is said of it -----------------------------------------------------------------------------------


def taken(spec: Spec, history: History) -> list[tuple[str, int]]:
    """The studies it began with, and how many trials of each have a place in its space."""
    found = [(each.study, len(translate(each, spec.space).configs)) for each in history.earlier]
    return found + [(name, 0) for name in _had_none(spec, history)]


def remarks(spec: Spec, history: History) -> Iterator[tuple[str, bool]]:
    """A line on each source; and whether it says more than that all is as one would expect."""
    for each in history.earlier:
        translated = translate(each, spec.space)
        notes = translated.notes
        if (each.metric, each.maximize) != (spec.metric, spec.maximize):
            notes = [*notes, f"its aim was to {'maximize' if each.maximize else 'minimize'} {each.metric}"]
        if spec.searcher == "bayes" and sum(value is not None for value in translated.values) < FEWEST:
            notes = [*notes, f"fewer than {FEWEST} have a value that may be used, too few to learn from"]
        counts = f"{len(translated.configs)} of {several(len(each.trials), 'trial')} taken"
        yield "; ".join([f"warm start from {each.study!r}: {counts}", *notes]), bool(notes)
    for name in _had_none(spec, history):
        yield f"warm start from {name!r}: nothing taken, as no trial of it had ended", True
    if spec.warm_start and spec.searcher.lower() in BLIND:
        yield f"warm start: {spec.searcher} search takes no account of it; use another searcher", True


def _had_none(spec: Spec, history: History) -> list[str]:
    told = {each.study for each in history.earlier}
    return [name for name in spec.warm_start if name not in told]
