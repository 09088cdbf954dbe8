"""The accuracy of lifetime distributions on held-out recorded machines.

Five times, a type's machines are split into two halves. Each distribution is fitted to one half by likelihood and
evaluated on the other, in both directions. The measures are the log-likelihood per machine, with censored machines
as such, and the mean distance of the CDF from the Kaplan-Meier curve of the other half, over the hours at which
some of its machines are alive. The default, `fit_lifetime`, also gets the other types of the family, as in real
use. Bathtub is also fitted by least squares, as in the paper, and its r2 is computed on all machines.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.reproduce.scispot_studies import LIFETIMES_FILE, MIN_PREEMPTIONS, synthetic_record
from benchmarks.search.tables import data
from thriftune.errors import SettingError
from thriftune.market.lifetime import Bathtub, KaplanMeier, Lifetime, Lifetimes, Phases, fit_lifetime
from thriftune.market.summary import FORMS, r_squared

R2_BAR = 0.95
MIN_LOG_LIKELIHOOD = -50.0  # of a machine, also of one that a distribution holds impossible
HOURS = np.arange(0.25, 24.0, 0.25)
MIN_AT_RISK = 5  # machines; with fewer, the Kaplan-Meier curve is too uncertain
DEFAULT = "default"
FITS: dict[str, Callable[[Any, Any], Lifetime]] = {form.__name__: form.fit for form in FORMS}


def recorded(quick: bool) -> Lifetimes:
    """Return the recorded lifetimes, or synthetic ones for a quick run."""
    if not quick:
        return Lifetimes.read(data() / LIFETIMES_FILE)
    return synthetic_record((2, 16), 60, np.random.default_rng(0))


def measure(options: argparse.Namespace) -> list[Row]:
    lives = recorded(options.quick)
    rows = []
    for type in lives.types:
        own = lives.type == type
        hours, ended = lives.hours[own], lives.ended[own]
        if ended.sum() < MIN_PREEMPTIONS and not options.quick:
            continue
        others = lives.hours[~own], lives.ended[~own]
        say(f"{type}: {len(hours)} machines, {ended.sum()} revoked")
        scores = _held_out_scores(hours, ended, others, 1 if options.quick else 5)
        # Phases is the default's own distribution, so it is no competitor.
        other_scores = [each for name, each in scores.items() if name not in (DEFAULT, Phases.__name__)]
        figure = ", ".join(
            f"{name} {a:.3f} ({b:.3f})" for name, (a, b) in sorted(scores.items(), key=lambda x: -x[1][0])
        )
        likelihoods, errors = zip(*other_scores, strict=True)
        met = scores[DEFAULT][0] >= max(likelihoods) and scores[DEFAULT][1] <= min(errors)
        rows.append(
            Row(
                f"{type}: log-likelihood per machine (CDF error)",
                figure,
                "default at least as good as every other distribution, in both",
                None if options.quick else met,
                {"held_out": scores, "machines": len(hours), "revoked": int(ended.sum())},
            )
        )
        r2 = {
            name: r_squared(form(hours, ended), KaplanMeier.fit(hours, ended))
            for name, form in (("Bathtub", _bathtub), ("Phases", Phases.fit))
        }
        bar = f"Bathtub >= {R2_BAR:g} where the paper's distribution applies"
        figure = ", ".join(f"{name} {value:.3f}" for name, value in r2.items())
        rows.append(Row(f"{type}: r2 of the CDF", figure, bar, None, r2))
    return rows


def _bathtub(hours: Any, ended: Any) -> Lifetime:
    return Bathtub.fit(hours, ended, by="least_squares")


def _held_out_scores(
    hours: Any, ended: Any, others: tuple[Any, Any], times: int
) -> dict[str, tuple[float, float]]:
    """Return the mean log-likelihood and CDF error per machine, by distribution."""
    rng = np.random.default_rng(0)
    scores: dict[str, list[tuple[float, float, int]]] = {name: [] for name in (*FITS, DEFAULT)}
    for _ in range(times):
        for out in np.array_split(rng.permutation(len(hours)), 2):
            fitted = np.setdiff1d(np.arange(len(hours)), out)
            truth = KaplanMeier.fit(hours[out], ended[out])
            ages = HOURS[[int((hours[out] >= age).sum()) >= MIN_AT_RISK for age in HOURS]]
            for name in scores:
                try:
                    model = (
                        fit_lifetime(hours[fitted], ended[fitted], relatives=[others])
                        if name == DEFAULT
                        else FITS[name](hours[fitted], ended[fitted])
                    )
                except SettingError:  # too few revocations in this part
                    continue
                t = np.maximum(hours[out], 1.0 / 3600)
                with np.errstate(divide="ignore", invalid="ignore"):
                    each = np.where(ended[out], model.log_density(t), model.log_survival(t))
                likelihood = float(
                    np.maximum(np.nan_to_num(each, nan=MIN_LOG_LIKELIHOOD), MIN_LOG_LIKELIHOOD).sum()
                )
                error = float(np.abs(model.cdf(ages) - truth.cdf(ages)).mean())
                scores[name].append((likelihood, error * len(out), len(out)))
    sums = {name: np.sum(rows, axis=0) for name, rows in scores.items()}
    return {name: (float(total[0] / total[2]), float(total[1] / total[2])) for name, total in sums.items()}


if __name__ == "__main__":
    raise SystemExit(main(measure))
