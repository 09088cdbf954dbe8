"""The handle of a live trial that a training function is given.

It runs in a worker process, so this module imports nothing heavy. What the store knows of a trial is its
TrialRecord, in state/trial_record.py.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.common.callables import function_name, one_argument_problem
from thriftune.common.clock import wall_time
from thriftune.errors import SettingError
from thriftune.state.attributes import checked_attribute
from thriftune.state.config_access import ConfigAccess, unknown_name_warning
from thriftune.state.events import AttributeSet, Config, DiskFull, Event, Metrics, Reported, Warned
from thriftune.state.metrics import checked_metrics, missing_metrics_error
from thriftune.training.checkpoints import Checkpoints, DiskFullError, Loaded
from thriftune.training.run import COUNTED, EndTrial, Gang, Link, Run, StepGauge, TrialFailed
from thriftune.training.saved_steps import SavedSteps

if TYPE_CHECKING:
    from thriftune.training.distributed import Distributed, Group, Piece


_PATIENCE_SHARE, _PATIENCE_SECONDS = 0.1, 5.0
"""Where trials are judged, each waits after a report to hear whether it shall go on: for a tenth of the time that
the step took, at most. What is not worth another step should not begin it; what is should hardly wait."""


class Trial(ConfigAccess):
    """One attempt at one configuration, as the training function sees it."""

    def __init__(self, run: Run, link: Link, gang: Gang | None = None, gauge: StepGauge | None = None) -> None:
        """`gang`: the other workers, if there are any; but a command's own trial has none: its worker has.
        `gauge`: measures how it uses its machine, where that is wanted."""
        self.run = run
        self.gang = gang
        self._gauge = gauge
        self.warns_past_end = True  # of a report past the last step; once, and not of a command's
        self.in_step = True  # its workers look alike often whether to end; those of a command do not
        self._link = link
        self._group: Group | None = None
        self._checkpoints = Checkpoints(Path(run.folder) / "checkpoints", keep=run.keep)
        self._saved_steps = SavedSteps(run)
        # Step and attempt of the checkpoint that the log would have a next attempt go on from.
        self._resumable = (run.resume_step, run.attempt - 1)
        self._step = 0  # the last step done (restored or reported)
        self._next_steps = itertools.count(1)  # steps of reports outside of steps(); its next() is atomic
        self._current: int | None = None  # the step that steps() is in
        self._reports = 0  # the number of the last report
        self._reported: dict[str, None] = {}  # the names of metrics, in order
        self._measuring = threading.RLock()  # of the gauge
        self._saving = threading.RLock()  # held from the choice of the step until its report is sent
        self._in_save = False  # true only in the thread that holds _saving: save() runs
        self._unanswered = False  # a report was made, and nobody has waited for its answer
        self._reported_at = time.monotonic()
        self._patience_seconds = 0.0
        self._saved_at = time.monotonic()
        self._unsaved: tuple[int, Metrics, Callable[[Path], object]] | None = None  # the step reported last, if so
        self._loops = False  # the training function loops over steps()
        self.cut = False  # ended because told to, before its own end
        self._unread = run.config.keys() - set(run.asked_of)  # active parameters that should have been read
        self._missed: set[str] = set()  # names that get() was asked for and the space does not have

    @property
    def id(self) -> int:
        return self.run.trial

    @property
    def metric(self) -> str:
        """The name of the metric to optimise; of several, the first."""
        return self.run.objectives[0]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self)

    @property
    def attempt(self) -> int:
        """1 for the first attempt, and one more for each restart."""
        return self.run.attempt

    @property
    def seed(self) -> int:
        """A seed of this trial's own: the same on every attempt and machine, another for every trial."""
        return self.run.seed

    @property
    def max_steps(self) -> int | None:
        return self.run.max_steps

    @property
    def system(self) -> Mapping[str, Any]:
        """How this trial shall use its machine now: by name, what `tt.System(options=...)` lets vary, and what
        knobs were turned. It may change between steps: look at the beginning of each."""
        return {**self.run.options, **(self._gauge.setting if self._gauge is not None else {})}

    @property
    def rank(self) -> int:
        """Which of the trial's workers this one is, from 0."""
        return self.run.rank

    @property
    def world_size(self) -> int:
        """How many workers the trial has: so many processes run the training function."""
        return self.run.workers if self.run.meet else 1

    def distributed(self, backend: str | None = None) -> Distributed:
        """Sets torch.distributed up among the trial's workers, or for the only one; once. Ends with the attempt.

        The backend is NCCL where there is CUDA, else Gloo.
        """
        if self._group is None:
            from thriftune.training.distributed import Group

            self._group = Group(self.run, self.gang, backend)
        return self._group.seen

    def pieces(self, batch_size: int, most: int | None = None) -> list[Piece]:
        """This worker's share of a batch, in pieces of at most `most` samples; so that the batch is as large as
        was asked for, however many workers there are and whatever fits into their memory."""
        from thriftune.training.distributed import pieces

        return pieces(batch_size, self.rank, self.world_size, most)

    def leave(self) -> None:
        """Ends what distributed() set up; never hangs."""
        if self._group is not None:
            self._group.end()

    @property
    def folder(self) -> Path:
        """A folder of this trial's own, kept between attempts."""
        folder = Path(self.run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _active(self) -> Config:
        return self.run.config

    def _known(self) -> Sequence[str]:
        return self.run.names or tuple(self.run.config)

    def _note_read(self, name: str) -> None:
        self._unread.discard(name)

    def _note_unknown(self, name: str) -> None:
        if self.run.names and name not in self.run.names and name not in self._missed:
            self._missed.add(name)
            message = unknown_name_warning(name, self.run.names)
            self.relay(Warned(wall_time(), self.id, self.attempt, message, once=True))

    @property
    def unread(self) -> list[str]:
        """The active parameters whose values nobody has asked for, in the order of the space.

        One that conditions of others ask of is not among them: its value may be told by what is active.
        """
        return [name for name in self.run.config if name in self._unread]

    def restore(self, load: Callable[[Path], object]) -> int:
        """Calls `load(folder)` with the last good checkpoint; no-op on a fresh trial. Returns its step, or 0."""
        # Checked also where there is nothing to load: a retry is late to find out.
        if not callable(load):
            raise SettingError(f"restore: {load!r} is no function; give one that takes a folder and reads from it")
        if why := one_argument_problem(load):
            raise SettingError(
                f"restore: {function_name(load)}() {why}; it is called with one, the checkpoint's folder"
            )
        if not self.run.resume_step:
            return 0
        found = self._find()
        for sentence in found.passed_over:
            self.relay(Warned(wall_time(), self.id, self.attempt, sentence))
        if found.folder is None:
            return 0
        load(found.folder)
        if self.gang is not None:
            self.gang.await_others("restored")  # before the first goes on, and removes old checkpoints
        self._set_step(found.step)
        return found.step

    def _find(self) -> Loaded:
        """The last good checkpoint: the one that the first worker finds."""
        if self.run.rank == 0 or self.gang is None:
            found = self._checkpoints.load(at_most=self.run.resume_step)
            if self.gang is not None:
                self.gang.share("checkpoint", found.step)
            return found
        step = self._hear("checkpoint")
        if step == 0:
            return Loaded(0, None, ())
        found = self._checkpoints.load(at_most=step)
        if found.step != step:
            raise SettingError(
                f"worker {self.rank} does not find the checkpoint of step {step} that the first worker has found "
                f"in {self._checkpoints.folder}: the machines of a trial must share the folder of the study"
            )
        return found

    def _hear(self, what: str) -> Any:
        """What the first worker says."""
        assert self.gang is not None
        try:
            return self.gang.share(what, None)
        except EndTrial:  # the first is gone
            self.cut = True
            raise

    def steps(self) -> Iterator[int]:
        """The numbers of the steps left to do, from 1 or from after the restored one; ends when told to."""
        if self.run.max_steps is None:
            raise SettingError("trial.steps() needs to know how many: give max_steps= to tune()")
        self._loops = True
        self._current = self._step or None  # a report after the last step is about that step
        for step in range(self._step + 1, self.run.max_steps + 1):
            if self.told_to_end():
                self._save_late()
                return
            self._current = step
            self._begin_step(step)
            yield step

    def _begin_step(self, step: int) -> None:
        if self._gauge is not None:
            with self._measuring:
                problems = self._gauge.next_step(step)
            for problem in problems:
                self.relay(Warned(wall_time(), self.id, self.attempt, problem))

    def report(
        self,
        metrics: Mapping[str, float] | None = None,
        /,
        *,
        step: int | None = None,
        save: Callable[[Path], object] | None = None,
        **more: float,
    ) -> None:
        """Records how the trial stands after this step. On return, the report is safe whatever is killed.

        `save(folder)` writes the trial's state into a folder; it becomes visible whole or not at all. It is called
        now, or where saving each step is more than the machine's dangers ask for, at a later step or when the
        trial is to end. The step is the one steps() is in; outside of steps(), one after the last report, or as
        given.

        Any thread may call it, and so may a signal handler, also while it interrupts another report. Each thread's
        reports outside of steps() get steps of their own. One thread saves at a time; the state of a handler's
        report that interrupts a save is not saved with it. The workers of one trial must report in the same
        order, so each of them may use one thread only. `save` must not wait for another thread's report that
        saves, too.
        """
        if metrics is not None and not isinstance(metrics, Mapping):
            raise SettingError(f"report({metrics!r}): say which metric that is, such as report(loss=0.3)")
        if save is not None and not callable(save):
            raise SettingError(f"save: {save!r} is no function; give one that takes a folder and writes into it")
        values = checked_metrics({**(metrics or {}), **more})
        if save is None:
            counted = step is None and self._current is None
            at_step = self._step_of(step)
            self._unsaved = None
            self._send_report(values, at_step, saved=False, counted=counted)
        else:
            self._report_and_save(values, step, save)

    def _report_and_save(self, values: Metrics, step: int | None, save: Callable[[Path], object]) -> None:
        problem: Exception | None = None
        with self._saving:
            at_step = self._step_of(step)
            saved, self._unsaved = False, None
            # A retry shall start from before the NaN, not from it.
            if self.run.rank == 0 and self._unsound(values) is None:
                if self._save_due(at_step) and not self._in_save:
                    try:
                        saved = self._save(at_step, save)
                    except Exception as error:
                        problem = error  # the metrics are real all the same, so they are recorded first
                else:
                    self._unsaved = at_step, values, save
            self._send_report(values, at_step, saved=saved)
        if isinstance(problem, TypeError) and (why := one_argument_problem(save)):
            raise SettingError(
                f"save: {function_name(save)}() {why}; it is called with one, a folder"
            ) from problem
        if problem is not None:
            raise problem

    def _save_due(self, step: int) -> bool:
        every = self.run.save_every
        if every == 0.0 or step == self.run.max_steps or self._link.told_to_end():
            return True
        return every is not None and time.monotonic() - self._saved_at >= every

    def _save(self, step: int, save: Callable[[Path], object]) -> bool:
        """Saves the state of a step; returns whether there was room for it. Called with _saving held."""
        try:
            self._in_save = True
            # Checkpoints that were saved and not reported, as workers were killed in between, must not replace it.
            kept = [self._resumable, *self._saved_steps.to_keep(step)]
            self._checkpoints.save(step, save, attempt=self.attempt, besides=kept)
        except DiskFullError as error:
            self.relay(DiskFull(wall_time(), self.id, self.attempt, str(error)))
            return False
        finally:
            self._in_save = False
        self._saved_at = time.monotonic()
        return True

    def _save_late(self) -> None:
        """Saves the last step, if that was put off, and reports it again with its state; no step follows it."""
        with self._saving:
            unsaved, self._unsaved = self._unsaved, None
            if unsaved is not None and not self._in_save:
                step, metrics, save = unsaved
                if self._save(step, save):
                    self.relay(Reported(wall_time(), self.id, self.attempt, 0, step, metrics, True))
                    self._resumable = step, self.attempt
                    self._saved_steps.reported(step, metrics, saved=True)

    def _is_past_end(self, max_steps: int) -> None:
        """Called where a report is past the last step, and the training function does not loop over steps()."""
        if self.warns_past_end:
            self.warns_past_end = False
            self.relay(Warned(wall_time(), self.id, self.attempt, past_end(max_steps), once=True))

    def note(self, metrics: Metrics, step: int | None = None, *, saved: bool) -> None:
        """Records a report whose state, if `saved`, is in a checkpoint already."""
        self._send_report(metrics, self._step_of(step), saved=saved)

    def _send_report(self, metrics: Metrics, at_step: int, *, saved: bool, counted: bool = False) -> None:
        """Sends a report. `counted`: its step is the next one, and not one that was given."""
        # Before the report: whoever waits for that one's answer has waited for the setting to go on with, too.
        if self._gauge is not None:
            with self._measuring:
                measured = self._gauge.step_done(at_step)
            if measured is not None:
                self.relay(measured)
        self._reported |= dict.fromkeys(metrics)
        # The link numbers it: only there is the order of several threads' reports known.
        number = COUNTED if counted else 0
        self._reports = self.relay(Reported(wall_time(), self.id, self.attempt, number, at_step, metrics, saved))
        if saved:
            self._resumable = at_step, self.attempt
        self._saved_steps.reported(at_step, metrics, saved=saved)
        if self.run.judged:
            now = time.monotonic()
            self._patience_seconds = min(_PATIENCE_SHARE * (now - self._reported_at), _PATIENCE_SECONDS)
            self._reported_at, self._unanswered = now, True
        if self.run.rank == 0 and (name := self._unsound(metrics)) is not None:
            raise TrialFailed("nan", f"{name} is {metrics[name]} at step {at_step}")
        if not self._loops:
            if self.told_to_end():
                self._save_late()
                raise EndTrial
            self._begin_step(at_step + 1)

    def relay(self, event: Event) -> int:
        """Passes on what happened to this trial; safe on return. Of several workers, only the first speaks.

        Returns the number of a report, and 0 for other events.
        """
        return self._link.send(event) if self.run.rank == 0 or self.gang is None else 0

    @property
    def last_step(self) -> int:
        """The last step done: restored, or reported."""
        return self._step

    def told_to_end(self) -> bool:
        """Whether this attempt is to end now: the driver said so. steps() and report() look by themselves.

        The workers of a trial, each of which has to ask as often, all get the first one's answer.
        """
        leads = self.run.rank == 0 or self.gang is None
        if leads:
            if self._unanswered:
                self._unanswered = False
                self._link.wait_for_answer(self._reports, self._patience_seconds)
            self.cut = self.cut or self._link.told_to_end()
        if self.gang is not None:
            if not self.in_step:
                self.cut = self.gang.hear_end(self.cut) or self.cut
            elif leads:
                self.gang.share("told", self.cut)
            else:
                self.cut = self._hear("told")
        return self.cut

    def finish(self, returned: object) -> None:
        """Takes what the training function returned, if anything, as the last word on its last step."""
        if returned is None:
            return
        if not isinstance(returned, Mapping) and len(self.run.objectives) > 1:
            names = ", ".join(f"{name!r}: ..." for name in self.run.objectives)
            raise SettingError(f"the function returned {returned!r}; with several objectives, return {{{names}}}")
        metrics: Mapping[str, Any] = returned if isinstance(returned, Mapping) else {self.metric: returned}
        self._loops = True  # nothing is left to unwind
        last = self._step if self._current is not None else next(self._next_steps) - 1
        self.report(metrics, step=max(last, 1))

    @property
    def missing(self) -> list[str]:
        """The objectives that this attempt has not reported."""
        return [name for name in self.run.objectives if name not in self._reported]

    def no_value(self) -> str | None:
        """Return the error of a first attempt that has come to its end without a value; None if it has one.

        A later attempt may have nothing left to report. Of several workers, none can end without the others: what
        is missing is found when all of them have.
        """
        if self.cut or self.gang is not None or self.attempt > 1 or not self.missing:
            return None
        return missing_metrics_error(self.missing, self._reported)

    def _unsound(self, metrics: Metrics) -> str | None:
        """An objective that is no number."""
        return next((name for name in self.run.objectives if not math.isfinite(metrics.get(name, 0.0))), None)

    def set_attr(self, name: str, value: Any) -> None:
        """Attach a value to this trial, such as a commit or a path; any JSON, at most 64 KiB.

        It is in the `attrs` of the trial's record. One of the same name is replaced.
        """
        plain = checked_attribute(name, value)
        self.relay(AttributeSet(wall_time(), name, plain, self.id, self.attempt))

    def _step_of(self, given: int | None) -> int:
        """Returns the step a report is about; ends a training function that goes on past the last one.

        Called once for each report: a report outside of steps() that gives no step gets one that no other has.
        """
        if given is None:
            step = self._current if self._current is not None else next(self._next_steps)
        else:
            step = 0 if isinstance(given, bool) or not hasattr(given, "__index__") else index(given)
            if step < 1:
                way_out = ": a loop that counts from 0 reports step=epoch + 1" if given == 0 else ""
                raise SettingError(f"step {given!r} must be a whole number from 1{way_out}")
        if not self._loops and self.max_steps is not None and step > self.max_steps:
            self._is_past_end(self.max_steps)
            raise EndTrial
        if given is None:
            self._step = step
        else:
            self._set_step(step)
        return step

    def _set_step(self, step: int) -> None:
        """Notes the last step done; the next report outside of steps() is about the one after it."""
        self._step = step
        self._next_steps = itertools.count(step + 1)


def past_end(max_steps: int) -> str:
    """Return the warning about a training function that is ended in the middle, as it reports too many steps."""
    return (
        f"the training function went on after max_steps ({max_steps}): it is ended at its next report, so what "
        "follows its loop is not run"
    )
