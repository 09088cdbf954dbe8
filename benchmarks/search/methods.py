"""Who competes? Each method by name: whose environment it runs in, which file adapts it, with which options.

An adapter is a file peer_<adapter>.py with a class `Method(parameters, seed, budget, parallel, options)`, see the
protocol below; it runs its peer at the peer's documented defaults, minimising.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class Method(Protocol):
    version: str
    """Of what ran, to be kept with the results."""

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Something to tell the value with, and the active parameters."""
        ...

    def tell(self, key: Any, value: float) -> None: ...

    def add(self, config: dict[str, Any]) -> Any:
        """Makes a given configuration a pending one, before anything is asked; its key. For `gaussian` ones."""
        ...


@dataclass(frozen=True)
class Entry:
    name: str
    adapter: str
    peer: str | None = None
    """Its environment, see benchmarks/peers.py; None: this one."""
    options: dict[str, Any] = field(default_factory=dict)
    gaussian: bool = False
    """Whether it fits a Gaussian process, and so is held against ours for speed."""


_ENTRIES = (
    Entry("thriftune", "thriftune"),
    Entry("thriftune-random", "thriftune", options={"searcher": "random"}),
    Entry("thriftune-sobol", "thriftune", options={"searcher": "sobol"}),
    Entry("optuna-tpe", "optuna", "optuna-gp", {"sampler": "tpe"}),
    Entry("smac", "smac", "smac"),
    Entry("optuna-gp", "optuna", "optuna-gp", {"sampler": "gp"}, gaussian=True),
    Entry("syne-tune", "syne_tune", "syne-tune", gaussian=True),
    # Ax's default is BoTorch's recommended model and acquisition, by the same people: it stands for both.
    Entry("ax", "ax", "ax", gaussian=True),
    Entry("hebo", "hebo", "hebo", gaussian=True),
)
ENTRIES = {entry.name: entry for entry in _ENTRIES}
OURS = "thriftune"


def find(name: str) -> Entry:
    """By name; `thriftune:key=value,key=value` is thriftune.search.Bayes(key=value, ...), for ablations."""
    if name.startswith(f"{OURS}:"):
        pairs = (pair.partition("=") for pair in name.partition(":")[2].split(","))
        return Entry(name, OURS, options={"bayes": {key: _plain(value) for key, _, value in pairs}})
    if name not in ENTRIES:
        raise SystemExit(f"method {name!r} is not known; there are {', '.join(ENTRIES)} and {OURS}:key=value,...")
    return ENTRIES[name]


def _plain(written: str) -> Any:
    words: dict[str, Any] = {"True": True, "False": False, "None": None}
    if written in words:
        return words[written]
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            continue
    return written
