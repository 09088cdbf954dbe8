"""Apply a worker's knobs between steps, and restore them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.system.knobs.protocol import CannotTurn, Knob


class Panel:
    """The knobs of a worker, and their present setting.

    `setting` has the value of each knob that is applied, and of each option that the training code reads. A knob
    with the flag `lasts` stays in it from its first apply() on.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.setting: dict[str, Any] = {}
        self._knobs: dict[str, Knob] = {}
        for knob in knobs:
            if knob.name in self._knobs:
                raise SettingError(f"knobs: two have the name {knob.name!r}; give each a name of its own")
            self._knobs[knob.name] = knob
        self._refused: dict[str, list[Any]] = {}  # the values that each knob has refused in this attempt
        self._reported: set[str] = set()  # sentences that change() has returned

    def change(self, setting: Mapping[str, Any], *, begins: bool = False) -> list[str]:
        """Apply a setting, and restore the knobs that are not in it.

        `begins`: an attempt begins. Knobs with the flag `restarts` change only then. A knob that refuses a value
        is restored, and does not get that value again in this attempt.

        Returns a sentence for each knob that refused its value. Each sentence is returned only once.
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
        """Restore all knobs, in reverse order.

        Knobs with the flag `lasts` stay in `setting`. Returns a sentence for each knob that could not be
        restored, even if change() has returned it before. If there is any, this process must not run another
        attempt.
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
        """Restore a knob, and remove it from `setting` if that succeeded.

        Returns a sentence if it failed.
        """
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
