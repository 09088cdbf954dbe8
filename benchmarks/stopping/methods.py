"""Who races? Each method by name: whose environment it runs in, which file adapts it, with which options.

Ours are named SEARCHER+RULE, each with its options after a colon: `random` (no rule), `random+asha`,
`bayes+asha:eta=2,how=pause`, `bayes:draws=10+auto`. A peer's adapter is a file peer_<adapter>.py with a class
`Method(parameters, steps, seed, options, nearest)`, see the protocol below; it runs its peer at the peer's
documented defaults, minimising. What its peer suggests it passes through `nearest`, once, before the peer takes
note of it: that is the configuration which a trial has.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Snap = Callable[[Mapping[str, Any]], dict[str, Any]]
"""From what was suggested to what is tried."""


class Method(Protocol):
    """A peer on our clock: it is told of everything when it happens, and its thinking takes no time."""

    version: str
    """Of what ran, to be kept with the results."""

    def suggest(self) -> int | None:
        """What a free worker shall do: a trial's number. None: nothing for now.

        A new trial's configuration is what `nearest` has just given. A number that was given before is that of a
        trial set aside, which goes on from its last step.
        """
        ...

    def report(self, trial: int, step: int, value: float) -> bool:
        """Whether the trial goes on; if not, the worker is free. Steps count from 1."""
        ...

    def completed(self, trial: int, value: float) -> None:
        """It has come to its last step, after whose report it might have gone on."""
        ...

    def failed(self, trial: int, step: int) -> None:
        """It diverged in this step."""
        ...


@dataclass(frozen=True)
class Entry:
    name: str
    adapter: str
    peer: str | None = None
    """Its environment, see benchmarks/peers.py; None: ours, and it runs in thriftune's own simulation."""
    options: dict[str, Any] = field(default_factory=dict)
    dear: bool = False
    """It takes so many minutes a run that it only races when it is named."""


_PEERS = (
    Entry("optuna-tpe", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "none"}),
    Entry("optuna-tpe-median", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "median"}),
    Entry("optuna-tpe-hyperband", "optuna", "optuna-gp", {"sampler": "tpe", "pruner": "hyperband"}),
    Entry("optuna-random-hyperband", "optuna", "optuna-gp", {"sampler": "random", "pruner": "hyperband"}),
    Entry("syne-tune-asha", "syne_tune", "syne-tune", {"scheduler": "ASHA"}),
    Entry("syne-tune-asha-promotion", "syne_tune", "syne-tune", {"scheduler": "ASHA", "type": "promotion"}),
    Entry("syne-tune-hyperband", "syne_tune", "syne-tune", {"scheduler": "SyncHyperband"}),
    Entry("syne-tune-bohb", "syne_tune", "syne-tune", {"scheduler": "BOHB"}),
    # Its kernel densities take no notice of a logarithmic scale; this one is given the logarithms instead.
    Entry("syne-tune-bohb-logs", "syne_tune", "syne-tune", {"scheduler": "BOHB", "give_logs": True}),
    # By default it fits anew for every suggestion; these are its own means to spend less on that.
    Entry(
        "syne-tune-mobster",
        "syne_tune",
        "syne-tune",
        {"scheduler": "MOBSTER", "search_options": {"opt_skip_init_length": 50, "opt_skip_period": 20}},
        dear=True,
    ),
    Entry("syne-tune-mobster-default", "syne_tune", "syne-tune", {"scheduler": "MOBSTER"}, dear=True),
    Entry("syne-tune-dyhpo", "syne_tune", "syne-tune", {"scheduler": "DyHPO"}, dear=True),
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
USUAL = (*OURS, *(entry.name for entry in _PEERS if not entry.dear))


def find(name: str) -> Entry:
    if name in PEERS:
        return PEERS[name]
    searcher, rule = parts(name)
    if searcher.partition(":")[0] not in SEARCHERS:
        raise SystemExit(
            f"method {name!r} is not known; there are {', '.join(PEERS)}, and SEARCHER+RULE:key=value,... "
            f"with one of {', '.join(SEARCHERS)} and a rule of docs/stopping.md"
        )
    return Entry(name, "thriftune", options={"searcher": _with_options(searcher), "rule": _with_options(rule)})


def parts(name: str) -> tuple[str, str]:
    """Of one of ours, the searcher and the rule, as written."""
    searcher, _, rule = name.partition("+")
    return searcher, rule or "none"


def split(written: str) -> list[str]:
    """Names with commas; where an option has one itself, they are separated by spaces."""
    return written.split() if " " in written or ":" in written else written.split(",")


def _with_options(written: str) -> tuple[str, dict[str, Any]]:
    name, _, options = written.partition(":")
    pairs = (pair.partition("=") for pair in options.split(",") if pair)
    return name, {key: _plain(value) for key, _, value in pairs}


def _plain(written: str) -> Any:
    """A number, True, False or None; else a word."""
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(written)
    return written
