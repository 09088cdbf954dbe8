"""Search for the checkpoint of a trial's value (its model), and for the best model of a study.

The log lists the steps that have a checkpoint. A step that was saved but not reported is never used: its worker
was killed in between. A damaged checkpoint is skipped, and the next best one is used. Models in an object store
are fetched when they are verified; see saved_models.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from thriftune.common.callables import one_argument_problem
from thriftune.errors import NoBestTrial, NoCheckpoint, SettingError
from thriftune.object_store.opening import open_objects
from thriftune.results.saved_models import (
    MISSING,
    ModelsInFolder,
    ModelsInObjectStore,
    SavedModel,
    SavedModels,
    fetched_folder,
)
from thriftune.state.reports import counted_reports
from thriftune.state.trial_record import FoundModel, Report, State, TrialFiles, TrialRecord
from thriftune.store.output_files import attempts_with_output, read_output
from thriftune.store.study_files import StudyFiles
from thriftune.training.checkpoint_files import in_sentences
from thriftune.training.saved_steps import SavedStep, saved_steps

if TYPE_CHECKING:
    from thriftune.state.history import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BestModel:
    """The saved model with the best value of a study.

    - `trial`: the trial that saved the model; it may have been stopped early, or have trained further since.
    - `step`, `value`: the step after which the model was saved, and the objective at that step.
    - `checkpoint`: the folder that the model was saved into, or fetched into from an object store.
    - `where`: the same as a text. In a list of models that were not fetched, the place in the object store.
    """

    trial: TrialRecord
    step: int
    value: float
    checkpoint: Path
    where: str = ""

    def load(self, function: Callable[[Path], T]) -> T:
        """Call `function(folder)` with the checkpoint's folder and return what it returns."""
        check_loader(function)
        return function(self.checkpoint)

    def __repr__(self) -> str:
        return f"<BestModel trial={self.trial.id} step={self.step} value={self.value:.6g}>"


# --- the model of a trial ---------------------------------------------------------------------------------


def find_model(trial: TrialRecord, *, verify: bool = True) -> FoundModel:
    """Return the model of a trial: the checkpoint of the step whose value is the trial's.

    If the best value counts, it is the checkpoint with the best value, else the last one. A trial without
    checkpoints may have run a command, which wrote into the folder that THRIFTUNE_CHECKPOINT_DIR names. `verify`
    reads every byte, and fetches a model that is in an object store.
    """
    if not trial.folder:
        return FoundModel(None, None)
    models = _saved_models(trial)
    flaws: list[tuple[int, str]] = []
    for index, (step, attempt) in enumerate(_candidates(trial)):
        model = models.find(step, attempt, verify=verify)
        if model is not None and model.flaw is None:
            return FoundModel(model.folder, step, _passed_over(trial, flaws, f"using step {step}"), model.where)
        if model is not None and _is_damaged(model, is_first=index == 0):
            assert model.flaw is not None
            flaws.append((step, model.flaw))
    of_command = None if flaws else models.of_command(verify=verify)
    if of_command is not None and of_command.flaw is None:
        return FoundModel(of_command.folder, None, (), of_command.where)
    return FoundModel(None, None, _passed_over(trial, flaws, "no other one is left"))


def load_model(trial: TrialRecord, function: Callable[[Path], T]) -> T:
    """Call `function(folder)` with the folder of the trial's model; raise NoCheckpoint if it has none."""
    check_loader(function)
    model = find_model(trial)
    for sentence in model.passed_over:
        warnings.warn(sentence, stacklevel=3)
    if model.folder is None:
        raise NoCheckpoint(why_no_model(trial))
    return function(model.folder)


def check_loader(function: object) -> None:
    """Raise SettingError if the function cannot be called with a folder."""
    if not callable(function):
        raise SettingError(f"load: {function!r} is not a function; give one that takes a folder and reads from it")
    if why := one_argument_problem(function):
        name = getattr(function, "__name__", type(function).__name__)
        raise SettingError(f"load: {name}() {why}; it is called with one, the checkpoint's folder")


def _saved_models(trial: TrialRecord) -> SavedModels:
    files = trial.files
    return files.saved_models(trial) if isinstance(files, _ModelFiles) else ModelsInFolder(Path(trial.folder))


def _reports_for_value(trial: TrialRecord) -> Sequence[Report]:
    """Return the reports that count for the trial's value."""
    return counted_reports(trial) if trial.state is State.COMPLETED else trial.reports


def _candidates(trial: TrialRecord) -> Iterator[tuple[int, int]]:
    """Yield the step and attempt of each saved step, the most suitable as the trial's model first.

    If the best value counts, steps with a value come first, ranked by it. The others follow, the last step first.
    """
    reports, rule = _reports_for_value(trial), trial.value_rule
    ranked: list[SavedStep] = []
    if rule is not None and rule.best:
        steps = saved_steps(reports, rule.metric)
        ranked = sorted(steps, key=lambda saved: saved.rank(maximize=rule.maximize))
        yield from ((saved.step, saved.attempt) for saved in ranked)
    ranked_steps = {saved.step for saved in ranked}
    yield from (
        (report.step, report.attempt)
        for report in reversed(reports)
        if report.saved and report.step not in ranked_steps
    )


