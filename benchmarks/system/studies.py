"""Run one study of a workload, as each side runs it, in a process of its own.

- "thriftune": knobs are applied while trials train (`system="auto"`).
- "V1" (PipeTune's Tune V1): the same search with defaults: one trial a core, each with one thread. This is
  thriftune without `system`, and also Ray Tune with its defaults.
- "V2" (Tune V2): the knobs are searched like hyperparameters, in the same number of trials, and the objective is
  accuracy over duration. A trial has as many cores as threads, and waits until they are free.
- "plain": V1, with the number of threads that the libraries choose by themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import thriftune as tt
from benchmarks.common import in_new_process
from benchmarks.system.workloads import WORKLOADS, Workload
from thriftune.common.threads_per_trial import THREAD_VARIABLES, thread_limits
from thriftune.state.events import PROBE
from thriftune.system.energy import estimate

SIDES = ("thriftune", "V1", "V2", "plain")
RATIO = "accuracy_a_second"
GIVEN_BACK = "given back"


@dataclass(frozen=True)
class Outcome:
    """What a study took, and what it found.

    - `seconds`: the time of the whole study.
    - `training_seconds`: the best trial's time from its first report to its last.
    - `curve`: for each of the best trial's reports, the seconds since the first one and the accuracy.
    - `joules`: an estimate by CPU time.
    - `probes`: the number of windows in which a setting was only probed.
    - `decisions`: how many decisions rest on what.
    """

    side: str
    seconds: float
    training_seconds: float
    curve: tuple[tuple[float, float], ...]
    accuracy: float
    config: dict[str, Any]
    joules: float
    steps: int
    windows: int
    probes: int
    settings: tuple[str, ...]
    decisions: Counter[str]

    def seconds_to(self, accuracy: float) -> float | None:
        """Return the training time until the best trial reached this accuracy, or None if it never did.

        The first step counts like the others, because libraries are loaded in it.
        """
        a_step = self.training_seconds / max(1, len(self.curve) - 1)
        return next((at + a_step for at, reached in self.curve if reached >= accuracy), None)


class Size(NamedTuple):
    """The size of a search by successive halving: one trial in `eta` goes on from each rung to the next."""

    trials: int
    min_steps: int
    max_steps: int
    eta: int


USUAL = Size(9, 3, 27, 3)
SMALL = Size(4, 2, 8, 2)
TINY = Size(2, 1, 2, 2)


def run(workload: str, side: str, seed: int, store: Path, size: Size = USUAL) -> Outcome:
    return in_new_process(study, workload, side, seed, str(store), size)


def run_alone(
    workload: str, side: str, config: dict[str, Any], store: Path, max_steps: int | None = None
) -> Outcome:
    """Train the configuration again, alone on the machine.

    `max_steps`: twice the workload's own number by default.
    """
    return in_new_process(_alone, workload, side, config, str(store), max_steps)


def study(
    workload: str, side: str, seed: int, store: str, size: Size, system: tt.System | str = "auto"
) -> Outcome:
    """Run a study in this process. `system` counts on the side "thriftune" only."""
    _surround(side)
    load = WORKLOADS[workload]
    space: dict[str, Any] = dict(load.space)
    if side == "V2":
        space |= {"threads": tt.Choice(_thread_counts()), "memory": tt.Choice([GIVEN_BACK, "kept"])}
    rule = tt.stopping.SuccessiveHalving(size.trials, min_steps=size.min_steps, eta=size.eta)
    steps = size.max_steps
    return _tuned(
        load,
        side,
        space,
        store,
        system,
        searcher="random",
        trials=size.trials,
        max_steps=steps,
        stopping=rule,
        seed=seed,
    )


def _alone(workload: str, side: str, config: dict[str, Any], store: str, max_steps: int | None) -> Outcome:
    _surround(side)
    space = {name: tt.Choice([value]) for name, value in config.items()}
    load = WORKLOADS[workload]
    once: dict[str, Any] = {"searcher": "grid", "trials": 1, "stopping": "none", "seed": 0}
    once["max_steps"] = max_steps or 2 * load.max_steps
    return _tuned(load, side, space, store, "auto", **once)


def _tuned(
    load: Workload, side: str, space: dict[str, Any], store: str, system: tt.System | str, **more: Any
) -> Outcome:
    train = ByHand(load, f"{store}.cores") if side == "V2" else load.train
    started, cpu_before = time.perf_counter(), cpu_seconds()
    result = tt.tune(
        train,
        space,
        maximize=RATIO if side == "V2" else load.metric,
        system=system if side == "thriftune" else "off",
        store=store,
        progress=False,
        **more,
    )
    seconds = time.perf_counter() - started
    history = result.history
    windows = [window.usage for trial in history.trials for window in trial.windows]
    best = result.best
    probes = sum(_probes(trial) for trial in history.trials)
    return Outcome(
        side,
        seconds,
        best.reports[-1].at - best.reports[0].at,
        tuple((report.at - best.reports[0].at, report.metrics[load.metric]) for report in best.reports),
        best.metrics[load.metric],
        dict(best.config),
        estimate(cpu_seconds() - cpu_before, seconds, len(os.sched_getaffinity(0))),
        sum(trial.step for trial in history.trials),
        len(windows),
        probes,
        tuple(str(dict(trial.knob_setting)) for trial in history.trials),
        Counter(change.by for trial in history.trials for _, change in trial.knob_changes),
    )


def _probes(trial: tt.TrialRecord) -> int:
    """Return how many windows followed a decision to probe."""
    ends = [*(begin for begin, _ in trial.knob_changes[1:]), len(trial.windows)]
    return sum(
        end - begin for (begin, change), end in zip(trial.knob_changes, ends, strict=False) if change.by == PROBE
    )


class ByHand:
    """A training function that applies the knobs of its configuration, and reports accuracy over time."""

    def __init__(self, load: Workload, cores: str) -> None:
        """`cores`: a folder with lock files, one for each core."""
        self.load, self._cores = load, Path(cores)

    def __call__(self, trial: tt.Trial) -> None:
        with taken(trial["threads"], self._cores):
            self._train(trial)

    def _train(self, trial: tt.Trial) -> None:
        memory, threads = tt.system.Memory(), tt.system.Threads()
        if trial["memory"] == "kept":
            memory.apply("kept")
        threads.apply(trial["threads"])
        trial.report = WithRatio(trial, self.load.metric)  # type: ignore[method-assign]
        try:
            self.load.train(trial)
        finally:
            threads.restore()
            memory.restore()


@contextlib.contextmanager
def taken(count: int, folder: Path) -> Iterator[None]:
    """Reserve this many cores at once, as soon as they are free. The kernel releases them when the holder dies."""
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        door, *cores = (
            stack.enter_context((folder / str(name)).open("w")) for name in ("door", *os.sched_getaffinity(0))
        )
        waits = True
        while waits:
            fcntl.flock(door, fcntl.LOCK_EX)  # one process at a time
            free = [core for core in cores if _is_locked_now(core)]
            waits = len(free) < count
            for core in free if waits else free[count:]:
                fcntl.flock(core, fcntl.LOCK_UN)
            fcntl.flock(door, fcntl.LOCK_UN)
            time.sleep(0.01 if waits else 0.0)
        yield


def _is_locked_now(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class WithRatio:
    """Reports of a trial with its accuracy over the time that its steps take at this pace."""

    def __init__(self, trial: tt.Trial, metric: str) -> None:
        self._report, self._metric = trial.report, metric
        self._before, self._done, self._began = trial.run.resume_step, 0, time.perf_counter()

    def __call__(self, metrics: Any = None, /, **more: Any) -> None:
        self._done += 1
        seconds_a_step = (time.perf_counter() - self._began) / self._done
        ratio = more[self._metric] / (seconds_a_step * (self._before + self._done))
        self._report(metrics, **more, **{RATIO: ratio})


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its child processes that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _thread_counts() -> list[int]:
    cores = len(os.sched_getaffinity(0))
    return sorted({*(2**n for n in range(cores.bit_length())), cores} & set(range(1, cores + 1)))


def _surround(side: str) -> None:
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
    if side == "plain":
        os.environ.update(thread_limits(len(os.sched_getaffinity(0))))
