"""Runs thriftune's searchers through its public ask-and-tell interface."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import thriftune as tt
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Past, Searcher


class Method:
    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        self._space = tt.Space.from_json(parameters)
        self._seed = seed
        self._searcher: str | Searcher = options.get("searcher", "bayes")
        if "bayes" in options:
            self._searcher = tt.search.Bayes(**options["bayes"])
        self._study = self._new(self._searcher)
        self._given: _WithGivenConfigs | None = None
        self.version = _version(self._searcher)

    def _new(self, searcher: str | Searcher) -> tt.Study:
        return tt.Study(self._space, minimize="value", seed=self._seed, searcher=searcher)

    def ask(self) -> tuple[int, dict[str, Any]]:
        trial = self._study.ask()
        return trial.id, dict(trial.config)

    def tell(self, key: int, value: float) -> None:
        self._study.tell(key, value)

    def add(self, config: dict[str, Any]) -> int:
        if self._given is None:
            self._given = _WithGivenConfigs(
                SEARCHERS.make(self._searcher, {}) if isinstance(self._searcher, str) else self._searcher
            )
            self._study = self._new(self._given)
        self._given.next = config
        return self.ask()[0]


class _WithGivenConfigs:
    """Suggests the configuration in `next`, if any, and otherwise that of the searcher."""

    def __init__(self, searcher: Searcher) -> None:
        self.next: dict[str, Any] | None = None
        self._searcher = searcher

    def suggest(self, past: Past, rng: np.random.Generator) -> Mapping[str, Any] | None:
        if self.next is not None:
            config, self.next = self.next, None
            return config
        return self._searcher.suggest(past, rng)


def _version(searcher: str | Searcher) -> str:
    """Return a version with a digest of the searcher's code, which tells its states apart."""
    if isinstance(searcher, str):
        searcher = SEARCHERS.make(searcher, {})
    module = type(searcher).__module__.split(".")
    place = Path(tt.search.__file__).parent / module[2] if len(module) > 2 else Path(tt.search.__file__)
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return f"{tt.__version__}+{digest.hexdigest()[:10]}"
