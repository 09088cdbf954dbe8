"""What would have come of it? Learning curves replayed under another rule, in a moment, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack, overload

from thriftune.common.durations import Duration, seconds
from thriftune.errors import SettingError, ThriftuneError
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import make_run
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import InOrder, Nearest, Recording, of_result
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.results.result import Result
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.space.objectives import Names, parse_objectives
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.checks import check_needs
from thriftune.stopping.protocol import Stopper

if TYPE_CHECKING:
    from thriftune.replay.traces import Trace
    from thriftune.replay.what_if import Compared

MACHINE = "simulated"

Curves = Callable[[ev.Config], Curve]


class HasResult(Protocol):
    """A study as a source of simulate(), such as tt.Study."""

    @property
    def result(self) -> Result: ...


Source: TypeAlias = HasResult | Result | Recording | Curves | str | Path


class Settings(TypedDict, total=False):
    """What simulate() may be given in any case."""

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
    told: Callable[[str], object] = ...,
    **others: Unpack[Settings],
) -> list[Compared]: ...
@overload
def simulate(source: Source, **others: Unpack[Settings]) -> Result: ...
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
    told: Callable[[str], object] = lambda _: None,
) -> Result | list[Compared]:
    """What a study would have come to under another rule, with another searcher or number of workers.

    Learning curves are replayed on a virtual clock, by the same conductor that runs real trials. Returns what
    tune() would; its times are virtual and begin at 0. With a `cloud`, its machines are rented by each of these
    `policies`, and what comes of that is compared.

    - `source`: a Study or a Result, whose trials that came to their end are replayed; the path of a recording, as
      `thriftune record` makes it, or of a table, see curve_tables.py; or a function from a configuration to a
      Curve, which needs its `space`. A table and a function need `minimize` or `maximize`, and a function a limit.
    - `stopping`: by default `auto`; with a cloud `none`, so that all policies have the same to do.
    - `searcher`: by default, the recorded configurations in their order. Any other gets the nearest recorded one
      to what it suggests, of those not yet tried.
    - `price_per_hour`: of all workers together. `restart_seconds`: to take a trial up that was set aside;
      with a cloud 30 by default.
    - `cloud`: a Trace, or the path of a record of prices, lifetimes or availability. `seeds`: how many times each
      policy is tried, at other starts and with other lives. `slower`: steps take so many times as long as
      recorded. A study that is late goes on to its end here.
    - `save_seconds`: to write a checkpoint; None: trials write none, and get machines that stay. A checkpoint of
      `state_gb` takes as much longer to write, and to read, as `gb_per_second` to and from the storage say.
    """
    if not isinstance(slower, (int, float)) or isinstance(slower, bool) or not 0.0 < slower < inf:
        raise SettingError(f"slower: {slower!r} must be a finite number, above 0")
    if stopping is None:
        stopping = "auto" if cloud is None else "none"
    if restart_seconds is None:
        restart_seconds = 0.0 if cloud is None else 30.0
    STOPPERS.check(stopping)
    if searcher is not None:
        SEARCHERS.check(searcher)
    rule, options = STOPPERS.written(stopping)
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

    def curves() -> Curves:
        found: Curves = source if recording is None else recording.player()  # type: ignore[assignment]
        return _scaled(found, slower)

    def made_searcher() -> Searcher:
        made = SEARCHERS.make(searcher, {}) if isinstance(searcher, str) else searcher
        if recording is None:
            return made or SEARCHERS.make("random", {})
        return InOrder(recording) if made is None else Nearest(recording, made)

    def made_stopper() -> Stopper | None:
        if not spec.judged:
            return None
        return STOPPERS.make(stopping, {}) if isinstance(stopping, str) else stopping

    if cloud is not None:
        from thriftune.replay.what_if import Asked, Checkpoints, on_cloud  # they need this module

        if recording is not None and trials is None:
            spec = replace(spec, trials=len(recording.rows))
        asked = Asked(spec, curves, made_searcher, made_stopper)
        state = Checkpoints(save_seconds, restart_seconds, state_gb, gb_per_second)
        return on_cloud(asked, cloud, policies, seeds, state, told)
    return run(
        spec,
        curves(),
        made_searcher(),
        made_stopper(),
        price_per_hour=price_per_hour,
        restart_seconds=restart_seconds,
    )


def _scaled(curves: Curves, times: float) -> Curves:
    """Each step takes so many times as long."""
    if times == 1.0:
        return curves

    def curve(config: ev.Config) -> Curve:
        found = curves(config)
        return replace(found, seconds=[times * each for each in found.seconds])

    return curve


def _recording(
    source: object, minimize: Names | None, maximize: Names | None, space: Space | Mapping[str, Any] | None
) -> Recording | None:
    """None: it is a function."""
    if isinstance(source, Recording):
        return source
    if isinstance(source, (str, Path)):
        if Path(source).suffix == ".toml":
            raise SettingError(
                f"simulate: {source} is a study file; see thriftune.replay.synthetic_curves.read_not_run"
            )
        known = None if space is None else Space(space)
        objectives = parse_objectives(minimize, maximize) if minimize or maximize else ()
        return read_table(Path(source), objectives, known)
    result = getattr(source, "result", source)  # of a Study
    if isinstance(result, Result):
        if minimize or maximize or space is not None:
            raise SettingError(
                "simulate: a study has its own objectives and space; leave out minimize=, maximize=, space="
            )
        return of_result(result)[0]
    if not callable(source):
        raise SettingError(f"simulate: {source!r} is no study, table or function")
    return None


def run(
    spec: Spec,
    curves: Curves,
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    price_per_hour: float = 0.0,
    restart_seconds: float = 0.0,
) -> Result:
    """Drives the study to its end on one machine that is there all along."""
    clock = VirtualClock()
    engine = SimulatedEngine(curves, clock, restart_seconds)
    conductor = Conductor(spec, spec.new_history(), searcher, PresentMachines(), stopper)
    machine = ev.MachineReady(0.0, ev.THIS_MACHINE, MACHINE, spec.workers or 1, price_per_hour)
    drive(conductor, engine, clock, [machine])
    now = clock.time
    conductor.handle([ev.MachineReleased(now, ev.THIS_MACHINE), ev.DriverStopped(now)], now)
    return Result(spec, conductor.history)


def drive(
    conductor: Conductor,
    engine: SimulatedEngine,
    clock: VirtualClock,
    machines: Sequence[ev.Event] = (),
    cloud: SimulatedCloud | None = None,
) -> None:
    """Turns the one conductor to the study's end, as driver.py does on real machines; records nothing."""
    spec, history = conductor.spec, conductor.history
    limited = cloud is not None or spec.deadline_seconds or spec.budget_dollars or spec.timeout_seconds
    events: list[ev.Event] = [ev.DriverStarted(clock.time, 0, MACHINE), *machines]
    while True:
        answers: list[ev.Event] = []
        for entry in conductor.handle(events, clock.time):
            if type(entry) is ev.Reported:  # what nearly all entries are
                continue
            match entry:
                case ev.Place():
                    engine.start(make_run(spec, history, entry.trial), entry.workers or {entry.machine: 1})
                case ev.Move() | ev.Pause() | ev.Stop():
                    engine.request_end(entry.trial, entry.attempt)
                case ev.Kill():
                    engine.kill(entry.trial, entry.attempt)
                case ev.Rent() if cloud is not None:
                    answers += cloud.rent(entry.machine, entry.offer, entry.max_price, clock.time)
                case ev.Release() if cloud is not None:
                    answers += cloud.release(entry.machine, clock.time)
                case ev.MachineLost() | ev.MachineReleased():
                    engine.machine_lost(entry.machine)
                case _:
                    pass
        if answers:
            events = answers
            continue
        if history.finish_reason is not None:
            return
        times = [
            conductor.wake_at(clock.time) if limited or history.retrying else None,
            None if cloud is None else cloud.next_event_at(),
        ]
        wake_at = min((at for at in times if at is not None), default=None)
        events = engine.wait(None if wake_at is None else max(0.0, wake_at - clock.time))
        if cloud is not None:
            events = [*events, *cloud.poll_events(clock.time)]
        if not events and wake_at is None:  # a user's own rule may do that
            rule = type(conductor.stopper).__name__
            raise ThriftuneError(f"nothing runs, and {rule} promotes none: the study stands still")
