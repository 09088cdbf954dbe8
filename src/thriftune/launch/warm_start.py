"""What does a study begin with? What others know, copied into its log, and what is said of it.

A source is given as a result, or as a string: the name of a study in the same store, or "other.db:name".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple

from thriftune.common.formatting import plural
from thriftune.errors import SettingError
from thriftune.search import BLIND
from thriftune.space.objectives import feasible
from thriftune.state import events as ev
from thriftune.state.earlier_results import FEWEST, EarlierStudy, translate
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord


class KnownStudy(NamedTuple):
    """A study that a new one may start from, already loaded."""

    spec: Spec
    history: History


Source = str | KnownStudy

_HAS_ENDED = (State.COMPLETED, State.STOPPED, State.PAUSED)
"""States of trials with values: finished, cut, or set aside before their last step."""


# --- how it is named --------------------------------------------------------------------------------------


def place_and_name(source: str) -> tuple[str, str]:
    """Of the store, nothing if it is the new study's own, and of the study. No study's name has a colon."""
    place, _, name = source.rpartition(":")
    return place, name


def name_of(source: Source) -> str:
    return source.spec.name if isinstance(source, KnownStudy) else place_and_name(source)[1]


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


def knowledge(sources: Sequence[KnownStudy], asked: Spec, now: float) -> list[ev.WarmStarted]:
    """Return the first log entries of the new study `asked`: one for each source that knows anything.

    Called once, when the study is created. A source also hands on what it started from itself. A study that comes
    from several sources is taken once: from itself if it is a source, else from the copy with the most trials.
    """
    own = _longest(_told_by(source, asked) for source in sources)
    copies = _longest(copy for source in sources for copy in source.history.earlier)
    return [
        ev.WarmStarted(
            now,
            each.study,
            each.space.to_json(),
            each.metric,
            each.maximize,
            each.trials,
            each.id,
            each.variances,
            each.step,
        )
        for each in (own | {key: copy for key, copy in copies.items() if key not in own}).values()
        if each.trials
    ]


def _longest(known: Iterable[EarlierStudy]) -> dict[tuple[str, str], EarlierStudy]:
    """Return for each study the copy with the most trials, keyed by id and name."""
    found: dict[tuple[str, str], EarlierStudy] = {}
    for each in known:
        before = found.get((each.id, each.study))
        if before is None or len(each.trials) > len(before.trials):
            found[each.id, each.study] = each
    return found


def _told_by(source: KnownStudy, asked: Spec) -> EarlierStudy:
    """Return what a source knows of the new study's metric, or of its own if its trials lack that one."""
    spec = source.spec
    same = any(asked.metric in trial.metrics for trial in source.history.trials)
    metric, maximize = (asked.metric, asked.maximize) if same else (spec.metric, spec.maximize)
    own = None if metric == spec.metric else metric
    valued = [t for t in source.history.trials if t.state in _HAS_ENDED and isfinite(_value(t, own))]
    usable = [trial for trial in valued if _may_be_used(trial, source, asked)]
    values, step = _final_values(usable, own, maximize)
    # Failed trials and those that break a constraint tell where not to go.
    bad = {trial.id for trial in source.history.trials if trial.state is State.FAILED}
    bad |= {trial.id for trial in valued} - {trial.id for trial in usable}
    taken = [trial for trial in source.history.trials if trial.id in bad or trial.id in values]
    found = [values.get(trial.id, (None, 0.0)) for trial in taken]
    trials = tuple((trial.config, value) for trial, (value, _) in zip(taken, found, strict=True))
    variances = tuple(variance for _, variance in found) if any(variance for _, variance in found) else ()
    return EarlierStudy(spec.name, spec.space, metric, maximize, trials, spec.id, variances, step)


def _final_values(
    trials: Sequence[TrialRecord], metric: str | None, maximize: bool
) -> tuple[dict[int, tuple[float, float]], int | None]:
    """Return the final value of each trial and its variance, keyed by trial id; guesses for trials that were cut.

    The last value of a trial that was cut is not final: where a metric rises while training, it looks better than
    that of a finished trial. A trial is left out if nothing is known of how trials go on from where it was cut.
    Where too few have finished, the values are those at one step, which is returned too. `metric`: None for the
    first objective of the trials' own study.
    """
    if all(trial.finished for trial in trials):
        return {trial.id: (_value(trial, metric), 0.0) for trial in trials}, None
    from thriftune.search.bayes.unfinished import final_values  # imports SciPy

    return final_values(trials, metric, maximize=maximize)


def _value(trial: TrialRecord, metric: str | None) -> float:
    value = trial.value if metric is None else trial.metrics.get(metric)
    return nan if value is None else value


def _may_be_used(trial: TrialRecord, source: KnownStudy, asked: Spec) -> bool:
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
        if spec.searcher == "bayes" and translated.measured < FEWEST:
            notes = [*notes, f"fewer than {FEWEST} have a measured value that may be used, too few to learn from"]
        counts = f"{len(translated.configs)} of {plural(len(each.trials), 'trial')} taken"
        if guessed := sum(map(bool, translated.variances)):
            what = "final value" if each.step is None else f"value at step {each.step}"
            counts += f", {guessed} of them cut, with a guess of their {what}"
        if each.step is not None:
            whose = "the others with their values" if guessed else "with their values"
            counts += f", {whose} at step {each.step}, as too few finished"
        yield "; ".join([f"warm start from {each.study!r}: {counts}", *notes]), bool(notes)
    for name in _had_none(spec, history):
        yield f"warm start from {name!r}: nothing taken, as no trial of it had ended with a value", True
    if spec.warm_start and spec.searcher.lower() in BLIND:
        yield f"warm start: {spec.searcher} search takes no account of it; use another searcher", True


def _had_none(spec: Spec, history: History) -> list[str]:
    told = {each.study for each in history.earlier}
    return [name for name in spec.warm_start if name not in told]
