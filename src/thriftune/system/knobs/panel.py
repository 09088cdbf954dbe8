"""The panel: applies a worker's knobs between steps, and restores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.system.knobs.protocol import CannotTurn, Knob


class Panel:
    """The knobs of a worker, and the setting in force.

    `setting` has the knobs that took their value, and the entries without a knob: options that the training code
    reads. A knob that lasts stays in it from its first apply() on.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.setting: dict[str, Any] = {}
        self._knobs: dict[str, Knob] = {}
        for knob in knobs:
            if knob.name in self._knobs:
                raise SettingError(f"knobs: two have the name {knob.name!r}; give each a name of its own")
            self._knobs[knob.name] = knob
        self._refused: dict[str, list[Any]] = {}  # by knob, the values that it has refused in this attempt
        self._reported: set[str] = set()  # sentences that change() has returned

    def change(self, setting: Mapping[str, Any], *, begins: bool = False) -> list[str]:
        """Apply the setting: restore the knobs that are not in it, and apply the others.

        Knobs that restart only change when an attempt `begins`. A knob that refuses a value is restored, and is
        not given that value again in this attempt.

        Return a sentence for each knob that refused. Each sentence is returned once in the panel's life.
        """
        if begins:
            self._refused.clear()
        problems: list[str] = []
        for name in [name for name in self.setting if name not in setting and not self._lasts(name)]:
            if self._may_change(name, begins):
                problems += self._remove(name)
        for name, value in setting.items():
            if self._may_change(name, begins):
                problems += self._apply(name, value)
        new = [sentence for sentence in dict.fromkeys(problems) if sentence not in self._reported]
        self._reported.update(new)
        return new

    def restore(self) -> list[str]:
        """Restore all knobs, the last one first; only what lasts stays in `setting`.

        Return a sentence for each knob that could not be restored, also where change() has returned it before:
        this process must not run another attempt then.
        """
        self.setting = {name: value for name, value in self.setting.items() if self._lasts(name)}
        return [sentence for name in reversed(self._knobs) for sentence in self._restore(name)]

    def _lasts(self, name: str) -> bool:
        return name in self._knobs and self._knobs[name].lasts

    def _may_change(self, name: str, begins: bool) -> bool:
        return begins or name not in self._knobs or not self._knobs[name].restarts

    def _apply(self, name: str, value: Any) -> list[str]:
        knob = self._knobs.get(name)
        same = name in self.setting and self.setting[name] == value
        if knob is not None:
            if same and not knob.again:
                return []
            if value in self._refused.get(name, ()):
                return self._remove(name) if name in self.setting else []
            try:
                knob.apply(value)
            except (Exception, SystemExit) as error:  # a user's knob may raise anything
                self._refused.setdefault(name, []).append(value)
                return [_sentence(f"{name}: cannot be {value}", error), *self._remove(name)]
        self.setting[name] = value
        return []

    def _remove(self, name: str) -> list[str]:
        """Restore the knob and take it out of `setting`, unless it could not be restored."""
        problems = self._restore(name)
        if not problems:
            self.setting.pop(name, None)
        return problems

    def _restore(self, name: str) -> list[str]:
        if name in self._knobs:
            try:
                self._knobs[name].restore()
            except (Exception, SystemExit) as error:
                return [_sentence(f"{name}: cannot be restored", error)]
        return []


def _sentence(problem: str, error: BaseException) -> str:
    """Return the problem and the error in one line."""
    why = str(error) if isinstance(error, CannotTurn) else f"{type(error).__name__}: {error}"
    return " ".join(f"{problem}: {why}".split())
