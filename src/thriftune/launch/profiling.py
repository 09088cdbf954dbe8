"""Measure how long a step of a study's training function takes with 1, 2, 4, ... workers.

RubberBand section 5, "Planning": before machines are rented, a trial runs for a while with each number of workers,
and plans use the step times. On this machine, a worker is a core. The trials are real and run on the study's
engine, but nothing is recorded, and their files are deleted at the end.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

from thriftune.clouds.local import cores
from thriftune.common.checks import check_whole
from thriftune.common.formatting import plural
from thriftune.common.text import last_line, printable
from thriftune.common.threads_per_trial import THREAD_VARIABLES, thread_limits
from thriftune.engines.local import LocalEngine
from thriftune.engines.protocol import Engine
from thriftune.errors import ProfileError, SettingError
from thriftune.planning.timing import (
    ObservedAttempt,
    StepTimes,
    TimingRow,
    TrialTimes,
    startup_seconds,
    summarize_trials,
    time_trial,
)
from thriftune.search.random import Random
from thriftune.show.describe import config_line
from thriftune.state.events import THIS_MACHINE, Config, DiskFull, Ended, Failed, Killed, Lost, Reported, Warned
from thriftune.state.spec import Spec, Target, data_sources
from thriftune.training.run import Run

Say = Callable[[str], object]

_GRACE_SECONDS = 10.0
"""A trial that was asked to end has at least this long before it is killed, so that it can end its step."""

_LIMITED_SHARE = 0.5
"""Steps take at most this share of the time until a limit. Trials also start, save, end and start again."""

_FIRST_STEP_SHARE = 0.5
"""A trial may take this share of the time until a limit for its first step, imports included."""

_POLL_SECONDS = 0.05
"""Wait at most this long for events of the engine."""

_OUTPUT_LINES = 20
"""The error of a failed trial has this many last lines of its output."""


class Bench(Protocol):
    """A place where trials are measured: this machine or a cluster.

    - `most`: the number of workers that it has room for.
    - `starts_within`: seconds that a trial may take until its first report, before its measured time begins.
    - `folder`: where trials keep their files; None: in a temporary folder.
    - `resumes`: the next attempt of a trial finds the checkpoints of the last one.
    """

    most: int
    starts_within: float
    folder: Path | None
    resumes: bool

    def engine(self, folder: Path, workers: int) -> AbstractContextManager[tuple[Engine, Mapping[str, int]]]:
        """Yield an open engine, and on which of its machines a trial with this many workers runs."""
        ...

    def remarks(self, workers: int) -> tuple[str, ...]:
        """Return reasons why figures that are measured now may be wrong."""
        ...

    def warm_up(self, run: Run) -> None:
        """Run such a trial on every worker once, so that measured trials find warm workers and files."""
        ...


def measure(
    spec: Spec,
    workers: Sequence[int] | None = None,
    seconds: float = 20.0,
    repeats: int = 2,
    say: Say | None = None,
    bench: Bench | None = None,
    ends_at: float = math.inf,
) -> StepTimes:
    """Run one configuration of the study with each number of workers. Return its step times.

    The configuration is the first that random search suggests with the study's seed. Raise ProfileError if a trial
    fails, or does no step in its time.

    - `workers`: the numbers of workers, 1 among them; by default the powers of two up to `bench.most`.
    - `seconds`: how long to measure each number of workers.
    - `repeats`: how many trials share these seconds. The numbers take turns, as the speed of a machine varies.
    - `say`: called with lines about the progress.
    - `bench`: where to measure; by default on this machine.
    - `ends_at`: in time.monotonic(); measuring ends then. Numbers of workers that were not measured are left out,
      and a remark names them.
    """
    bench = ThisMachine(spec.target) if bench is None else bench
    workers = powers_of_two(bench.most) if workers is None else workers
    _check(spec.target, workers, seconds, repeats, bench.most)
    say = say or (lambda _: None)
    left = ends_at - time.monotonic()
    if left <= 0.0:
        raise ProfileError("limit: the time was over before a trial could start; give a longer limit")
    seconds = min(seconds, _LIMITED_SHARE * left / len(workers))
    config = first_config(spec)
    numbers = ", ".join(map(str, workers))
    say(f"{config_line(config)}, about {seconds:.3g} s for each number of workers: {numbers}")
    busy = bench.remarks(max(workers))
    for remark in busy:
        say(remark)
    with TemporaryDirectory(prefix="thriftune-profile-", dir=bench.folder) as folder:
        bench.warm_up(_run(spec, config, folder))
    timed: dict[int, list[TrialTimes]] = {each: [] for each in workers}
    resumed: list[float] = []
    longest = 0.0  # seconds that a trial took, its start and end included
    for turn in range(repeats):
        for each in workers:
            what = f"{plural(each, 'worker')}, trial {turn + 1} of {repeats}"
            began = time.monotonic()
            if ends_at - began < max(longest, seconds / repeats):
                say(f"{what} ... there is no time left for it")
                continue
            # How long a trial takes to resume does not depend on its workers, so it is measured with one.
            watch = _Watch(bench, each, seconds / repeats, say, ends_at)
            try:
                one, again = _trial(spec, config, watch, resume=each == 1)
            except _NoStep as error:
                if each == 1 or ends_at == math.inf:
                    raise
                say(f"{what} ... {error}")
                continue
            timed[each].append(one)
            resumed += again
            longest = max(longest, time.monotonic() - began)
            say(f"{what} ... {one.seconds_per_step:.3g} s a step")
    rows = tuple(TimingRow(each, tuple(trials)) for each, trials in timed.items() if trials)
    found = summarize_trials(rows, resumed, config)
    return replace(found, remarks=(*busy, *_left_out(timed), *found.remarks))


def _left_out(timed: Mapping[int, Sequence[TrialTimes]]) -> tuple[str, ...]:
    """Return a remark on the numbers of workers for which no time was left."""
    numbers = ", ".join(str(each) for each, trials in timed.items() if not trials)
    remark = f"no time was left for trials with {numbers} workers: plans will not use these numbers"
    return (remark,) if numbers else ()


class _NoStep(ProfileError):
    """A trial did no step in its time."""


def powers_of_two(most: int) -> tuple[int, ...]:
    """Return the powers of two up to `most`."""
    return tuple(1 << power for power in range(most.bit_length()))


def first_config(spec: Spec) -> Config:
    """Return the configuration of the study's first trial under random search."""
    return Random().suggest(spec.new_history(), np.random.default_rng((spec.seed, 0)))


