"""Which knobs are turned now? The panel by which a worker turns them between steps, and puts all back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.system.knobs.knob import CannotTurn, Knob


class Panel:
    """The knobs that a worker has.

    `setting` is what is in force: the knobs that took their value, and entries that belong to no knob, which the
    training code reads. A knob that lasts is in it from its first turn on, whatever is asked for.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.setting: dict[str, Any] = {}
        self._knobs: dict[str, Knob] = {}
        for knob in knobs:
            if knob.name in self._knobs:
                raise SettingError(f"knobs: two have the name {knob.name!r}; give each a name of its own")
            self._knobs[knob.name] = knob
        self._refused: dict[str, list[Any]] = {}  # by knob, the values not to be tried again in this attempt
        self._said: set[str] = set()

    def turn(self, setting: Mapping[str, Any], *, begins: bool = False) -> list[str]:
        """From what is in force to this: knobs that are not in it any more are restored, others applied.

        Knobs that restart are only turned when an attempt `begins`, else left as they are. A knob that cannot be
        turned is left as it is when nothing is turned, and not asked for that value again until the next attempt
        begins.

        Returns a sentence for each that could not be turned; the others are. Each sentence is told once in the
        panel's life.
        """
        if begins:
            self._refused.clear()
        told: list[str] = []
        for name in [name for name in self.setting if name not in setting and not self._lasts(name)]:
            if self._may_turn(name, begins):
                told += self._leave(name)
        for name, value in setting.items():
            if self._may_turn(name, begins):
                told += self._apply(name, value)
        return self._news(told)

    def restore(self) -> list[str]:
        """Everything back, the last knob first; of `setting` only what lasts is left.

        Returns a sentence for each that could not be put back, also where that was told before: this process is
        not as it was.
        """
        self.setting = {name: value for name, value in self.setting.items() if self._lasts(name)}
        return [sentence for name in reversed(self._knobs) for sentence in self._restore(name)]

    def _lasts(self, name: str) -> bool:
        return name in self._knobs and self._knobs[name].lasts

    def _may_turn(self, name: str, begins: bool) -> bool:
        return begins or name not in self._knobs or not self._knobs[name].restarts

    def _apply(self, name: str, value: Any) -> list[str]:
        knob = self._knobs.get(name)
        same = name in self.setting and self.setting[name] == value
        if knob is not None:
            if same and not knob.again:
                return []
            if value in self._refused.get(name, ()):
                return self._leave(name) if name in self.setting else []
            try:
                knob.apply(value)
            except (Exception, SystemExit) as error:  # a user's own may raise anything
                self._refused.setdefault(name, []).append(value)
                return [_sentence(f"{name}: cannot be {value}", error), *self._leave(name)]
        self.setting[name] = value
        return []

    def _leave(self, name: str) -> list[str]:
        problems = self._restore(name)
        if not problems:  # else it is in force, as far as anybody knows
            self.setting.pop(name, None)
        return problems

    def _restore(self, name: str) -> list[str]:
        if name in self._knobs:
            try:
                self._knobs[name].restore()
            except (Exception, SystemExit) as error:
                return [_sentence(f"{name}: cannot be put back", error)]
        return []

    def _news(self, told: list[str]) -> list[str]:
        news = [sentence for sentence in dict.fromkeys(told) if sentence not in self._said]
        self._said.update(news)
        return news


def _sentence(what: str, error: BaseException) -> str:
    """In one line, whatever the error has."""
    why = str(error) if isinstance(error, CannotTurn) else f"{type(error).__name__}: {error}"
    return " ".join(f"{what}: {why}".split())
