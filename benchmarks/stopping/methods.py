"""The methods of the stopping benchmarks by name: environment, adapter and options.

Our methods are named SEARCHER+RULE, each with its options after a colon: `random` (no rule), `random+asha`,
`bayes+asha:eta=2,how=pause`, `bayes:draws=10+auto`. A peer's adapter is a file peer_<adapter>.py with a class
`Method(parameters, steps, seed, options, nearest)` that has the protocol below. It runs its peer with the peer's
documented defaults and minimises. It calls `nearest` once with each suggestion, before the peer records it. The
trial has the configuration that `nearest` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from benchmarks.run_files import Entry, parse_options

Snap = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Return the configuration of a table that is nearest to a suggestion."""


class Method(Protocol):
    """A peer on our virtual clock: it receives each event when it happens, and its computation takes no time."""

    version: str
    """The version of the method's code, which is stored with the results."""

    def suggest(self) -> int | None:
        """Return the number of the trial that a free worker runs next; None to leave the worker idle.

        The configuration of a new trial is the last result of `nearest`. A known number resumes a paused trial
        from its last step.
        """
        ...

    def report(self, trial: int, step: int, value: float) -> bool:
        """Return whether the trial goes on; if not, its worker becomes free. Steps count from 1."""
        ...

    def completed(self, trial: int, value: float) -> None:
        """Record that a trial has completed its last step; called after the report of that step."""
        ...

    def failed(self, trial: int, step: int) -> None:
        """Record that a trial diverged in this step."""
        ...


_PEERS = (
    Entry("optuna-tpe", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "none"}),
    Entry("optuna-tpe-median", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "median"}),
    Entry("optuna-tpe-hyperband", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "hyperband"}),
    Entry("optuna-random-hyperband", "optuna", "optuna-gp", {"sampler": "random", "pruner": "hyperband"}),
    Entry("syne-tune-asha", "syne_tune", "syne-tune", {"scheduler": "ASHA"}),
    Entry("syne-tune-asha-promotion", "syne_tune", "syne-tune", {"scheduler": "ASHA", "type": "promotion"}),
    Entry("syne-tune-hyperband", "syne_tune", "syne-tune", {"scheduler": "SyncHyperband"}),
    Entry("syne-tune-bohb", "syne_tune", "syne-tune", {"scheduler": "BOHB"}),
    # BOHB's kernel densities ignore a logarithmic scale; this variant gets the logarithms instead.
    Entry("syne-tune-bohb-logs", "syne_tune", "syne-tune", {"scheduler": "BOHB", "give_logs": True}),
    # By default MOBSTER fits its model for every suggestion; these options of its own fit it less often.
    Entry(
        "syne-tune-mobster",
        "syne_tune",
        "syne-tune",
        {"scheduler": "MOBSTER", "search_options": {"opt_skip_init_length": 50, "opt_skip_period": 20}},
        slow=True,
    ),
    Entry("syne-tune-mobster-default", "syne_tune", "syne-tune", {"scheduler": "MOBSTER"}, slow=True),
    Entry("syne-tune-dyhpo", "syne_tune", "syne-tune", {"scheduler": "DyHPO"}, slow=True),
)
PEERS = {entry.name: entry for entry in _PEERS}
BASELINE = "random"
OURS = (
    BASELINE,
    "random+asha",
    "random+asha:how=pause",
    "random+median",
    "random+halving",
    "random+hyperband",
    "random+auto",
    "bayes",
    "bayes+asha",
    "bayes+asha:eta=2,how=pause",
    "bayes+median",
    "bayes+auto",
)
SEARCHERS = ("random", "sobol", "bayes")
DEFAULT_METHODS = (*OURS, *(entry.name for entry in _PEERS if not entry.slow))


def find(name: str) -> Entry:
    if name in PEERS:
        return PEERS[name]
    searcher, rule = searcher_and_rule(name)
    if searcher.partition(":")[0] not in SEARCHERS:
        raise SystemExit(
            f"method {name!r} is not known; use one of {', '.join(PEERS)}, or SEARCHER+RULE:key=value,... "
            f"with one of {', '.join(SEARCHERS)} and a rule of docs/stopping.md"
        )
    return Entry(name, "thriftune", options={"searcher": _with_options(searcher), "rule": _with_options(rule)})


def searcher_and_rule(name: str) -> tuple[str, str]:
    """Return the searcher and the rule in the name of one of our methods, with their options."""
    searcher, _, rule = name.partition("+")
    return searcher, rule or "none"


def split_names(text: str) -> list[str]:
    """Split names at commas; or at spaces, if a name has options, which may contain commas."""
    return text.split() if " " in text or ":" in text else text.split(",")


def _with_options(text: str) -> tuple[str, dict[str, Any]]:
    name, _, options = text.partition(":")
    return name, parse_options(options)
