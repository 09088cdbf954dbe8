"""How does it stand? What a person sees while a study runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from thriftune.common import formatting
from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.common.text import last_line, printable
from thriftune.engines.protocol import WorkerStatus
from thriftune.loop.driver import View
from thriftune.results.trial_states import count_state_words
from thriftune.show import describe as words
from thriftune.show.ending import end_line, short_end_line
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_SECONDS = 2.0
"""Between plain lines; a study that ends before the first is due shows only how it ended."""

FRAME_SECONDS = 0.25
_MOST_WAITING = 3
_WIDEST_METRIC = 16


def make_view(spec: Spec, progress: bool | None) -> View:
    """False: only what must be said. None: live on a terminal, else plain lines. True: the same, at once."""
    if progress is False:
        return Silent()
    if sys.stderr.isatty():
        from rich.console import Console  # late: a study in a script or a log needs no such library

        console = Console(stderr=True, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            return Live(spec, console)
    return Lines(spec, at_once=progress is True)


class Silent:
    """Shows nothing, says what must be said."""

    def __init__(self) -> None:
        self._busy = False
        self._unsaid: list[str] = []

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        pass

    def say(self, message: str) -> None:
        """Safe from a signal handler: what arrives in the middle of writing is written right after."""
        self._unsaid.append(message)
        if self._busy:
            return
        self._busy = True
        try:
            while self._unsaid:
                self._write(self._unsaid.pop(0))
        finally:
            self._busy = False

    def note(self, message: str) -> None:
        pass

    def _write(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Lines(Silent):
    """Plain lines for logs and pipes: one every few seconds, and one at the end."""

    def __init__(self, spec: Spec, *, at_once: bool) -> None:
        super().__init__()
        self._spec = spec
        self._at_once = at_once
        self._due = float("-inf")
        self._shown: str | None = None  # the last line
        self._last: History | None = None
        self._now = 0.0

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        self._now = now
        if now < self._due:
            return
        first, self._due = self._last is None, now + LINE_SECONDS
        self._last = history
        if not first:
            self._show(history, doing(), now)
        elif self._at_once:
            spec = self._spec
            self._shown = ""
            self.say(f"study {spec.name}: {aim(spec)}, {_at_a_time(spec)}")

    def note(self, message: str) -> None:
        self.say(message)

    def _show(self, history: History, doing: Sequence[WorkerStatus], now: float) -> None:
        line = status_line(self._spec, history, now, doing)
        if line != self._shown:
            self._shown = line
            self.say(line)

    def __exit__(self, *_: object) -> None:
        if self._last is None:
            return
        if self._shown is not None:
            self.say(end_line(self._spec, self._last, self._now))
        elif self._last.finish_reason is not None:  # else an error says what there is to say
            self.say(short_end_line(self._spec, self._last, self._now))


class Live(Silent):
    """A picture of the study on a terminal, drawn in place. No thread: the driver's own turns draw it."""

    def __init__(self, spec: Spec, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__()
        self._spec = spec
        self._console = console
        # What is printed meanwhile goes above the picture, unless it goes to a file or a pipe.
        to_terminal = sys.stdout.isatty()
        self._live = RichLive(console=console, auto_refresh=False, transient=True, redirect_stdout=to_terminal)
        self._due = float("-inf")
        self._last: History | None = None
        self._now = 0.0

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        self._now = now
        if now < self._due or self._busy:
            return
        self._last = history
        began = time.perf_counter()
        self._busy = True
        try:
            room = self._console.height
            self._live.update(frame(self._spec, history, doing(), now, room), refresh=True)
        finally:
            self._busy = False
        # A slow terminal must not slow the study down: at most a twentieth of the time goes into drawing.
        self._due = now + max(FRAME_SECONDS, 20 * (time.perf_counter() - began))
        if self._unsaid:
            self.say(self._unsaid.pop(0))

    def note(self, message: str) -> None:
        self.say(message)

    def _write(self, message: str) -> None:
        # Above the picture, where it stays.
        self._console.print(message, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._last is not None:
            self.say(end_line(self._spec, self._last, self._now))


# --- sentences --------------------------------------------------------------------------------------------


def aim(spec: Spec) -> str:
    criteria = words.criteria(spec)
    ends = f"; ends early by {', '.join(criteria)}" if criteria else ""
    return f"{spec.goal} within {', '.join(words.limits(spec))}{ends}"


def _at_a_time(spec: Spec) -> str:
    where = "" if spec.engine == "local" else f" on {spec.engine.capitalize()}"
    workers = formatting.plural(spec.workers, "worker") if spec.workers else "as many workers as find room"
    return workers + where


def status_line(spec: Spec, history: History, now: float, doing: Sequence[WorkerStatus] = ()) -> str:
    of = f" of {spec.trials}" if spec.trials else ""
    parts = [f"{words.ended(history)}{of} trials ended"]
    parts += [
        f"{history.counts[state]} {state.lower()}"
        for state in (State.RUNNING, State.WAITING, State.PAUSED, State.FAILED)
        if history.counts[state]
    ]
    without = [work for work in doing if work.trial is not None and work.waits_for]
    waits = [f"{len(without)} without room: trial {work.trial} waits for {work.waits_for}" for work in without[:1]]
    best = words.found(history)._replace(config="")
    cost = format_dollars(history.dollars(now))
    if not history.fleet.all_billed:
        cost += " by list prices" if history.fleet.rented_ids else " if rented"
    time_and_cost = f"{words.time_line(history, spec, now)}, {cost}"
    still = words.stands_still(history, spec)
    told = (", ".join(parts), *waits, still, str(best), time_and_cost)
    return "; ".join(part for part in told if part)


# --- the picture ------------------------------------------------------------------------------------------

_STYLES = {
    "waiting": "yellow",
    "running": "cyan",
    "paused": "magenta",
    "completed": "green",
    "stopped early": "blue",
    "failed": "red",
}


def frame(
    spec: Spec, history: History, doing: Sequence[WorkerStatus], now: float, room: int = 40
) -> RenderableType:
    """One picture, of about `room` lines at most."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    # Of columns that may wrap, only these are made narrower; and their texts are cut, not wrapped.
    facts.add_column(style="dim", no_wrap=True, min_width=len("trials"))
    facts.add_column()
    ended = words.ended(history)
    by_state = Text(no_wrap=True, overflow="ellipsis")
    for word, count in count_state_words(history.counts, history.finish_reason is not None).items():
        by_state.append(f"{count} {word}  ", style=_STYLES[word])
    if spec.trials:
        bar = Table.grid(padding=(0, 2))
        counted = f"{ended} of {spec.trials}"
        bar.add_row(ProgressBar(total=spec.trials, completed=min(ended, spec.trials), width=24), counted, by_state)
        facts.add_row("trials", bar)
    else:
        facts.add_row("trials", by_state)
    best = words.found(history)
    shown = Text(no_wrap=True, overflow="ellipsis")
    shown.append(best.text or words.no_value(history), style="bold green" if best.name else "dim")
    facts.add_row(best.name or "best", shown.append(f"  {best.config}", style="dim"))
    facts.add_row("time", Text(words.time_line(history, spec, now), no_wrap=True, overflow="ellipsis"))
    budget = f" of {format_dollars(spec.budget_dollars)}" if spec.budget_dollars else ""
    cost = words.cost_line(history, now).replace(" ", f"{budget} ", 1)
    facts.add_row("cost", Text(cost, no_wrap=True, overflow="ellipsis"))

    title = Text.assemble(
        (f"study {spec.name}", "bold"), ("  " + aim(spec), "dim"), no_wrap=True, overflow="ellipsis"
    )
    if history.stop_requested_by:
        title.append(f"  stopping ({history.stop_requested_by})", style="bold yellow")
    still = words.stands_still(history, spec)
    lines = [*([f"the study {still}"] if still else []), *_waiting(spec, history)]
    below = [Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in lines]
    if failed := _last_failed(history):
        what = f"trial {failed.id} failed: {last_line(failed.error)}"
        below.append(Text(what, style="red", no_wrap=True, overflow="ellipsis"))
    parts: list[RenderableType] = [title, facts]
    left = room - 1 - facts.row_count - len(below) - 2  # for workers: less their header, and the cursor's line
    if workers := _workers(spec, history, doing, now, left):
        parts.append(workers)
    return Group(*parts, *below)


def _workers(
    spec: Spec, history: History, doing: Sequence[WorkerStatus], now: float, most: int
) -> RenderableType | None:
    from rich.table import Table
    from rich.text import Text

    if not doing:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("worker", "trial", "step", spec.metric, "for"):
        name, left = Text(column), column == "worker"
        table.add_column(name, no_wrap=True, justify="left" if left else "right", max_width=_WIDEST_METRIC)
    table.add_column("")  # what is left of the width
    shown = len(doing) if len(doing) <= most else max(most - 1, 1)
    for work in doing[:shown]:
        trial = history.trials[work.trial] if work.trial is not None and work.trial < len(history.trials) else None
        number = work.worker.removeprefix("worker ")
        if trial is None:
            table.add_row(number, "-", "", "", "", "idle", style="dim")
            continue
        step = f"{trial.step}/{spec.max_steps}" if spec.max_steps else str(trial.step)
        now_doing = f"waits for {work.waits_for}" if work.waits_for else _now_doing(trial)
        doing_now = Text(printable(now_doing), no_wrap=True, overflow="ellipsis")
        since = format_seconds(max(0.0, now - (trial.started_at or now)))
        table.add_row(number, str(trial.id), step, formatting.format_number(trial.value), since, doing_now)
    if more := len(doing) - shown:
        what = Text(f"and {formatting.plural(more, 'more worker')}", no_wrap=True, overflow="ellipsis")
        table.add_row("", "", "", "", "", what, style="dim")
    return table


def _now_doing(trial: TrialRecord) -> str:
    if trial.kill_reason:
        return f"being killed: {trial.kill_reason}"
    if trial.end_request:
        return "told to end after its next step"
    attempt = f"attempt {trial.attempts}: " if trial.attempts > 1 else ""
    return attempt + words.config_line(trial.config)


def _waiting(spec: Spec, history: History) -> list[str]:
    first = [history.trials[number] for number, _ in zip(history.waiting, range(_MOST_WAITING), strict=False)]
    lines = [f"trial {trial.id} {words.waits_for(trial, history, spec, driven=True)}" for trial in first]
    more = len(history.waiting) - len(first)
    return [*lines, "and 1 more trial waits" if more == 1 else f"and {more} more trials wait"] if more else lines


def _last_failed(history: History) -> TrialRecord | None:
    if not history.counts[State.FAILED]:
        return None
    failed = (trial for trial in history.trials if trial.state is State.FAILED)
    return max(failed, key=lambda trial: trial.ended_at or 0.0)
