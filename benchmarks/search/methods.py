"""The methods of the search benchmarks by name: environment, adapter and options.

An adapter is a file peer_<adapter>.py with a class `Method(parameters, seed, budget, parallel, options)` that has
the protocol below. It runs its peer with the peer's documented defaults and minimises.
"""

from __future__ import annotations

from typing import Any, Protocol

from benchmarks.run_files import Entry, parse_options


class Method(Protocol):
    version: str
    """The version of the method's code, which is stored with the results."""

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Return a key for tell(), and the active parameters of the suggestion."""
        ...

    def tell(self, key: Any, value: float) -> None: ...

    def add(self, config: dict[str, Any]) -> Any:
        """Make a configuration a pending one, and return its key; only for `gaussian` entries, before ask()."""
        ...


_ENTRIES = (
    Entry("thriftune", "thriftune"),
    Entry("thriftune-random", "thriftune", options={"searcher": "random"}),
    Entry("thriftune-sobol", "thriftune", options={"searcher": "sobol"}),
    Entry("optuna-tpe", "optuna", "optuna-gp", {"sampler": "tpe"}),
    Entry("smac", "smac", "smac"),
    Entry("optuna-gp", "optuna", "optuna-gp", {"sampler": "gp"}, gaussian=True),
    Entry("syne-tune", "syne_tune", "syne-tune", gaussian=True),
    # Ax's default is BoTorch's recommended model and acquisition, by the same authors: it stands for both.
    Entry("ax", "ax", "ax", gaussian=True),
    Entry("hebo", "hebo", "hebo", gaussian=True),
)
ENTRIES = {entry.name: entry for entry in _ENTRIES}
OURS = "thriftune"


def find(name: str) -> Entry:
    """Return a method by name; `thriftune:key=value,key=value` is Bayes(key=value, ...), for ablations."""
    if name.startswith(f"{OURS}:"):
        return Entry(name, OURS, options={"bayes": parse_options(name.partition(":")[2])})
    if name not in ENTRIES:
        raise SystemExit(f"method {name!r} is not known; use one of {', '.join(ENTRIES)} or {OURS}:key=value,...")
    return ENTRIES[name]
