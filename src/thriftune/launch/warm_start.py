"""Copy what sources know into a new study, for a warm start, and tell the user what was copied.

A source is a study that is already loaded, or a string: the name of a study in the same store, or "other.db:name".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, nan
from typing import NamedTuple

from thriftune.common.formatting import plural
from thriftune.errors import SettingError
from thriftune.search import MODEL_FREE
from thriftune.settings.study_paths import store_and_name
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
"""States of trials with values: finished, stopped early, or paused."""


def name_of(source: Source) -> str:
    """Return the name of the study that a source stands for."""
    return source.spec.name if isinstance(source, KnownStudy) else store_and_name(source)[1]


def same_store(sources: Iterable[Source]) -> bool:
    """Return whether any source is in the new study's own store, which must exist then."""
    return any(isinstance(source, str) and not store_and_name(source)[0] for source in sources)


def check_not_itself(sources: Iterable[Source], name: str, study_id: str | None) -> None:
    """Raise SettingError if a study would learn from itself. `study_id`: of the existing study of that name."""
    if any(source == name if isinstance(source, str) else source.spec.id == study_id for source in sources):
        raise SettingError(
            f"warm_start: study {name!r} cannot learn from itself; give the new study another name, "
            "or leave warm_start out to go on with the existing one"
        )


def knowledge(sources: Sequence[KnownStudy], asked: Spec, now: float) -> list[ev.WarmStarted]:
    """Return the first log entries of the new study `asked`: one for each study with a usable trial.

    These studies are the sources and the studies that the sources have learned from. A study that several sources
    know is taken once: from the study itself if it is a source, otherwise from the copy with the most trials.
    Called once, when the study is created.
    """
    own = _longest(_known_to(source, asked) for source in sources)
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


def _known_to(source: KnownStudy, asked: Spec) -> EarlierStudy:
    """Return what a source knows about the new study's metric, or about its own if it lacks that metric."""
    spec = source.spec
    same = any(asked.metric in trial.metrics for trial in source.history.trials)
    metric, maximize = (asked.metric, asked.maximize) if same else (spec.metric, spec.maximize)
    own = None if metric == spec.metric else metric
    valued = [t for t in source.history.trials if t.state in _HAS_ENDED and isfinite(_value(t, own))]
    usable = [trial for trial in valued if _may_be_used(trial, source, asked)]
    values, step = _final_values(usable, own, maximize)
    # Failed trials, and trials that break a constraint, show which configurations to avoid.
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
    """Return the final value of each trial and its variance, keyed by trial id.

    For a trial that was stopped early, this is an estimate, with a variance above 0. Its last value is not
    used: if the metric rises during training, that value is lower than the last value of a finished trial. A
    trial is omitted if too few trials went on from its last step. If too few trials have finished, all values
    are those at one step. This step is the second value returned, which is otherwise None.

    `metric`: None for the first objective of the trials' own study.
    """
    if all(trial.finished for trial in trials):
        return {trial.id: (_value(trial, metric), 0.0) for trial in trials}, None
    from thriftune.search.bayes.final_values import final_values  # imports SciPy

    return final_values(trials, metric, maximize=maximize)


def _value(trial: TrialRecord, metric: str | None) -> float:
    value = trial.value if metric is None else trial.metrics.get(metric)
    return nan if value is None else value


def _may_be_used(trial: TrialRecord, source: KnownStudy, asked: Spec) -> bool:
    """Return whether a trial meets the constraints of the new study, or of its own study if that is unknown."""
    allowed = feasible(trial.metrics, asked.constraints)
    return (source.history.feasible(trial) if allowed is None else allowed) is not False


def taken(spec: Spec, history: History) -> list[tuple[str, int]]:
    """Return the studies that this one learned from, and how many trials of each fit into its space."""
    counts = [(each.study, len(translate(each, spec.space).configs)) for each in history.earlier]
    return counts + [(name, 0) for name in _without_trials(spec, history)]


def remarks(spec: Spec, history: History) -> Iterator[tuple[str, bool]]:
    """Yield a line on each source, and whether it tells something unexpected."""
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
    for name in _without_trials(spec, history):
        yield f"warm start from {name!r}: nothing taken, as no trial of it had ended with a value", True
    if spec.warm_start and spec.searcher.lower() in MODEL_FREE:
        yield f"warm start: {spec.searcher} search takes no account of it; use another searcher", True


def _without_trials(spec: Spec, history: History) -> list[str]:
    """Return the sources that had no trial to learn from."""
    with_trials = {each.study for each in history.earlier}
    return [name for name in spec.warm_start if name not in with_trials]