def _is_damaged(model: SavedModel, *, is_first: bool) -> bool:
    """Return whether a model is damaged or lost. `is_first`: it is the best one of its trial, which is kept."""
    return model.flaw is not None and (is_first or model.flaw != MISSING)


def _passed_over(trial: TrialRecord, flaws: Sequence[tuple[int, str]], instead: str) -> tuple[str, ...]:
    """Return a sentence for each step and flaw. `instead`: how the sentence ends."""
    sentences: list[str] = []
    for step, flaw in flaws:
        if flaw == MISSING:
            sentences.append(f"checkpoint of step {step} is {MISSING}; {instead}")
        else:
            sentences += in_sentences([(step, flaw)], instead)
    return tuple(f"trial {trial.id}: {sentence}" for sentence in sentences)


def why_no_model(trial: TrialRecord) -> str:
    """Return why a trial has no model, and what to do about it."""
    if not trial.folder:
        return f"trial {trial.id} has no checkpoint: its folder is not known; load its study from a store"
    if any(report.saved for report in trial.reports):
        where = "the object store" if trial.checkpoints else f"{trial.folder}/checkpoints"
        return (
            f"trial {trial.id} has no good checkpoint left in {where}; "
            "if its study is running or was renamed since, load it again"
        )
    return (
        f"trial {trial.id} has no checkpoint: nothing was saved. Give save= to trial.report(); a command may also "
        "write into the folder THRIFTUNE_CHECKPOINT_DIR. Files that the training code wrote itself are where it "
        f"wrote them, for example in trial.folder, {trial.folder}"
    )


class _ModelFiles:
    """Reads the files of trials of a study that was loaded from a store."""

    find_model = staticmethod(find_model)
    load_model = staticmethod(load_model)
    read_output = staticmethod(read_output)
    attempts_with_output = staticmethod(attempts_with_output)

    def saved_models(self, trial: TrialRecord) -> SavedModels:
        """Return the saved models of a trial."""
        return ModelsInFolder(Path(trial.folder))


class _ModelFilesInObjectStore(_ModelFiles):
    """The same for a study whose checkpoints are in an object store. Its output is in the trials' folders."""

    def __init__(self, files: StudyFiles) -> None:
        self._study = files

    def saved_models(self, trial: TrialRecord) -> SavedModels:
        cache = fetched_folder(Path(trial.folder), self._study.owner, owned=self._study.is_owned)
        return ModelsInObjectStore(trial, self._study.objects, open_objects, cache)


def files_of_trials(files: StudyFiles) -> TrialFiles:
    """Return the reader of a study's checkpoints and output, for a folder or for an object store."""
    return _ModelFilesInObjectStore(files) if files.objects else _ModelFiles()


# --- the best model of a study ----------------------------------------------------------------------------


def find_best_model(history: History, *, verify: bool = True) -> tuple[BestModel | None, tuple[str, ...]]:
    """Return the saved model with the best value, if any, and a sentence for each better one that was skipped.

    All saved steps of all trials compete, except those of failed trials and those that do not meet the constraints
    by the metrics reported until then. Among equal values, the best trial comes first, then the lowest trial id,
    then the lowest step. With several objectives, no model is the best.
    """
    if len(history.objectives) > 1:
        return None, ()
    leader = next(iter(history.front), None)
    candidates = [
        (saved.rank(maximize=history.maximize)[1], trial is not leader, trial.id, saved)
        for trial in history.trials
        if trial.state is not State.FAILED and trial.folder
        for saved in saved_steps(_reports_for_value(trial), history.metric, history.constraints)
        if saved.feasible
    ]
    saved_models: dict[int, SavedModels] = {}  # by trial id
    skipped: list[str] = []
    for _, _, trial_id, saved in sorted(candidates):
        trial = history.trials[trial_id]
        if is_first := trial_id not in saved_models:
            saved_models[trial_id] = _saved_models(trial)
        model = saved_models[trial_id].find(saved.step, saved.attempt, verify=verify)
        if model is not None and model.flaw is None and saved.value is not None:
            return BestModel(trial, saved.step, saved.value, model.folder, model.where), tuple(skipped)
        if model is not None and _is_damaged(model, is_first=is_first):
            assert model.flaw is not None
            skipped += _passed_over(trial, [(saved.step, model.flaw)], "using the next best model")
    return None, tuple(skipped)


def best_model(history: History) -> BestModel:
    """Return the saved model with the best value, and warn of each better one that is damaged.

    Raises NoBestTrial with several objectives or if no saved model meets the constraints, NoCheckpoint if nothing
    was saved.
    """
    model, skipped = find_best_model(history)
    for sentence in skipped:
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
    candidates = [trial for trial in history.trials if trial.state is not State.FAILED]
    if not any(report.saved for trial in candidates for report in trial.reports):
        return NoCheckpoint(
            "no trial has saved a model with its report: give save= to trial.report(). The files that a command "
            "wrote into THRIFTUNE_CHECKPOINT_DIR are the checkpoint of its trial, as in result.best.checkpoint"
        )
    if history.constraints:
        return NoBestTrial(
            f"no saved model is known to meet the constraints ({', '.join(map(str, history.constraints))}); "
            "report their metrics with or before each save"
        )
    return NoCheckpoint(f"no good checkpoint with a value of {history.metric!r} is left in {history.folder}")
