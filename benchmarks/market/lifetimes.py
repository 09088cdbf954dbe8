"""How well do forms of lifetimes foretell machines that they were not fitted to? By type, on recorded ones.

Five times a type's machines are cut in halves; each form is fitted to one half by likelihood and judged by the
other, and the other way round. Counted is the log-likelihood a machine, with those that their owners stopped taken
for what they are, and how far its CDF is from the Kaplan-Meier curve of the other half, on average over the hours
at which some of these are still there. The default, `fit_lifetime`, also sees the other types of the family, as in
use. Bathtub by least squares, as in the paper: r2 on all machines.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.reproduce.scispot_studies import FEWEST, LIFETIMES_FILE, made_up_lifetimes
from benchmarks.search.tables import data
from thriftune.errors import SettingError
from thriftune.market.lifetime import Bathtub, KaplanMeier, Lifetime, Lifetimes, Phases, fit_lifetime
from thriftune.market.summary import FORMS, r_squared

R2_BAR = 0.95
WORST = -50.0  # log-likelihood of a machine: what a form holds impossible is that bad
HOURS = np.arange(0.25, 24.0, 0.25)
AT_RISK = 5  # machines; of fewer, the Kaplan-Meier curve tells little
DEFAULT = "default"
FITS: dict[str, Callable[[Any, Any], Lifetime]] = {form.__name__: form.fit for form in FORMS}


def recorded(quick: bool) -> Lifetimes:
    if not quick:
        return Lifetimes.read(data() / LIFETIMES_FILE)
    return made_up_lifetimes((2, 16), 60, np.random.default_rng(0))


def measure(options: argparse.Namespace) -> list[Row]:
    lives = recorded(options.quick)
    rows = []
    for type in lives.types:
        own = lives.type == type
        hours, ended = lives.hours[own], lives.ended[own]
        if ended.sum() < FEWEST and not options.quick:
            continue
        others = lives.hours[~own], lives.ended[~own]
        say(f"{type}: {len(hours)} machines, {ended.sum()} revoked")
        told = _held_out(hours, ended, others, 1 if options.quick else 5)
        others_told = [
            each for name, each in told.items() if name not in (DEFAULT, Phases.__name__)
        ]  # its own form
        figure = ", ".join(
            f"{name} {a:.3f} ({b:.3f})" for name, (a, b) in sorted(told.items(), key=lambda x: -x[1][0])
        )
        likelihoods, errors = zip(*others_told, strict=True)
        met = told[DEFAULT][0] >= max(likelihoods) and told[DEFAULT][1] <= min(errors)
        rows.append(
            Row(
                f"{type}: log-likelihood a machine (CDF error)",
                figure,
                "default at least as good as every other form, in both",
                None if options.quick else met,
                {"held_out": told, "machines": len(hours), "revoked": int(ended.sum())},
            )
        )
        r2 = {
            name: r_squared(form(hours, ended), KaplanMeier.fit(hours, ended))
            for name, form in (("Bathtub", _bathtub), ("Phases", Phases.fit))
        }
        bar = f"Bathtub >= {R2_BAR:g} where the paper's form holds"
        figure = ", ".join(f"{name} {value:.3f}" for name, value in r2.items())
        rows.append(Row(f"{type}: r2 of the CDF", figure, bar, None, r2))
    return rows


def _bathtub(hours: Any, ended: Any) -> Lifetime:
    return Bathtub.fit(hours, ended, by="least_squares")


def _held_out(hours: Any, ended: Any, others: tuple[Any, Any], times: int) -> dict[str, tuple[float, float]]:
    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in (*FITS, DEFAULT)}
    for _ in range(times):
        for out in np.array_split(rng.permutation(len(hours)), 2):
            kept = np.setdiff1d(np.arange(len(hours)), out)
            seen = KaplanMeier.fit(hours[out], ended[out])
            ages = HOURS[[int((hours[out] >= age).sum()) >= AT_RISK for age in HOURS]]
            for name in found:
                try:
                    model = (
                        fit_lifetime(hours[kept], ended[kept], relatives=[others])
                        if name == DEFAULT
                        else FITS[name](hours[kept], ended[kept])
                    )
                except SettingError:  # too few revocations in this part
                    continue
                t = np.maximum(hours[out], 1.0 / 3600)
                with np.errstate(divide="ignore", invalid="ignore"):
                    each = np.where(ended[out], model.log_density(t), model.log_survival(t))
                likelihood = float(np.maximum(np.nan_to_num(each, nan=WORST), WORST).sum())
                error = float(np.abs(model.cdf(ages) - seen.cdf(ages)).mean())
                found[name].append((likelihood, error * len(out), len(out)))
    sums = {name: np.sum(parts, axis=0) for name, parts in found.items()}
    return {name: (float(total[0] / total[2]), float(total[1] / total[2])) for name, total in sums.items()}


if __name__ == "__main__":
    raise SystemExit(main(measure))
