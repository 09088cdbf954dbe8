"""One-line summaries of a study that has ended, for its user and for logs."""

from __future__ import annotations

from thriftune.common import formatting
from thriftune.common.formatting import format_seconds
from thriftune.results.trial_states import counts_line
from thriftune.show import cost_and_limits, describe
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State


def end_line(spec: Spec, history: History, now: float) -> str:
    """Return why a study ended, its trials by state, the best one, and the cost."""
    counts = counts_line(history, has_driver=False)
    best = str(describe.best_or_front(history))
    model = f"model: {sentence}" if (sentence := describe.better_model_line(history)) else ""
    cost = f"{format_seconds(history.driven_seconds(now))}, {cost_and_limits.cost_line(history, now)}"
    reason = history.finish_reason or "stopped, not finished"
    return "; ".join(part for part in (f"study {spec.name}: {reason}", counts, best, model, cost) if part)


def nothing_left_line(spec: Spec, history: History) -> str:
    """Return the result of a study that has nothing left to run.

    The text also says how to run more of it.
    """
    reason = f"nothing left to do ({history.finish_reason})" if history.finish_reason else "nothing left to do"
    ways = ["To run more, raise its limits", "to start over, fresh=True (--fresh)"]
    if failed := history.counts[State.FAILED]:
        ways.append(
            f"to run {formatting.plural(failed, 'failed trial')} again, retry_failed=True (--retry-failed)"
        )
    return f"{spec.name}: {_with_failed(reason, history)}{_best(history)}. {'; '.join(ways)}"


def _with_failed(text: str, history: History) -> str:
    failed = history.counts[State.FAILED]
    return f"{text}, {failed} failed" if 0 < failed < len(history.trials) else text


def _best(history: History) -> str:
    """Return the best trial without its configuration, or why there is none."""
    best = describe.best_or_front(history)
    return f"; {best._replace(config='') if best.text else describe.no_best_line(history)}"
