"""How long does a step of this function take, with so many cores?

RubberBand section 5, "Planning": before anything is rented, a trial is run for a while with 1, 2, 4, ... workers,
and plans are made with how long its steps take. On this machine, a worker is a core. The trials are real ones, on
the engine that a study runs on; but nothing is recorded, and nothing is left when it is over.
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
from thriftune.common.threads import THREAD_VARIABLES, thread_limits
from thriftune.engines.local import LocalEngine
from thriftune.engines.protocol import Engine
from thriftune.errors import ProfileError, SettingError
from thriftune.planning.timing import ObservedAttempt, StepTimes, TimingRow, TrialTimes, startup, summary, times
from thriftune.search.random import Random
from thriftune.show.describe import config_line
from thriftune.state.events import THIS_MACHINE, Config, DiskFull, Ended, Failed, Killed, Lost, Reported, Warned
from thriftune.state.spec import Spec, Target
from thriftune.training.run import Run

Say = Callable[[str], object]

_GRACE_SECONDS = 10.0
"""A trial that was told to end has so long for it at least, so that it can do so in good order."""

_LIMITED_SHARE = 0.5
"""Of what is left of a limit goes into steps, at most: trials also have to start, save, end and start again."""

_FIRST_STEP_SHARE = 0.5
"""Of what is left of a limit a trial may take for its first step, what it imports included."""

_LOOK_SECONDS = 0.05
_OUTPUT_LINES = 20


class Bench(Protocol):
    """Where trials are measured: `most` workers at a time, their files in `folder` (None: a temporary one).

    `starts_within`: seconds that a trial may take to its first report beside those of its measuring.
    """

    most: int
    starts_within: float
    folder: Path | None

    def engine(self, folder: Path, workers: int) -> AbstractContextManager[tuple[Engine, Mapping[str, int]]]:
        """One that is open, and where a trial of so many workers shall run on it."""
        ...

    def remarks(self, workers: int) -> tuple[str, ...]:
        """What may be wrong with figures that are measured now."""
        ...

    def warm_up(self, run: Run) -> None:
        """Has such a run begun where others will be measured, so that these meet what a machine keeps warm."""
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
    """Runs one configuration of the study with each number of workers, for about so many seconds.

    The configuration is the first that random search suggests with the study's seed. `workers`: 1 among them;
    by default the powers of two up to those that the bench has, which is this machine's cores unless another one
    is given. `repeats`: so many trials share the seconds of each number, turn about, for a machine is not as fast
    at one time as at another. `say` is told how it goes on, a line at a time. `ends_at`: by time.monotonic(), all
    of it is over then; numbers of workers for which there was no time are left out, and a remark says so.
    ProfileError: a trial failed, or did no step in its time.
    """
    bench = ThisMachine(spec.target) if bench is None else bench
    workers = powers_of_two(bench.most) if workers is None else workers
    _check(spec.target, workers, seconds, repeats, bench.most)
    say = say or (lambda _: None)
    left = ends_at - time.monotonic()
    if left <= 0.0:
        raise ProfileError("limit: the time was over before a trial could start; give more")
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
    longest = 0.0  # that a trial took, with all that is around it
    for turn in range(repeats):
        for each in workers:
            what = f"{plural(each, 'worker')}, trial {turn + 1} of {repeats}"
            began = time.monotonic()
            if ends_at - began < max(longest, seconds / repeats):
                say(f"{what} ... there is no time left for it")
                continue
            # What it takes to take a trial up does not go by its workers; so one number is enough for that.
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
    found = summary(rows, resumed, config)
    return replace(found, remarks=(*busy, *_left_out(timed), *found.remarks))


def _left_out(timed: Mapping[int, Sequence[TrialTimes]]) -> tuple[str, ...]:
    numbers = ", ".join(str(each) for each, trials in timed.items() if not trials)
    said = f"no time was left for trials of {numbers} workers: no plan will have such"
    return (said,) if numbers else ()


class _NoStep(ProfileError):
    """None was done in the time that there was."""


def powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(most.bit_length()))


def first_config(spec: Spec) -> Config:
    """As trial 0 of the study has it where its searcher is `random`."""
    return Random().suggest(spec.new_history(), np.random.default_rng((spec.seed, 0)))


def _check(target: Target, workers: Sequence[int], seconds: float, repeats: int, most: int) -> None:
    if target.kind not in ("function", "command") and not target.where:
        raise SettingError(
            f"a trial of this study runs {target}; only a command, or a function of a file, can be measured"
        )
    for each in workers:
        check_whole("workers", each, 1)
        if each > most:
            raise SettingError(f"workers: {each} are more than can be had here, {most}; give fewer")
    if 1 not in workers or len(set(workers)) < len(workers):
        told = ", ".join(map(str, workers)) or "none"
        raise SettingError(f"workers: {told}: must have 1, which the others are held against, and none twice")
    if isinstance(seconds, bool) or not (isinstance(seconds, (int, float)) and 0.0 < seconds < math.inf):
        raise SettingError(f"seconds: {seconds!r} must be a number above 0")
    check_whole("repeats", repeats, 1)


# --- the trials ---------------------------------------------------------------------------------------------


def _trial(spec: Spec, config: Config, watch: _Watch, *, resume: bool) -> tuple[TrialTimes, list[float]]:
    """One trial; and, if it is to `resume` and has saved its state, what it took to take it up from there."""
    with TemporaryDirectory(prefix="thriftune-profile-", dir=watch.bench.folder) as folder:
        run = _run(spec, config, folder)
        seen = watch.attempt(run, least_seconds=watch.seconds, least_steps=2)
        if not seen.reports:
            raise _NoStep(_no_step(seen, watch.workers, watch.seconds))
        found = times(seen)
        # Another step is known to follow on it, so there is one to do; and the last two checkpoints are kept.
        saved = [report.step for report in seen.reports if report.saved and report.step < seen.reports[-1].step]
        if not (resume and saved) or watch.ends_at - time.monotonic() < watch.seconds:
            return found, []
        seen = watch.attempt(replace(run, attempt=2, resume_step=saved[-1]), least_seconds=0.0, least_steps=2)
        return found, [startup(seen, found.seconds_per_step, saved[-1])] if seen.reports else []


def _run(spec: Spec, config: Config, folder: str) -> Run:
    metrics = tuple(objective.metric for objective in spec.objectives)
    return Run(0, 1, config, 0, metrics, spec.max_steps, spec.seed % 2**32, f"{folder}/trial", spec.keep)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Runs attempts with so many workers, each in processes of its own, as on a machine that was rented for it:
    what the training function imports is part of its start."""

    bench: Bench
    workers: int
    seconds: float  # for an attempt
    say: Say
    ends_at: float = math.inf  # by time.monotonic()

    def attempt(self, run: Run, least_seconds: float, least_steps: int) -> ObservedAttempt:
        """Until it has had the least of seconds and of steps, and then to the end of its next step.

        It is ended without a report if none came in its seconds, and by force where it does not end.
        """
        reports: list[Reported] = []
        steps: set[int] = set()
        told = False
        folder = Path(run.folder).with_name(f"run-{run.attempt}")
        with self.bench.engine(folder, self.workers) as (engine, where):
            started, began = time.time(), time.monotonic()
            engine.start(run, where)
            while (passed := time.monotonic() - began) < min(self._patience(bool(reports)), self.ends_at - began):
                if not reports and self.bench.starts_within:  # what comes before it is not its measuring
                    passed = 0.0
                if not told and passed >= least_seconds and len(steps) >= least_steps:
                    engine.request_end(run.trial, run.attempt)
                    told = True
                for event in engine.wait(_LOOK_SECONDS):
                    if getattr(event, "trial", run.trial) != run.trial:  # one that only runs beside it
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
        """By force; the engine may be the next trial's, too."""
        engine.kill(run.trial, run.attempt)
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline:
            for event in engine.wait(_LOOK_SECONDS):
                if isinstance(event, (Killed, Ended, Failed, Lost)) and event.trial == run.trial:
                    return

    def _patience(self, reported: bool) -> float:
        if reported:
            return self.seconds + max(self.seconds, _GRACE_SECONDS)
        # Where there is a limit, the seconds go by it, and say nothing of how long the start may take.
        left = self.ends_at - time.monotonic()
        limited = 0.0 if math.isinf(left) else _FIRST_STEP_SHARE * left
        return max(self.seconds + self.bench.starts_within, limited)