def _check(target: Target, workers: Sequence[int], seconds: float, repeats: int, most: int) -> None:
    if target.kind not in ("function", "command") and not target.where:
        raise SettingError(
            f"a trial of this study runs {target}; only a command, or a function of a file, can be measured"
        )
    for each in workers:
        check_whole("workers", each, 1)
        if each > most:
            raise SettingError(f"workers: {each}: there is room for {most} here; give fewer")
    if 1 not in workers or len(set(workers)) < len(workers):
        numbers = ", ".join(map(str, workers)) or "none"
        raise SettingError(
            f"workers: {numbers}: must contain 1, with which the others are compared, and none twice"
        )
    if isinstance(seconds, bool) or not (isinstance(seconds, (int, float)) and 0.0 < seconds < math.inf):
        raise SettingError(f"seconds: {seconds!r} must be a number above 0")
    check_whole("repeats", repeats, 1)


def _trial(spec: Spec, config: Config, watch: _Watch, *, resume: bool) -> tuple[TrialTimes, list[float]]:
    """Measure one trial. With `resume`, also measure how long it takes to start from a checkpoint."""
    with TemporaryDirectory(prefix="thriftune-profile-", dir=watch.bench.folder) as folder:
        run = _run(spec, config, folder)
        seen = watch.attempt(run, least_seconds=watch.seconds, least_steps=2)
        if not seen.reports:
            raise _NoStep(_no_step(seen, watch.workers, watch.seconds))
        found = time_trial(seen)
        # A checkpoint before the last step, so that a step is left to do. The last two checkpoints exist.
        saved = [report.step for report in seen.reports if report.saved and report.step < seen.reports[-1].step]
        if not (resume and saved and watch.bench.resumes) or watch.ends_at - time.monotonic() < watch.seconds:
            return found, []
        seen = watch.attempt(replace(run, attempt=2, resume_step=saved[-1]), least_seconds=0.0, least_steps=2)
        return found, [startup_seconds(seen, found.seconds_per_step, saved[-1])] if seen.reports else []


