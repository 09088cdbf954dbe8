"""Which setting next, of one trial? Look at another one, or keep the best of those that are known.

Pure: what to do follows from the estimate of what each costs. A setting is looked at for one window of steps. One
that is clearly worse is dropped at once; one that may well be better, but by no more than the estimate's error, is
looked at again, or what it is compared with is: whichever tells more. What nobody has looked at is taken all the
same where its knobs are known from other settings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from thriftune.system.estimate import Effect, Estimate, Setting
from thriftune.system.known_work import key, setting_of

LEAST_GAIN = 0.03
"""Less than this is not worth a knob that stands otherwise."""

MOST_LOOKS = 3
_WINDOWS_LEFT = 4
"""So many windows must be left to gain something in for another look to be worth its cost."""

FAR_WORSE = 0.5
"""No bad minute of a machine makes so much of a setting's steps (a logarithm). What is less bad than that is
looked at by two trials before it is dropped for a whole study, and for those that learn from it."""

_LOOKS_TO_TELL = 2
_SURE = 1.5  # errors
_UNKNOWN_ERROR = 0.2
"""An effect with a greater error is as good as unknown."""


class Choice(NamedTuple):
    setting: Setting
    why: str
    looks: bool  # it is looked at, and not known to be good


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be turned now.

    - `values`: of each knob, what else it may stand at.
    - `fixed`: what cannot be changed while the attempt runs.
    - `base`: what the trial began with.
    - `harmful`: keys of settings that trials have failed with.
    """

    values: Mapping[str, Sequence[Any]]
    fixed: Setting = field(default_factory=dict)
    base: Setting = field(default_factory=dict)
    harmful: frozenset[str] = frozenset()

    def allow(self, setting: Setting) -> bool:
        """Whether it may be had now."""
        return key(setting) not in self.harmful and all(
            name in self.fixed or value in self.values.get(name, ()) for name, value in setting.items()
        )

    def complete(self, setting: Setting) -> Setting:
        """With what cannot be changed."""
        return {**setting, **self.fixed}

    @property
    def home(self) -> Setting:
        """With which all is compared: what the trial began with, as far as it may be had now."""
        rest = {name: value for name, value in self.base.items() if self.allow({name: value})}
        return self.complete(rest if self.allow(rest) else {})


def choose(
    estimate: Estimate, knobs: Knobs, *, windows_left: float, beside: int = 1, every: bool = False
) -> Choice:
    """`beside`: how many trials there are on the machine now. `every`: look at every combination (the paper's
    grid), instead of one knob after the other from the best."""
    home = knobs.home
    best, effect = _best(estimate, knobs)
    if estimate.windows and windows_left >= _WINDOWS_LEFT:
        for candidate in _combinations(knobs) if every else _neighbours(best, knobs):
            if candidate == home:
                continue
            looks, seen = estimate.looks(candidate), estimate.effect(candidate, home)
            if looks == 0 and (every or estimate.effect(candidate, best).error > _UNKNOWN_ERROR):
                unsure = estimate.error_after(candidate, home, candidate, beside) > _UNKNOWN_ERROR
                if unsure and estimate.looks(home) < MOST_LOOKS:
                    return Choice(home, "is measured first", False)
                return Choice(candidate, "looks at it", True)
            if 0 < looks < MOST_LOOKS and not _is_better(seen):
                # What others say of it is taken for what it is: each would look again, and none be the wiser.
                own = estimate.seen(candidate)
                if _is_worth_a_look(seen, windows_left) if own else seen.log_ratio < -LEAST_GAIN:
                    return _another_look(estimate, candidate, home, beside)
            if looks == 1 and not estimate.seen(candidate) and -LEAST_GAIN <= seen.log_ratio < FAR_WORSE:
                return Choice(candidate, "looks at it, too: only one other trial has, and found nothing", True)
    return Choice(best, _why(best, effect, estimate, knobs), False)


