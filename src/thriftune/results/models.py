"""Where is the model of a trial? Finds the checkpoint that its value counts, and the best one of a study.

Which steps have a checkpoint is known from the log. A step that was saved but not reported, as its worker was
killed in between, is never used. A damaged checkpoint is passed over for the next best one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from thriftune.common.callables import one_argument_problem
from thriftune.errors import NoBestTrial, NoCheckpoint, SettingError
from thriftune.state.reports import counted_reports
from thriftune.state.trial_record import FoundModel, Report, State, TrialFiles, TrialRecord
from thriftune.store.output_files import attempts_with_output, read_output
from thriftune.training.checkpoints import Checkpoints, in_sentences
from thriftune.training.saved_steps import Saved, saved_steps

if TYPE_CHECKING:
    from thriftune.state.history import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BestModel:
    """The saved model with the best value of a study.

    - `trial`: whose model it is; it may have been stopped, or run on.
    - `step`, `value`: after which step it was saved, and the objective at that step.
    - `checkpoint`: the folder that it was saved into.
    """

    trial: TrialRecord
    step: int
    value: float
    checkpoint: Path

    def load(self, function: Callable[[Path], T]) -> T:
        """Call `function(folder)` with the checkpoint's folder and return what it returns."""
        check_loader(function)
        return function(self.checkpoint)

    def __repr__(self) -> str:
        return f"<BestModel trial={self.trial.id} step={self.step} value={self.value:.6g}>"


# --- of a trial -------------------------------------------------------------------------------------------


def find_model(trial: TrialRecord, *, verify: bool = True) -> FoundModel:
    """Return the model of a trial: the state of the step that its value is of.

    Where its best value counts, it is the best saved step's, else the last saved step's. A trial without
    checkpoints may be a command's, which wrote into the folder that it was given. `verify`: read every byte.
    """
    if not trial.folder:
        return FoundModel(None, None)
    checkpoints = _checkpoints(trial)
    there = set(checkpoints.steps())  # few: most of what was saved is gone, as it should be
    flaws: list[tuple[int, str]] = []
    for step, attempt in _candidates(trial) if there else ():
        if step not in there:
            continue
        folder, flaw = checkpoints.find(step, attempt, verify=verify)
        if folder is not None and flaw is None:
            return FoundModel(folder, step, _of_trial(trial, in_sentences(flaws, f"using step {step}")))
        if folder is not None and flaw is not None:
            flaws.append((step, flaw))
    own = Path(trial.folder) / "state"
    if not flaws and any(path.is_file() for path in own.rglob("*")):
        return FoundModel(own, None)
    return FoundModel(None, None, _of_trial(trial, in_sentences(flaws, "no other one is left")))


def load_model(trial: TrialRecord, function: Callable[[Path], T]) -> T:
    """Call `function(folder)` with the folder of the trial's model; raise NoCheckpoint if it has none."""
    check_loader(function)
    found = find_model(trial)
    for sentence in found.passed_over:
        warnings.warn(sentence, stacklevel=3)
    if found.folder is None:
        raise NoCheckpoint(why_no_model(trial))
    return function(found.folder)


def check_loader(function: object) -> None:
    """Raise SettingError for what cannot be called with a folder."""
    if not callable(function):
        raise SettingError(f"load: {function!r} is no function; give one that takes a folder and reads from it")
    if why := one_argument_problem(function):
        name = getattr(function, "__name__", type(function).__name__)
        raise SettingError(f"load: {name}() {why}; it is called with one, the checkpoint's folder")


def _checkpoints(trial: TrialRecord) -> Checkpoints:
    return Checkpoints(Path(trial.folder) / "checkpoints")


def _told(trial: TrialRecord) -> Sequence[Report]:
    """The reports that count for the trial's value."""
    return counted_reports(trial) if trial.state is State.COMPLETED else trial.reports


def _candidates(trial: TrialRecord) -> Iterator[tuple[int, int]]:
    """The step and attempt of each saved step, that of the value first, and then what comes next to it."""
    told, counting = _told(trial), trial.value_rule
    first: list[Saved] = []
    if counting is not None and counting.best:
        steps = saved_steps(told, counting.metric)
        first = sorted(steps, key=lambda each: each.rank(maximize=counting.maximize))
        yield from ((each.step, each.attempt) for each in first)
    ranked = {each.step for each in first}
    yield from ((each.step, each.attempt) for each in reversed(told) if each.saved and each.step not in ranked)