class ThisMachine:
    """A worker is one of its cores."""

    folder: Path | None = None
    starts_within = 0.0  # the worker is there when the trial starts

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
                # Until it has a worker, so that to start what keeps the workers is not a trial's time.
                while any(worker.pid is None for worker in engine.status()):
                    engine.wait(_LOOK_SECONDS)
            yield engine, {THIS_MACHINE: 1}
        finally:
            engine.close()

    def warm_up(self, run: Run) -> None:
        """Every trial has a new process here: on a machine that is rented for it, it would."""

    def remarks(self, workers: int) -> tuple[str, ...]:
        """If other programs leave less than so many cores: all trials are slower then, and alike, so that nothing
        in the figures shows it."""
        load, machine = os.getloadavg()[0], os.cpu_count() or 1
        if load + workers <= machine + 0.5:
            return ()
        figures = f"load average {load:.1f}, {plural(machine, 'core')}"
        return (f"the machine is busy ({figures}): steps take longer than on an idle one",)


@contextlib.contextmanager
def _limited(workers: int, folder: str) -> Iterator[None]:
    """Processes that are started within may use so many cores and threads; this one is as it was afterwards."""
    allowed = os.sched_getaffinity(0)
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    try:
        with contextlib.chdir(folder or "."):  # where a study of this target runs
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
        f"with {how}, no step was done within the {seconds:g} s of a trial, which its start is part of; give more "
        "--seconds, or fewer --repeats, which share them"
    )


def _failure(failed: Failed, run: Run) -> str:
    """All of it, for there is no record in which to look the rest up."""
    when = f" when it was taken up after step {run.resume_step}" if run.resume_step else ""
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
