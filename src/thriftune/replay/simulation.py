"""Simulates a study: replays learning curves under another stopping rule, searcher or cloud on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack, overload

from thriftune.common.durations import Duration, seconds
from thriftune.errors import SettingError
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import NearestRecorded, RecordedOrder, Recording, recording_from_result
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import MACHINE, Curves, run
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.space.objectives import Names, parse_objectives
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.checks import check_needs
from thriftune.stopping.protocol import Stopper
from thriftune.study.result import Result

if TYPE_CHECKING:
    from thriftune.replay.traces import Trace
    from thriftune.replay.what_if import PolicySummary

_RESTART_SECONDS = 30.0
"""The default time to resume a trial on another machine of a cloud: to start Python and to read the checkpoint."""


class HasResult(Protocol):
    """A study as a source of simulate(), such as tt.Study."""

    @property
    def result(self) -> Result: ...


Source: TypeAlias = HasResult | Result | Recording | Curves | str | Path


class SimulationOptions(TypedDict, total=False):
    """The arguments of simulate() that apply with and without a cloud."""

    stopping: str | Stopper | None
    searcher: str | Searcher | None
    workers: int
    trials: int | None
    max_steps: int | None
    deadline: Duration | None
    seed: int
    minimize: Names | None
    maximize: Names | None
    space: Space | Mapping[str, Any] | None
    price_per_hour: float
    restart_seconds: float | None
    slower: float


@overload
def simulate(
    source: Source,
    *,
    cloud: Trace | str | Path,
    policies: Sequence[str] = ...,
    seeds: int = ...,
    save_seconds: float | None = ...,
    state_gb: float = ...,
    gb_per_second: float = ...,
    on_progress: Callable[[str], object] = ...,
    **others: Unpack[SimulationOptions],
) -> list[PolicySummary]: ...
@overload
def simulate(source: Source, **others: Unpack[SimulationOptions]) -> Result: ...
def simulate(
    source: Source,
    *,
    stopping: str | Stopper | None = None,
    searcher: str | Searcher | None = None,
    workers: int = 1,
    trials: int | None = None,
    max_steps: int | None = None,
    deadline: Duration | None = None,
    seed: int = 0,
    minimize: Names | None = None,
    maximize: Names | None = None,
    space: Space | Mapping[str, Any] | None = None,
    price_per_hour: float = 0.0,
    restart_seconds: float | None = None,
    cloud: Trace | str | Path | None = None,
    policies: Sequence[str] = ("thrifty",),
    seeds: int = 3,
    save_seconds: float | None = 10.0,
    state_gb: float = 0.0,
    gb_per_second: float = 0.25,
    slower: float = 1.0,
    on_progress: Callable[[str], object] = lambda _: None,
) -> Result | list[PolicySummary]:
    """Simulate a study under another stopping rule, with another searcher or number of workers.

    Replays learning curves on a virtual clock, with the conductor that runs real trials. Returns a Result, as
    tune() does; its times are virtual and begin at 0. With a `cloud`, each of the `policies` rents machines of
    that cloud, and the function returns the summaries of all policies.

    - `source`: one of the following.
      - A Study or a Result. Its trials that have completed or failed are replayed.
      - The path of a recording, as `thriftune record` makes it.
      - The path of a table, see curve_tables.py. Needs `minimize` or `maximize`.
      - A function from a configuration to a Curve. Needs `space`, `minimize` or `maximize`, and a limit.
    - `stopping`: by default `auto`; with a cloud `none`, so that all policies do the same work.
    - `searcher`: by default, the recorded configurations in their order. Each suggestion of another searcher is
      replaced by the nearest recorded configuration that has not been tried yet.
    - `price_per_hour`: of all workers together.
    - `restart_seconds`: to resume a paused or preempted trial; by default 0, with a cloud 30.
    - `slower`: the factor by which steps take longer than recorded.

    With a cloud:

    - `cloud`: a Trace, or the path of a record of prices, lifetimes or availability.
    - `policies`: the names of the renting policies to compare.
    - `seeds`: how many times each policy is run, each time with another start and other random lifetimes.
    - `deadline`: a study that misses it runs on to its end.
    - `save_seconds`: to write a checkpoint. None: trials write no checkpoints and get only on-demand machines.
    - `state_gb`: the size of a checkpoint. Writing and reading it takes `state_gb / gb_per_second` seconds more.
    - `gb_per_second`: the bandwidth to and from the storage.
    - `on_progress`: called before each run with its policy and number.
    """
    if not isinstance(slower, (int, float)) or isinstance(slower, bool) or not 0.0 < slower < inf:
        raise SettingError(f"slower: {slower!r} must be a finite number, above 0")
    if stopping is None:
        stopping = "auto" if cloud is None else "none"
    if restart_seconds is None:
        restart_seconds = 0.0 if cloud is None else _RESTART_SECONDS
    STOPPERS.check(stopping)
    if searcher is not None:
        SEARCHERS.check(searcher)
    rule, options = STOPPERS.name_and_options(stopping)
    recording = _recording(source, minimize, maximize, space)
    if recording is None:
        if space is None or (trials is None and deadline is None):
            raise SettingError("to simulate a function, give its space= and a limit: trials= or deadline=")
        kind = STOPPERS.kind(stopping) if isinstance(stopping, str) else type(stopping)
        check_needs(kind, options, max_steps, trials)
        spec = Spec(MACHINE, Space(space), parse_objectives(minimize, maximize), seed, max_steps=max_steps)
    else:
        steps = recording.max_steps if max_steps is None else max_steps
        spec = Spec(MACHINE, recording.space, recording.objectives, seed, recording.constraints, max_steps=steps)
    spec = replace(
        spec,
        stopping=rule,
        stopping_options=options,
        trials=trials,
        deadline_seconds=seconds("deadline", deadline),
        workers=workers,
        retries=0,
    )

    def make_curves() -> Curves:
        curves: Curves = source if recording is None else recording.player()  # type: ignore[assignment]
        return _slowed(curves, slower)

    def make_searcher() -> Searcher:
        own = SEARCHERS.make(searcher, {}) if isinstance(searcher, str) else searcher
        if recording is None:
            return own or SEARCHERS.make("random", {})
        return RecordedOrder(recording) if own is None else NearestRecorded(recording, own)

    def make_stopper() -> Stopper | None:
        if not spec.judged:
            return None
        return STOPPERS.make(stopping, {}) if isinstance(stopping, str) else stopping

    if cloud is not None:
        from thriftune.replay.what_if import (  # late: slow to import
            CheckpointCosts,
            ReplayedStudy,
            compare_on_cloud,
        )

        if recording is not None and trials is None:
            spec = replace(spec, trials=len(recording.rows))
        study = ReplayedStudy(spec, make_curves, make_searcher, make_stopper)
        costs = CheckpointCosts(save_seconds, restart_seconds, state_gb, gb_per_second)
        return compare_on_cloud(study, cloud, policies, seeds, costs, on_progress)
    return run(
        spec,
        make_curves(),
        make_searcher(),
        make_stopper(),
        price_per_hour=price_per_hour,
        restart_seconds=restart_seconds,
    )


def _slowed(curves: Curves, factor: float) -> Curves:
    """Return the curves with the seconds of each step multiplied by the factor."""
    if factor == 1.0:
        return curves

    def slowed(config: ev.Config) -> Curve:
        curve = curves(config)
        return replace(curve, seconds=[factor * each for each in curve.seconds])

    return slowed


def _recording(
    source: object, minimize: Names | None, maximize: Names | None, space: Space | Mapping[str, Any] | None
) -> Recording | None:
    """Return the recording of a source; None if the source is a function."""
    if isinstance(source, Recording):
        return source
    if isinstance(source, (str, Path)):
        if Path(source).suffix == ".toml":
            raise SettingError(
                f"simulate: {source} is a study file; "
                "read it with thriftune.replay.synthetic_curves.read_synthetic_study"
            )
        known_space = None if space is None else Space(space)
        objectives = parse_objectives(minimize, maximize) if minimize or maximize else ()
        return read_table(Path(source), objectives, known_space)
    result = getattr(source, "result", source)  # of a Study
    if isinstance(result, Result):
        if minimize or maximize or space is not None:
            raise SettingError(
                "simulate: a study has its own objectives and space; leave out minimize=, maximize=, space="
            )
        return recording_from_result(result)[0]
    if not callable(source):
        raise SettingError(f"simulate: {source!r} is no study, table or function")
    return None