def _of_trial(trial: TrialRecord, sentences: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"trial {trial.id}: {sentence}" for sentence in sentences)


def why_no_model(trial: TrialRecord) -> str:
    """Return why a trial has no model, and how it could have one."""
    if not trial.folder:
        return (
            f"trial {trial.id} has no checkpoint: it is not known where its files are; load its study from a store"
        )
    if any(report.saved for report in trial.reports):
        return (
            f"trial {trial.id} has no good checkpoint left in {trial.folder}/checkpoints; "
            "if its study runs or was renamed meanwhile, load it again"
        )
    return (
        f"trial {trial.id} has no checkpoint: nothing was saved. Give save= to trial.report(); a command may also "
        "write into the folder THRIFTUNE_CHECKPOINT_DIR. A file that its code wrote by itself is where the code "
        f"put it, such as in trial.folder, {trial.folder}"
    )


class _FilesOnDisk:
    """Reads what trials left in their folders, for the records of a study that was loaded from a store."""

    find_model = staticmethod(find_model)
    load_model = staticmethod(load_model)
    read_output = staticmethod(read_output)
    attempts_with_output = staticmethod(attempts_with_output)


FILES_ON_DISK: TrialFiles = _FilesOnDisk()


# --- of a study -------------------------------------------------------------------------------------------


def find_best_model(history: History, *, verify: bool = True) -> tuple[BestModel | None, tuple[str, ...]]:
    """Return the saved model with the best value, if any, and what was passed over for it.

    All trials count but failed ones, and all their saved steps that meet the constraints by the metrics told until
    then. Of equals the best trial's comes first, then the earlier trial's and step's. With several objectives no
    model is the best.
    """
    if len(history.objectives) > 1:
        return None, ()
    leader = next(iter(history.front), None)
    found = [
        (step.rank(maximize=history.maximize)[1], trial is not leader, trial.id, step)
        for trial in history.trials
        if trial.state is not State.FAILED and trial.folder
        for step in saved_steps(_told(trial), history.metric, history.constraints)
        if step.feasible
    ]
    there: dict[int, set[int]] = {}  # the steps on disk, by trial
    flaws: list[str] = []
    for _, _, number, step in sorted(found):
        trial = history.trials[number]
        if number not in there:
            there[number] = set(_checkpoints(trial).steps())
        if step.step not in there[number]:
            continue
        folder, flaw = _checkpoints(trial).find(step.step, step.attempt, verify=verify)
        if folder is not None and flaw is None and step.value is not None:
            return BestModel(trial, step.step, step.value, folder), tuple(flaws)
        if folder is not None and flaw is not None:
            flaws += _of_trial(trial, in_sentences([(step.step, flaw)], "using the next best model"))
    return None, tuple(flaws)


def best_model(history: History) -> BestModel:
    """Return the saved model with the best value, and warn of what was passed over.

    Raises NoBestTrial with several objectives and if no saved model meets the constraints, NoCheckpoint if nothing
    was saved.
    """
    model, passed_over = find_best_model(history)
    for sentence in passed_over:
        warnings.warn(sentence, stacklevel=3)
    if model is None:
        raise why_no_best_model(history)
    return model


def why_no_best_model(history: History) -> NoBestTrial | NoCheckpoint:
    """Return the error that says why no saved model is the best."""
    if len(history.objectives) > 1:
        return NoBestTrial(
            f"there are {len(history.objectives)} objectives, so no single best model; see the checkpoint of each "
            "trial on the front"
        )
    counting = [trial for trial in history.trials if trial.state is not State.FAILED]
    if not any(report.saved for trial in counting for report in trial.reports):
        return NoCheckpoint(
            "no trial has saved a model with its report: give save= to trial.report(). What a command wrote into "
            "THRIFTUNE_CHECKPOINT_DIR is the checkpoint of its trial, as in result.best.checkpoint"
        )
    if history.constraints:
        return NoBestTrial(
            f"no saved model is known to meet the constraints ({', '.join(map(str, history.constraints))}); "
            "report what they need with or before each save"
        )
    return NoCheckpoint(f"no good checkpoint with a value of {history.metric!r} is left in {history.folder}")