def _why(best: Setting, effect: Effect | None, estimate: Estimate, knobs: Knobs) -> str:
    than = knobs.home
    if effect is None and best != knobs.base and estimate.seen(knobs.base):  # it lasts, and may be good as well
        than, effect = knobs.base, estimate.effect(best, knobs.base)
        if not _is_better(effect):
            return f"nothing better was found, and {in_words(best)} cannot be taken back"
    if effect is None:
        return "nothing better was found" if len(estimate.settings) > 1 else "as it is"
    gain = f"{1 - math.exp(effect.log_ratio):.0%} less a step than with {in_words(than)}"
    return f"{gain} (error {effect.error:.0%})"


def _is_worth_a_look(seen: Effect, windows_left: float) -> bool:
    """What may be gained by it in the windows that are left is more than what may be lost in one or two that look:
    both as expected of a normal distribution."""
    if not seen.error:
        return False
    worse = seen.log_ratio + LEAST_GAIN  # a lesser gain counts for nothing
    z = worse / seen.error
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    gain = seen.error * density - worse * math.erfc(z / math.sqrt(2)) / 2
    return gain * windows_left > _LOOKS_TO_TELL * (gain + worse)


def _is_better(seen: Effect) -> bool:
    return seen.log_ratio < -max(LEAST_GAIN, _SURE * seen.error)


def _another_look(estimate: Estimate, candidate: Setting, home: Setting, beside: int) -> Choice:
    """At the one of them that tells more of how they differ."""
    after = [estimate.error_after(candidate, home, each, beside) for each in (candidate, home)]
    if after[1] < 0.99 * after[0]:
        return Choice(home, f"looks again at {in_words(home)}: {in_words(candidate)} may be better", True)
    return Choice(candidate, "looks at it again: it may be better, which noise hides", True)


def _best(estimate: Estimate, knobs: Knobs) -> tuple[Setting, Effect | None]:
    """Of those that may be had now; home, unless another is better by enough to be told from noise."""
    home = knobs.home
    may = [setting_of(text) for text in estimate.settings]
    best, effect = _best_of([setting for setting in may if _had(setting, knobs)], home, estimate)
    for _ in knobs.values:  # what is known of each knob may make another combination better
        near = [best, *(each for each in _neighbours(best, knobs) if _is_better(estimate.effect(each, best)))]
        further, its_effect = _best_of(near, home, estimate)
        if further == best:
            break
        best, effect = further, its_effect
    return best, effect


def _best_of(settings: Sequence[Setting], home: Setting, estimate: Estimate) -> tuple[Setting, Effect | None]:
    """Of several that are hardly different, the one with the fewest threads, which others can use, and the least
    turned."""
    effects = {key(setting): estimate.effect(setting, home) for setting in settings if setting != home}
    good = {text: effect for text, effect in effects.items() if _is_better(effect)}
    if not good:
        return home, None
    least = min(effect.log_ratio for effect in good.values())
    near = [text for text, effect in good.items() if effect.log_ratio <= least + LEAST_GAIN]
    chosen = min(near, key=lambda each: (setting_of(each).get("threads", 0), len(setting_of(each)), good[each]))
    return setting_of(chosen), good[chosen]


def _had(setting: Setting, knobs: Knobs) -> bool:
    return knobs.allow(setting) and knobs.complete(setting) == setting


def _neighbours(best: Setting, knobs: Knobs) -> Iterator[Setting]:
    """One knob turned otherwise than in the best."""
    for name, others in knobs.values.items():
        for value in others:
            candidate = knobs.complete({**best, name: value})
            if candidate != best and knobs.allow(candidate):
                yield candidate
    for name in sorted(best.keys() & knobs.base.keys() - knobs.fixed.keys()):  # it need not be good here
        yield {other: value for other, value in best.items() if other != name}


def _combinations(knobs: Knobs) -> Iterator[Setting]:
    for combination in itertools.product(*([None, *others] for others in knobs.values.values())):
        turned = {name: value for name, value in zip(knobs.values, combination, strict=True) if value is not None}
        candidate = knobs.complete(turned)
        if candidate != knobs.complete({}) and candidate != knobs.base and knobs.allow(candidate):
            yield candidate


def in_words(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "nothing turned"