def _run(spec: Spec, config: Config, folder: str) -> Run:
    metrics = tuple(objective.metric for objective in spec.objectives)
    seed, data = spec.seed % 2**32, data_sources(spec)
    return Run(0, 1, config, 0, metrics, spec.max_steps, seed, f"{folder}/trial", spec.keep, data=data)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Runs attempts with a number of workers, each in new processes, as on a machine that was rented for it.

    So the imports of the training function are part of its start.
    """

    bench: Bench
    workers: int
    seconds: float  # of measuring an attempt
    say: Say
    ends_at: float = math.inf  # by time.monotonic()

    def attempt(self, run: Run, least_seconds: float, least_steps: int) -> ObservedAttempt:
        """Run an attempt for at least these seconds and steps, and end it after its next step.

        An attempt that made no report in its time is ended too. One that does not end is killed.
        """
        reports: list[Reported] = []
        steps: set[int] = set()
        end_requested = False
        folder = Path(run.folder).with_name(f"run-{run.attempt}")
        with self.bench.engine(folder, self.workers) as (engine, where):
            started, began = time.time(), time.monotonic()
            engine.start(run, where)
            while (passed := time.monotonic() - began) < min(
                self._longest_seconds(bool(reports)), self.ends_at - began
            ):
                if not reports and self.bench.starts_within:  # its measured time begins with the first report
                    passed = 0.0
                if not end_requested and passed >= least_seconds and len(steps) >= least_steps:
                    engine.request_end(run.trial, run.attempt)
                    end_requested = True
                for event in engine.wait(_POLL_SECONDS):
                    if getattr(event, "trial", run.trial) != run.trial:  # another trial
                        continue
                    match event:
                        case Reported():
                            if not reports and self.bench.starts_within:
                                began = time.monotonic()
                            reports.append(event)
                            steps.add(event.step)
                        case Ended():
                            return ObservedAttempt(started, reports, event)
                        case Failed(kind="no_value") if not reports:
                            return ObservedAttempt(
                                started, reports, Ended(event.at, event.trial, event.attempt, passed)
                            )
                        case Failed():
                            raise ProfileError(_failure(event, run))
                        case Lost(why=why):
                            raise ProfileError(f"the trial was lost: {why}; measure again")
                        case Warned(message=message) | DiskFull(error=message):
                            self.say(printable(message))
            self._end(engine, run)
            return ObservedAttempt(started, reports, None)

    def _end(self, engine: Engine, run: Run) -> None:
        """Kill an attempt. The engine is not closed, as the next trial may use it."""
        engine.kill(run.trial, run.attempt)
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline:
            for event in engine.wait(_POLL_SECONDS):
                if isinstance(event, (Killed, Ended, Failed, Lost)) and event.trial == run.trial:
                    return

    def _longest_seconds(self, reported: bool) -> float:
        """Return how long an attempt may run before it is killed."""
        if reported:
            return self.seconds + max(self.seconds, _GRACE_SECONDS)
        # With a limit, the seconds depend on it, and are too few for a function that starts slowly.
        left = self.ends_at - time.monotonic()
        limited = 0.0 if math.isinf(left) else _FIRST_STEP_SHARE * left
        return max(self.seconds + self.bench.starts_within, limited)


class ThisMachine:
    """A bench on this machine, where a worker is a core."""

    folder: Path | None = None
    starts_within = 0.0  # a trial starts on a worker that runs already
    resumes = True

    def __init__(self, target: Target) -> None:
        self.most = cores()
        self._target = target

    @contextlib.contextmanager
    def engine(self, folder: Path, workers: int) -> Iterator[tuple[Engine, Mapping[str, int]]]:
        engine = LocalEngine(folder, 1, asdict(self._target))
        try:
            engine.recover()
            with _limited(workers, self._target.folder):
                engine.open()
                # Wait for the worker here, so that starting the supervisor does not count as the trial's time.
                while any(worker.pid is None for worker in engine.status()):
                    engine.wait(_POLL_SECONDS)
            yield engine, {THIS_MACHINE: 1}
        finally:
            engine.close()

    def warm_up(self, run: Run) -> None:
        """Do nothing: every trial gets a new process, as on a machine that was rented for it."""

    def remarks(self, workers: int) -> tuple[str, ...]:
        """Return a remark if other programs use the cores: all trials are slower then, and no figure shows it."""
        load, machine = os.getloadavg()[0], os.cpu_count() or 1
        if load + workers <= machine + 0.5:
            return ()
        figures = f"load average {load:.1f}, {plural(machine, 'core')}"
        return (f"the machine is busy ({figures}): steps take longer than on an idle one",)


@contextlib.contextmanager
def _limited(workers: int, folder: str) -> Iterator[None]:
    """Limit the cores and threads of processes that are started within this context."""
    allowed = os.sched_getaffinity(0)
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    try:
        with contextlib.chdir(folder or "."):  # the folder in which a study of this target runs
            os.environ.update(thread_limits(workers))
            os.sched_setaffinity(0, sorted(allowed)[:workers])
            yield
    finally:
        os.sched_setaffinity(0, allowed)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _no_step(seen: ObservedAttempt, workers: int, seconds: float) -> str:
    if seen.ended is not None:
        return "the training function ended without a report; call trial.report() after each step"
    how = plural(workers, "worker")
    return (
        f"with {how}, no step was done within the {seconds:g} s of a trial, its start included; give more "
        "--seconds, or fewer --repeats, which share them"
    )


def _failure(failed: Failed, run: Run) -> str:
    """Return the whole error and the last output of a failed trial, because profiling stores neither."""
    when = f" when it was resumed after step {run.resume_step}" if run.resume_step else ""
    error = printable(failed.error).rstrip()
    lines = [
        f"the training function failed{when}: {last_line(error)}",
        f"It was run with {config_line(run.config)}",
    ]
    if "\n" in error:
        lines.append(error)
    if failed.output:
        lines += ["Its last output:", *printable(failed.output).splitlines()[-_OUTPUT_LINES:]]
    return "\n".join(lines)
