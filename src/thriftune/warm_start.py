"""What does a study begin with? What others know, copied into its log, and what is said of it.

A source is given as a result, or as a string: the name of a study in the same store, or "other.db:name".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path

from thriftune import events as ev
from thriftune.earlier import Earlier, translate
from thriftune.errors import SettingError
from thriftune.history import History
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


def knowledge(sources: Sequence[Result], now: float) -> list[ev.WarmStarted]:
    """What the sources know now, to begin a log with: one entry each, none for one with nothing to tell.

    A source hands on what it began with itself, too, so that studies can follow one upon another. What comes by
    several ways is taken once, as it was last.
    """
    own = [_told_by(source) for source in sources]
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


def _told_by(source: Result) -> Earlier:
    spec = source.spec
    trials = tuple((trial.config, _value(trial)) for trial in source.trials if _tells(trial))
    return Earlier(spec.name, spec.space, spec.metric, spec.maximize, trials, spec.id)


def _tells(trial: TrialRecord) -> bool:
    """It has ended, or was set aside, with a value; or it failed, which tells where not to go."""
    has_had_its_chance = trial.state in (State.COMPLETED, State.STOPPED, State.PAUSED)
    return trial.state is State.FAILED or (has_had_its_chance and _value(trial) is not None)


def _value(trial: TrialRecord) -> float | None:
    if trial.state is State.FAILED or trial.value is None or not isfinite(trial.value):
        return None
    return trial.value


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
        counts = f"{len(translated.configs)} of {several(len(each.trials), 'trial')} taken"
        yield "; ".join([f"warm start from {each.study!r}: {counts}", *notes]), bool(notes)
    for name in _had_none(spec, history):
        yield f"warm start from {name!r}: nothing taken, as no trial of it had ended", True
    if spec.warm_start and spec.searcher.lower() in BLIND:
        yield f"warm start: {spec.searcher} search takes no account of it; use another searcher", True


def _had_none(spec: Spec, history: History) -> list[str]:
    told = {each.study for each in history.earlier}
    return [name for name in spec.warm_start if name not in told]
