"""Show the progress of a study while it runs: as a live display, as plain lines, or not at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Self

from thriftune.common import formatting
from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.common.text import last_line, printable
from thriftune.engines.protocol import WorkerStatus
from thriftune.loop.driver import View
from thriftune.results.trial_states import count_state_words
from thriftune.show import cost_and_limits, describe, waiting
from thriftune.show.ending import end_line
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_SECONDS = 2.0
"""Seconds between plain lines. A study that ends before the first line is due shows one line at its end."""

FRAME_SECONDS = 0.25
"""Least seconds between two frames of the live display: four a second are enough to read."""

_DRAWING_SHARE = 0.05
"""Most of the driver's time that drawing may take, so that a slow terminal does not slow the study down."""

_MAX_WAITING = 3
_MAX_METRIC_WIDTH = 16


def make_view(spec: Spec, progress: bool | None) -> View:
    """Return the view of a study's progress on standard error.

    `progress` False: only messages. None: a live display on a terminal, else plain lines. True: the same, and the
    first plain line comes at once.
    """
    if progress is False:
        return SilentView()
    if sys.stderr.isatty():
        from rich.console import Console  # late: a study in a script or a log needs no such library

        console = Console(stderr=True, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveView(spec, console)
    return LineView(spec, at_once=progress is True)


class SilentView:
    """A view that shows no progress and no notes, only messages from say()."""

    def __init__(self) -> None:
        self._busy = False  # True while a message or a frame is being written
        self._unwritten: list[str] = []  # messages in order of arrival

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        pass

    def say(self, message: str) -> None:
        """Write a message.

        A signal handler may call this. Its message is written after the one that it interrupted.
        """
        self._unwritten.append(message)
        if self._busy:
            return
        self._busy = True
        try:
            while self._unwritten:
                self._write(self._unwritten.pop(0))
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


class LineView(SilentView):
    """A view that prints a plain line every few seconds, for logs and pipes.

    It prints one more line at the end.
    """

    def __init__(self, spec: Spec, *, at_once: bool) -> None:
        super().__init__()
        self._spec = spec
        self._at_once = at_once
        self._due = float("-inf")  # when the next line is due
        self._last_line: str | None = None  # None: no line was shown yet
        self._history: History | None = None  # as of the last update that was due
        self._now = 0.0

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        self._now = now
        if now < self._due:
            return
        is_first, self._due = self._history is None, now + LINE_SECONDS
        self._history = history
        if not is_first:
            self._show(history, doing(), now)
        elif self._at_once:
            spec = self._spec
            self._last_line = ""
            self.say(f"study {spec.name}: {goal_line(spec)}, {_workers_text(spec)}")

    def note(self, message: str) -> None:
        self.say(message)

    def _show(self, history: History, doing: Sequence[WorkerStatus], now: float) -> None:
        line = status_line(self._spec, history, now, doing)
        if line != self._last_line:
            self._last_line = line
            self.say(line)

    def __exit__(self, *_: object) -> None:
        # A study that ends with an error before the first line shows only the error.
        if self._history is not None and (self._last_line is not None or self._history.finish_reason is not None):
            self.say(end_line(self._spec, self._history, self._now))


class LiveView(SilentView):
    """A display of the study on a terminal, drawn in place.

    It has no thread: update(), which the driver calls in its loop, draws it.
    """

    def __init__(self, spec: Spec, console: Console) -> None:
        from rich.live import Live

        super().__init__()
        self._spec = spec
        self._console = console
        # Prints of the user's code go above the display, unless standard output is a file or a pipe.
        to_terminal = sys.stdout.isatty()
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=to_terminal)
        self._due = float("-inf")  # when the next frame is due
        self._history: History | None = None  # as of the last frame
        self._now = 0.0

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        self._now = now
        if now < self._due or self._busy:
            return
        self._history = history
        began = time.perf_counter()
        self._busy = True
        try:
            lines = self._console.height
            self._live.update(frame(self._spec, history, doing(), now, lines), refresh=True)
        finally:
            self._busy = False
        self._due = now + max(FRAME_SECONDS, (time.perf_counter() - began) / _DRAWING_SHARE)
        if self._unwritten:
            self.say(self._unwritten.pop(0))

    def note(self, message: str) -> None:
        self.say(message)

    def _write(self, message: str) -> None:
        # Rich writes this above the display, where it stays.
        self._console.print(message, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._history is not None:
            self.say(end_line(self._spec, self._history, self._now))


# --- lines ------------------------------------------------------------------------------------------------


def goal_line(spec: Spec) -> str:
    """Return a study's goal and limits, such as "minimize loss within 100 trials"."""
    early_ends = cost_and_limits.early_end_texts(spec)
    note = f"; ends early by {', '.join(early_ends)}" if early_ends else ""
    return f"{spec.goal} within {', '.join(cost_and_limits.limit_texts(spec))}{note}"


def _workers_text(spec: Spec) -> str:
    engine = "" if spec.engine == "local" else f" on {spec.engine.capitalize()}"
    workers = formatting.plural(spec.workers, "worker") if spec.workers else "as many workers as there is room for"
    return workers + engine


def status_line(spec: Spec, history: History, now: float, workers: Sequence[WorkerStatus] = ()) -> str:
    """Return the progress of a study on one line.

    It has the trials by state, what the study waits for, the best trial, the time and the cost.
    """
    limit = f" of {spec.trials}" if spec.trials else ""
    counts = [f"{describe.count_ended(history)}{limit} trials ended"]
    counts += [
        f"{history.counts[state]} {state.lower()}"
        for state in (State.RUNNING, State.WAITING, State.PAUSED, State.FAILED)
        if history.counts[state]
    ]
    blocked = [each for each in workers if each.trial is not None and each.waits_for]
    waits = [f"{len(blocked)} without room: trial {each.trial} waits for {each.waits_for}" for each in blocked[:1]]
    best = describe.best_or_front(history)._replace(config="")
    cost = format_dollars(history.dollars(now))
    if not history.fleet.all_billed:
        cost += " by list prices" if history.fleet.rented_ids else " if rented"
    time_and_cost = f"{cost_and_limits.time_line(history, spec, now)}, {cost}"
    parts = (", ".join(counts), *waits, waiting.no_room_reason(history, spec), str(best), time_and_cost)
    return "; ".join(part for part in parts if part)


# --- the live display---------------------------------------------------------------------------------------

_STYLES = {
    "waiting": "yellow",
    "running": "cyan",
    "paused": "magenta",
    "completed": "green",
    "stopped early": "blue",
    "failed": "red",
}


def frame(
    spec: Spec, history: History, workers: Sequence[WorkerStatus], now: float, max_lines: int = 40
) -> RenderableType:
    """Return one frame of the live display, with about `max_lines` lines at most."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    # In a narrow terminal the second column shrinks, and its texts are cut off.
    facts.add_column(style="dim", no_wrap=True, min_width=len("trials"))
    facts.add_column()
    ended = describe.count_ended(history)
    by_state = Text(no_wrap=True, overflow="ellipsis")
    for name, count in count_state_words(history.counts, history.finish_reason is not None).items():
        by_state.append(f"{count} {name}  ", style=_STYLES[name])
    if spec.trials:
        progress = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=spec.trials, completed=min(ended, spec.trials), width=24)
        progress.add_row(bar, f"{ended} of {spec.trials}", by_state)
        facts.add_row("trials", progress)
    else:
        facts.add_row("trials", by_state)
    best = describe.best_or_front(history)
    best_text = Text(no_wrap=True, overflow="ellipsis")
    best_text.append(best.text or describe.no_best_line(history), style="bold green" if best.label else "dim")
    facts.add_row(best.label or "best", best_text.append(f"  {best.config}", style="dim"))
    facts.add_row("time", Text(cost_and_limits.time_line(history, spec, now), no_wrap=True, overflow="ellipsis"))
    budget = f" of {format_dollars(spec.budget_dollars)}" if spec.budget_dollars else ""
    cost = cost_and_limits.cost_line(history, now).replace(" ", f"{budget} ", 1)
    facts.add_row("cost", Text(cost, no_wrap=True, overflow="ellipsis"))

    title = Text.assemble(
        (f"study {spec.name}", "bold"), ("  " + goal_line(spec), "dim"), no_wrap=True, overflow="ellipsis"
    )
    if history.stop_requested_by:
        title.append(f"  stopping ({history.stop_requested_by})", style="bold yellow")
    no_room = waiting.no_room_reason(history, spec)
    lines = [*([f"the study {no_room}"] if no_room else []), *_waiting_lines(spec, history)]
    below = [Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in lines]
    if failed := _last_failed(history):
        failure = f"trial {failed.id} failed: {last_line(failed.error)}"
        below.append(Text(failure, style="red", no_wrap=True, overflow="ellipsis"))
    parts: list[RenderableType] = [title, facts]
    # The other lines: the title, the facts, the lines below, the header of the table, and the cursor's line.
    max_workers = max_lines - 1 - facts.row_count - len(below) - 2
    if table := _worker_table(spec, history, workers, now, max_workers):
        parts.append(table)
    return Group(*parts, *below)


def _worker_table(
    spec: Spec, history: History, workers: Sequence[WorkerStatus], now: float, max_workers: int
) -> RenderableType | None:
    from rich.table import Table
    from rich.text import Text

    if not workers:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("worker", "trial", "step", spec.metric, "for"):
        justify: Literal["left", "right"] = "left" if column == "worker" else "right"
        table.add_column(Text(column), no_wrap=True, justify=justify, max_width=_MAX_METRIC_WIDTH)
    table.add_column("")  # takes the rest of the width
    shown = len(workers) if len(workers) <= max_workers else max(max_workers - 1, 1)
    for worker in workers[:shown]:
        number = worker.trial
        trial = history.trials[number] if number is not None and number < len(history.trials) else None
        name = worker.worker.removeprefix("worker ")
        if trial is None:
            table.add_row(name, "-", "", "", "", "idle", style="dim")
            continue
        step = f"{trial.step}/{spec.max_steps}" if spec.max_steps else str(trial.step)
        activity = f"waits for {worker.waits_for}" if worker.waits_for else _activity(trial)
        activity_text = Text(printable(activity), no_wrap=True, overflow="ellipsis")
        seconds = format_seconds(max(0.0, now - (trial.started_at or now)))
        table.add_row(name, str(trial.id), step, formatting.format_number(trial.value), seconds, activity_text)
    if more := len(workers) - shown:
        note = Text(f"and {formatting.plural(more, 'more worker')}", no_wrap=True, overflow="ellipsis")
        table.add_row("", "", "", "", "", note, style="dim")
    return table


def _activity(trial: TrialRecord) -> str:
    if trial.kill_reason:
        return f"being killed: {trial.kill_reason}"
    if trial.end_request:
        return "will end after its next step"
    attempt = f"attempt {trial.attempts}: " if trial.attempts > 1 else ""
    return attempt + describe.config_line(trial.config)


def _waiting_lines(spec: Spec, history: History) -> list[str]:
    first = [history.trials[number] for number, _ in zip(history.waiting, range(_MAX_WAITING), strict=False)]
    lines = [f"trial {trial.id} {waiting.wait_reason(trial, history, spec, has_driver=True)}" for trial in first]
    more = len(history.waiting) - len(first)
    return [*lines, "and 1 more trial waits" if more == 1 else f"and {more} more trials wait"] if more else lines


def _last_failed(history: History) -> TrialRecord | None:
    if not history.counts[State.FAILED]:
        return None
    failed = (trial for trial in history.trials if trial.state is State.FAILED)
    return max(failed, key=lambda trial: trial.ended_at or 0.0)
