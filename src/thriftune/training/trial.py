"""The handle of a live trial, which a training function gets as its argument.

Worker processes import this module, so it imports nothing heavy. The stored state of a trial is a TrialRecord, in
state/trial_record.py.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
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
from thriftune.training.checkpoint_files import DiskFullError
from thriftune.training.folder_checkpoints import FolderCheckpoints
from thriftune.training.run import COUNTED, EndTrial, Gang, Link, Run, StepGauge, TrialFailed
from thriftune.training.trial_checkpoints import Restored, TrialCheckpoints

if TYPE_CHECKING:
    from thriftune.training.datasets import Datasets
    from thriftune.training.distributed import Distributed, Piece, ProcessGroup


_ANSWER_SHARE, _ANSWER_SECONDS = 0.1, 5.0
"""How long a judged trial waits for the answer to a report: a tenth of the time of its step, at most five seconds.

The wait avoids a step that the stopping rule does not want, and is short beside a step that it wants.
"""

_NOTICE_SAFETY, _NOTICE_SPARE_SECONDS = 2.0, 5.0
"""After a notice, a state is saved when this many times the time that it needs is left, and some seconds more.

Uploads may be slower than the last one, since all trials of the machine save at the same time.
"""

_NEVER_RESTORED = (
    "trials that are interrupted begin again at step 1, although their state is saved: call trial.restore() "
    "before trial.steps(). The bill does not count the repeated steps"
)


class Trial(ConfigAccess):
    """One attempt at one configuration, as the training function sees it."""

    def __init__(
        self,
        run: Run,
        link: Link,
        gang: Gang | None = None,
        gauge: StepGauge | None = None,
        checkpoints: TrialCheckpoints | None = None,
    ) -> None:
        """Begin an attempt.

        - `gang`: the trial's workers, if it has several; None in a command, whose worker has the gang.
        - `gauge`: measures how the trial uses its machine, if that is wanted.
        - `checkpoints`: None for those that the run names.
        """
        self.run = run
        self.gang = gang
        self._gauge = gauge
        self.warns_past_end = True  # whether the next report past the last step gives a warning
        self.in_step = True  # whether the workers check equally often for their end; those of a command do not
        self._leads = gang is None or run.rank == 0  # whether it is worker 0, whose answers all workers get
        self._link = link
        # Sends an event of this trial, which is safe on return. Returns the number of a report, and 0 for other
        # events. Only worker 0 sends events.
        self.relay: Callable[[Event], int] = link.send if self._leads else _send_nothing
        self._process_group: ProcessGroup | None = None
        self._data: Datasets | None = None
        self.checkpoints = checkpoints or self._open_checkpoints()
        self.partial = False  # see restore()
        self._notice_served = False  # whether a state was saved since should_save was true after a notice
        self._step = 0  # the last restored or reported step
        self._next_steps = itertools.count(1)  # steps of reports outside of steps(); its next() is atomic
        self._current: int | None = None  # the step that steps() has yielded last; None outside of steps()
        self._reports = 0  # the number of the last report
        self._reported: dict[str, None] = {}  # the names of all reported metrics, in order
        self._measuring = threading.RLock()  # held while the gauge is used
        self._saving = threading.RLock()  # held from the choice of the step until its report is sent
        self._in_save = False  # whether a save function runs, in the thread that holds _saving
        self._unanswered = False  # whether the answer to the last report has not been waited for
        self._reported_at = time.monotonic()
        self._answer_seconds = 0.0  # how long to wait for the answer to the last report
        self._saved_at = time.monotonic()
        self._unsaved: tuple[int, Metrics, Callable[[Path], object]] | None = None  # the last step, if not saved
        self._loops = False  # whether the training function loops over steps()
        self.cut = False  # whether the attempt was asked to end before its last step
        self._unread = run.config.keys() - set(run.condition_parameters)  # active parameters not read yet
        self._looked_for_state = False  # restore() was called, or the user was told that it was not
        self._unknown: set[str] = set()  # names that were read but are not in the space

    def _open_checkpoints(self) -> TrialCheckpoints:
        """Return the checkpoints that the run names."""
        if not self.run.objects:
            return FolderCheckpoints(self.run, self.relay)
        from thriftune.training.object_checkpoints import ObjectCheckpoints  # late: few trials need it

        return ObjectCheckpoints(self.run, self.relay, self._stops)

    @property
    def id(self) -> int:
        return self.run.trial

    @property
    def metric(self) -> str:
        """The name of the first objective's metric."""
        return self.run.objectives[0]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.run.attempt

    @property
    def seed(self) -> int:
        """The trial's seed: the same in all its attempts, and different for every trial."""
        return self.run.seed

    @property
    def max_steps(self) -> int | None:
        return self.run.max_steps

    @property
    def system(self) -> Mapping[str, Any]:
        """The current knob setting: the options of `tt.System(options=...)` and the knobs that were changed.

        It may change between steps, so read it at the beginning of each step.
        """
        return {**self.run.options, **(self._gauge.setting if self._gauge is not None else {})}

    @property
    def data(self) -> Mapping[str, Path]:
        """The study's datasets: the path of a file or folder on this machine, by name.

        Reading a path fetches the dataset if this machine does not have it yet. The files are for reading only.
        """
        if self._data is None:
            from thriftune.training.datasets import Datasets  # late: few trials need it

            self._data = Datasets(self.run.data, self._warn_once)
        return self._data

    def _warn_once(self, message: str) -> None:
        self.relay(Warned(wall_time(), self.id, self.attempt, message, once=True))

    @property
    def time_left(self) -> float | None:
        """The seconds until this machine is preempted; None as long as no notice of that has come.

        Cheap enough to read in an inner loop. In a gang, only worker 0 knows it.
        """
        return self._link.seconds_left() if self._leads else None

    @property
    def should_save(self) -> bool:
        """Whether a checkpoint protects more than it costs now; save with trial.save() or report(save=) then.

        It is true when the machine will be preempted and its notice leaves just enough time to save, until the
        state is saved. How much time that takes is known from the last checkpoint; without one, it is true as soon
        as the notice comes. Without a notice, it is true when the time between two checkpoints is over, if the
        study has such a time. Cheap enough to read in an inner loop. In a gang, it is true in worker 0 only.
        """
        if not self._leads:
            return False
        left = self._link.seconds_left()
        if left is None:
            every = self.run.save_every
            return bool(every) and time.monotonic() - self._saved_at >= every  # type: ignore[operator]
        if self._notice_served:
            return False
        needed = self.checkpoints.seconds_needed()
        return needed is None or left <= _NOTICE_SAFETY * needed + _NOTICE_SPARE_SECONDS

    @property
    def rank(self) -> int:
        """This worker's number among the trial's workers, from 0."""
        return self.run.rank

    @property
    def world_size(self) -> int:
        """The number of processes that run the training function."""
        return self.run.workers if self.run.leader_address else 1

    def distributed(self, backend: str | None = None) -> Distributed:
        """Set up torch.distributed for the trial's workers, at the first call; it ends with the attempt.

        The default backend is NCCL with CUDA, and Gloo without.
        """
        if self._process_group is None:
            from thriftune.training.distributed import ProcessGroup  # late: imports PyTorch

            self._process_group = ProcessGroup(self.run, self.gang, backend)
        return self._process_group.set_up

    def pieces(self, batch_size: int, most: int | None = None) -> list[Piece]:
        """Return this worker's share of a batch, in pieces of at most `most` samples.

        The batch has the same size with any number of workers, and a piece fits into the memory of a worker.
        """
        from thriftune.training.distributed import pieces

        return pieces(batch_size, self.rank, self.world_size, most)

    def leave(self) -> None:
        """End the process group of distributed(), and the use of datasets; never hangs."""
        if self._data is not None:
            self._data.close()
        if self._process_group is not None:
            self._process_group.end()

    @property
    def folder(self) -> Path:
        """A folder for this trial's files; all its attempts have the same."""
        folder = Path(self.run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _active(self) -> Config:
        return self.run.config

    def _known(self) -> Sequence[str]:
        return self.run.parameter_names or tuple(self.run.config)

    def _note_read(self, name: str) -> None:
        self._unread.discard(name)

    def _note_unknown(self, name: str) -> None:
        if self.run.parameter_names and name not in self.run.parameter_names and name not in self._unknown:
            self._unknown.add(name)
            message = unknown_name_warning(name, self.run.parameter_names)
            self.relay(Warned(wall_time(), self.id, self.attempt, message, once=True))

    @property
    def unread(self) -> list[str]:
        """The active parameters that the training function has not read, in the order of the space.

        Parameters on which others depend are left out: the active parameters may already imply their values.
        """
        return [name for name in self.run.config if name in self._unread]

    def restore(self, load: Callable[[Path], object]) -> int:
        """Call `load(folder)` with the last intact checkpoint and return its step; without one, return 0.

        Afterwards, `trial.partial` says whether the state is of the middle of the step after the returned one: it
        was saved by trial.save().
        """
        # Also checked without a checkpoint, so that a mistake shows before the first retry.
        if not callable(load):
            raise SettingError(
                f"restore: {load!r} is no function; give a function that takes a folder and reads from it"
            )
        if why := one_argument_problem(load):
            raise SettingError(
                f"restore: {function_name(load)}() {why}; it is called with one argument, the checkpoint's folder"
            )
        self._looked_for_state = True
        found = self._find_checkpoint()
        if found.folder is None:
            return 0
        load(found.folder)
        if self.gang is not None:
            self.gang.wait_for_others("restored")  # before worker 0 goes on and removes old checkpoints
        self._set_step(found.step)
        self.partial = found.partial
        return found.step

    @cached_property
    def found_checkpoint(self) -> Restored:
        """The checkpoint from which a command resumes, in a local folder. It is looked for once."""
        return self._find_checkpoint()

    def _find_checkpoint(self) -> Restored:
        """Return the checkpoint from which this attempt resumes. All workers use the one that worker 0 finds."""
        if self.run.resume_step or self.run.resume_partial:
            return self.checkpoints.find(self._share)
        return Restored()

    def _share(self, key: str, value: Any) -> Any:
        """Return worker 0's value, which all workers get; see TrialCheckpoints.find()."""
        if self.gang is None:
            return value
        return self.gang.share(key, value) if self._leads else self._from_leader(key)

    def _stops(self) -> bool:
        """Return whether the driver has asked this attempt to end. Only worker 0 knows."""
        self.cut = self.cut or self._link.end_requested()
        return self.cut

    def _from_leader(self, key: str) -> Any:
        """Return the value that worker 0 shares."""
        assert self.gang is not None
        try:
            return self.gang.share(key, None)
        except EndTrial:  # worker 0 is gone
            self.cut = True
            raise

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the remaining steps, from 1 or after the restored step; stop if asked to end."""
        if self.run.max_steps is None:
            raise SettingError("trial.steps() needs a number of steps: give max_steps= to tune()")
        self._loops = True
        if self.run.resume_step and self._leads and not self._looked_for_state:
            self._looked_for_state = True  # once is enough
            self._warn_once(_NEVER_RESTORED)
        self._current = self._step or None  # a report after the loop is about its last step
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
        """Record the metrics of a step. On return, no kill can lose the report.

        - `step`: by default the current step of steps(); outside of steps(), one after the last report.
        - `save`: a function that writes the trial's state into a folder, as `save(folder)`. The checkpoint becomes
          visible only when it is complete. If checkpoints at each step cost more than they protect, `save` is
          called at a later step, or when the trial is to end.

        Any thread may call report(), and also a signal handler that interrupts another report. Reports outside of
        steps() get different steps in each thread. One thread saves at a time. A signal handler that interrupts a
        save does not save its own state. `save` must not wait for another thread's report that also saves.

        The workers of one trial must report in the same order, so each of them must report from one thread only.
        """
        if metrics is not None and not isinstance(metrics, Mapping):
            raise SettingError(f"report({metrics!r}): name the metric, such as report(loss=0.3)")
        if save is not None and not callable(save):
            raise SettingError(
                f"save: {save!r} is no function; give a function that takes a folder and writes into it"
            )
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
            # A retry must resume from before the NaN, so its step is not saved.
            if self.run.rank == 0 and self._nonfinite(values) is None:
                if self._save_due(at_step) and not self._in_save:
                    try:
                        saved = self._checked_save(lambda: self._save(at_step, save), save)
                    except Exception as error:
                        problem = error  # raised after the metrics are recorded
                else:
                    self._unsaved = at_step, values, save
            self._send_report(values, at_step, saved=saved)
        if problem is not None:
            raise problem

    def _save_due(self, step: int) -> bool:
        if self.run.save_every == 0.0 or step == self.run.max_steps or self._link.end_requested():
            return True
        return self.should_save

    def save(self, save: Callable[[Path], object]) -> None:
        """Save the state in the middle of a step, by `save(folder)`, so that a kill does not lose the step's work.

        The next attempt restores it, continues with the same step, and `trial.partial` is true. The state itself
        must say how far the step has come, such as the number of the next batch. Without a step that was reported,
        the next attempt gets this state, too, and restore() returns 0.

        With an object store, the state is uploaded in the background. Calls in quick succession are cheap: the
        newest state replaces one that waits. In a gang, only worker 0 saves.
        """
        if not callable(save):
            raise SettingError(
                f"save: {save!r} is no function; give a function that takes a folder and writes into it"
            )
        if self.run.rank != 0:
            return
        with self._saving:
            if not self._in_save:
                self._checked_save(lambda: self._save(self._step, save, partial=True), save)

    def _checked_save(self, call: Callable[[], bool], save: Callable[[Path], object]) -> bool:
        """Return call(); raise a clear error if `save` does not take a folder."""
        try:
            return call()
        except TypeError as error:
            if why := one_argument_problem(save):
                raise SettingError(
                    f"save: {function_name(save)}() {why}; it is called with one argument, a folder"
                ) from error
            raise

    def _save(self, step: int, save: Callable[[Path], object], *, partial: bool = False) -> bool:
        """Save the state of a step, with _saving held; return whether the checkpoint counts already."""
        try:
            self._in_save = True
            serves_notice = self._link.seconds_left() is not None and self.should_save
            counts = self.checkpoints.save(step, save, partial=partial)
        except DiskFullError as error:
            self.relay(DiskFull(wall_time(), self.id, self.attempt, str(error)))
            return False
        finally:
            self._in_save = False
        self._saved_at = time.monotonic()
        self._notice_served = self._notice_served or serves_notice
        return counts

    def _save_late(self) -> None:
        """Save the last step if it is not saved, and report it again as saved; called before the attempt ends."""
        with self._saving:
            unsaved, self._unsaved = self._unsaved, None
            if unsaved is not None and not self._in_save:
                step, metrics, save = unsaved
                if self._save(step, save):
                    report = Reported(wall_time(), self.id, self.attempt, 0, step, metrics, True)
                    self.checkpoints.reported(report, self.relay(report))
                self.checkpoints.submit()

    def end(self, seconds: float) -> None:
        """Wait until all saved states are uploaded, and end the uploads. Called once the attempt has ended.

        `seconds`: wait at most this long; if the machine will be preempted, until then.
        """
        try:
            self.checkpoints.finish(seconds, lambda: self.time_left)
        finally:
            self.checkpoints.close()

    def _warn_past_end(self, max_steps: int) -> None:
        """Warn, once, about a report past the last step outside of steps()."""
        if self.warns_past_end:
            self.warns_past_end = False
            self.relay(Warned(wall_time(), self.id, self.attempt, past_end(max_steps), once=True))

    def note(self, metrics: Metrics, step: int | None = None, *, saved: bool) -> None:
        """Record a report. `saved`: whether the step has a checkpoint already."""
        self._send_report(metrics, self._step_of(step), saved=saved)

    def _send_report(self, metrics: Metrics, at_step: int, *, saved: bool, counted: bool = False) -> None:
        """Send a report. `counted`: the step was not given but counted."""
        # Send the usage first, so that the answer to the report comes with the next knob setting.
        if self._gauge is not None:
            with self._measuring:
                measured = self._gauge.step_done(at_step)
            if measured is not None:
                self.relay(measured)
        self._reported |= dict.fromkeys(metrics)
        # The link numbers it, since only the link knows the order of the reports of several threads.
        number = COUNTED if counted else 0
        report = Reported(wall_time(), self.id, self.attempt, number, at_step, metrics, saved)
        self._reports = self.relay(report)
        self.checkpoints.reported(report, self._reports)
        if self.run.judged:
            now = time.monotonic()
            self._answer_seconds = min(_ANSWER_SHARE * (now - self._reported_at), _ANSWER_SECONDS)
            self._reported_at, self._unanswered = now, True
        if self.run.rank == 0 and (name := self._nonfinite(metrics)) is not None:
            raise TrialFailed("nan", f"{name} is {metrics[name]} at step {at_step}")
        if not self._loops:
            if self.told_to_end():
                self._save_late()
                raise EndTrial
            self._begin_step(at_step + 1)

    @property
    def last_step(self) -> int:
        """The last restored or reported step."""
        return self._step

    def told_to_end(self) -> bool:
        """Return whether the driver has asked this attempt to end. steps() and report() check this themselves.

        All workers of a trial get the answer of worker 0, so all must call it equally often.
        """
        if self._leads:
            after_report = 0
            if self._unanswered:
                self._unanswered = False
                after_report = self._reports
            self.cut = self.cut or self._link.end_requested(after_report, self._answer_seconds)
        if self.gang is not None:
            if not self.in_step:
                self.cut = self.gang.poll_end(self.cut) or self.cut
            elif self._leads:
                self.gang.share("end", self.cut)
            else:
                self.cut = self._from_leader("end")
        return self.cut

    def finish(self, returned: object) -> None:
        """Report the value that the training function returned, if any, for its last step."""
        if returned is None:
            return
        if not isinstance(returned, Mapping) and len(self.run.objectives) > 1:
            names = ", ".join(f"{name!r}: ..." for name in self.run.objectives)
            raise SettingError(f"the function returned {returned!r}; with several objectives, return {{{names}}}")
        metrics: Mapping[str, Any] = returned if isinstance(returned, Mapping) else {self.metric: returned}
        self._loops = True  # the function has returned, so that report() must not raise EndTrial
        last = self._step if self._current is not None else next(self._next_steps) - 1
        self.report(metrics, step=max(last, 1))

    @property
    def missing(self) -> list[str]:
        """The objectives that this attempt has not reported."""
        return [name for name in self.run.objectives if name not in self._reported]

    def no_value(self) -> str | None:
        """Return the error of a first attempt that ended without a value; None if it has one.

        A later attempt may have nothing left to report. Workers of a gang cannot end alone, so for them a missing
        value is found after all have ended.
        """
        if self.cut or self.gang is not None or self.attempt > 1 or not self.missing:
            return None
        return missing_metrics_error(self.missing, self._reported)

    def _nonfinite(self, metrics: Metrics) -> str | None:
        """Return the name of an objective whose value is not finite; None if all are."""
        return next((name for name in self.run.objectives if not math.isfinite(metrics.get(name, 0.0))), None)

    def set_attr(self, name: str, value: Any) -> None:
        """Attach a value to this trial, such as a commit or a path: any JSON value of at most 64 KiB.

        The trial's record has it in `attrs`. A value of the same name is replaced.
        """
        plain = checked_attribute(name, value)
        self.relay(AttributeSet(wall_time(), name, plain, self.id, self.attempt))

    def _step_of(self, given: int | None) -> int:
        """Return the step of a report. Raises EndTrial for a step past the last one.

        Called once for each report. A report outside of steps() without a step gets a new one.
        """
        if given is None:
            step = self._current if self._current is not None else next(self._next_steps)
        else:
            step = 0 if isinstance(given, bool) or not hasattr(given, "__index__") else index(given)
            if step < 1:
                way_out = ": a loop that counts from 0 reports step=epoch + 1" if given == 0 else ""
                raise SettingError(f"step {given!r} must be a whole number from 1{way_out}")
        if not self._loops and self.max_steps is not None and step > self.max_steps:
            self._warn_past_end(self.max_steps)
            raise EndTrial
        if given is None:
            self._step = step
        else:
            self._set_step(step)
        return step

    def _set_step(self, step: int) -> None:
        """Set the last step; the next report outside of steps() is about the step after it."""
        self._step = step
        self._next_steps = itertools.count(step + 1)


def _send_nothing(event: Event) -> int:  # noqa: ARG001
    """Drop an event of a worker that is not worker 0."""
    return 0


def past_end(max_steps: int) -> str:
    """Return the warning about a training function that reports steps after max_steps."""
    return (
        f"the training function went on after max_steps ({max_steps}): it was ended at its next report, so the "
        "code after its loop does not run"
    )
