"""Says in one line how a study ended, for its user and for logs."""

from __future__ import annotations

from thriftune.common import formatting
from thriftune.common.formatting import format_seconds
from thriftune.results.trial_states import counts_line
from thriftune.show import describe as words
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State


def end_line(spec: Spec, history: History, now: float) -> str:
    """Return why a study ended, its trials by state, the best one and the cost."""
    counts = counts_line(history, driven=False)
    best = str(words.found(history))
    model = f"model: {better}" if (better := words.model(history)) else ""
    cost = f"{format_seconds(history.driven_seconds(now))}, {words.cost_line(history, now)}"
    why = history.finish_reason or "stopped, not finished"
    return "; ".join(part for part in (f"study {spec.name}: {why}", counts, best, model, cost) if part)


def short_end_line(spec: Spec, history: History, now: float) -> str:
    """Return what came of a study that took so little time that nothing was shown of it."""
    ended, seconds = words.ended(history), format_seconds(history.driven_seconds(now))
    done = f"{formatting.plural(ended, 'trial')} done in {seconds}"
    return f"{spec.name}: {_with_failed(done, history)}{_best(history)}"


def nothing_left_line(spec: Spec, history: History) -> str:
    """Return what came of a study in which nothing is left to run, and how to run more of it."""
    why = f"nothing left to do ({history.finish_reason})" if history.finish_reason else "nothing left to do"
    ways = ["To run more, raise its limits", "to start over, fresh=True (--fresh)"]
    if failed := history.counts[State.FAILED]:
        ways.append(
            f"to run {formatting.plural(failed, 'failed trial')} again, retry_failed=True (--retry-failed)"
        )
    return f"{spec.name}: {_with_failed(why, history)}{_best(history)}. {'; '.join(ways)}"


def _with_failed(done: str, history: History) -> str:
    failed = history.counts[State.FAILED]
    return f"{done}, {failed} failed" if 0 < failed < len(history.trials) else done


def _best(history: History) -> str:
    """Return the best trial without its configuration, or why there is none."""
    found = words.found(history)
    return f"; {found._replace(config='') if found.text else words.no_value(history)}"
