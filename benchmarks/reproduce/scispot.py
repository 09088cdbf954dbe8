"""Do machines die here as in SciSpot, and do its policies save as much? Figures 1, 2a, 7, 8, 9 and 11.

From *SciSpot: Scientific Computing On Temporally Constrained Cloud Preemptible VMs* (Kadupitiya et al.), sections
3, 4 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce import scispot_pictures as pictures
from benchmarks.reproduce import scispot_studies as studies
from benchmarks.reproduce.scispot_pictures import POLICIES
from benchmarks.reproduce.scispot_studies import AGES, FITS, JOBS, RESTART_HOURS, Bag, Floats, Judged
from thriftune.errors import SettingError
from thriftune.market.checkpoint_schedule import Job, best_schedule, young_daly_schedule
from thriftune.market.lifetime import (
    Bathtub,
    Exponential,
    Fitted,
    GompertzMakeham,
    KaplanMeier,
    Lifetime,
    Lifetimes,
    Phases,
    Weibull,
)
from thriftune.market.running_time import expected_hours, mean_hours, scispot_eq9
from thriftune.market.summary import r_squared
from thriftune.show.market_plot import plot_lifetimes

SHOWN, LARGER = 16, 32
"""Cores of the machines of Figures 1 and 7, and of those that Figure 9 decides about with the former's model."""
MADE_UP = 150  # machines of each size
EARLY_HOURS = 3.0  # the first phase, Observation 1
END_HOURS = 24.0
SIX_HOURS = 6.0
LATE_AGE = 19.0
"""Of machines on which a job of six hours is sure to fail: some live nearly an hour longer than 24."""
CHECKPOINT_WORK, CHECKPOINT_AGES, CHECKPOINT_MINUTES = (2.0, 4.0, 8.0, 16.0), (0.0, 6.0, 12.0, 20.0), (1.0, 5.0)


def scispot(request: Request) -> Reproduction:
    lives, whence = _lifetimes(request)
    types = studies.judged_types(lives)
    if missing := {SHOWN, LARGER} - set(types):
        raise SettingError(
            f"{studies.LIFETIMES_FILE}: has too few machines of {' and '.join(map(str, sorted(missing)))} cores, "
            f"{studies.FEWEST} that were revoked are needed; get it again, or take it away"
        )
    request.told("lifetimes: fitting")
    own = {cores: lives.only(lives.type == type) for cores, type in types.items()}
    curves = {cores: KaplanMeier.fit(each.hours, each.ended) for cores, each in own.items()}
    bathtubs = {cores: Bathtub.fit(each.hours, each.ended, by="least_squares") for cores, each in own.items()}
    model = lives.fit(types[SHOWN])
    sections = [
        _figure_1(own[SHOWN], curves, bathtubs),
        _figure_2(types, curves, bathtubs),
        _equation_9(bathtubs[SHOWN], model),
    ]
    halves = {}
    for cores in (SHOWN, LARGER) if request.quick else types:
        request.told(f"reuse: {types[cores]}")
        halves[cores] = studies.by_halves(lives, types[cores])
    wrong = studies.by_halves(lives, types[LARGER], model)
    sections += [_figure_7(halves[SHOWN]), _figure_8(halves), _figure_9(halves[LARGER], wrong)]
    request.told("checkpoints: planning")
    sections.append(_checkpoints(request.quick))
    jobs, seeds = (50, 1) if request.quick else (studies.BAG_JOBS, 3)
    bags = studies.bag(
        studies.preemptible(lives), jobs, seeds, lambda each: request.told(f"a bag of {jobs} jobs: {each}")
    )
    sections.append(_figure_11(bags, jobs, seeds))
    return Reproduction("scispot", sections, [whence, *DIFFERS])


DIFFERS = (
    "Machines that their owners stopped are counted as alive until then (Kaplan-Meier); whether the paper does so "
    "is not said.",
    "A policy is judged by machines that its model was not fitted to: one half of the record decides, the other "
    "tells what comes of it, and the other way round.",
    "The paper's policy is shown as printed, Eq. 10 on its bathtub, and beside it ours: three phases, waste that "
    "counts from the job's start, and restarts as often as it takes.",
    "Each job of the bag runs on one machine; the paper's run on 4 or 8 at a time, real simulations which are not "
    "here. So Figure 10 (which machine is best) is left out, and so are ExoSphere in Figure 11 and Figure 12 "
    "(waiting for a supercomputer, from the traces of one).",
    f"Machines cost ${studies.ON_DEMAND_A_CORE:g} a core and hour on demand and ${studies.PREEMPTIBLE_A_CORE:g} "
    "preemptible, the list of 2019; which prices the paper took is not said.",
    "Also left out: Figures 2 (b), 2 (c) and 3 (time of day, workload, region, day of week, machines launched "
    "together), Figures 4 and 5, and the selection of server types (6.2).",
    "Checkpoints are not in the paper, which leaves them to others.",
)


def _lifetimes(request: Request) -> tuple[Lifetimes, str]:
    file = request.record(studies.LIFETIMES_FILE)
    if file is not None:
        lives = Lifetimes.read(file)
        return lives, (
            f"Lifetimes are those that the paper's authors published, {len(lives)} machines in us-central1-c, of "
            "which some were stopped by their owners; its Figure 1 is of us-east1-b."
        )
    return studies.made_up_lifetimes(studies.SIZES, MADE_UP, np.random.default_rng(0)), (
        f"There is no {studies.LIFETIMES_FILE}, so lifetimes are made up: {MADE_UP} machines of each size, drawn "
        "so that they resemble those that the paper's authors published."
    )


# --- lifetimes


def _figure_1(own: Lifetimes, curves: Mapping[int, KaplanMeier], bathtubs: Mapping[int, Bathtub]) -> Section:
    machine, bathtub = str(own.type[0]), bathtubs[SHOWN]
    forms: tuple[type[Fitted], ...] = (Exponential, Weibull, GompertzMakeham)
    fits: dict[str, Fitted] = {"Bathtub": bathtub}
    fits |= {form.__name__: form.fit(own.hours, own.ended, by="least_squares") for form in forms}
    fits["Phases"] = Phases.fit(own.hours, own.ended)
    entries = [
        Entry("A (in the paper 0.4 to 0.5)", bathtub.part),
        Entry("tau1, hours (in the paper 0.5 to 1.5, printed as [0.5, 1, 5])", bathtub.early_hours),
        Entry("tau2, hours (about)", bathtub.late_hours, 0.8),
        Entry("b, hours (about)", bathtub.late_start, 24.0),
        *(Entry(f"r2 of {name}", r_squared(each, curves[SHOWN])) for name, each in fits.items()),
        *(
            Entry(f"r2 of Bathtub, {cores} cores", r_squared(each, curves[cores]))
            for cores, each in bathtubs.items()
            if cores != SHOWN
        ),
    ]
    told = (
        f"Of {machine}: some die young, few in between, and all that are left at the end. The paper's bathtub "
        "(Eq. 1) fits better than what has no memory, as there. Between the first hours and the end machines die, "
        "too, and a form of two processes has to reach over that with a longer tau1 or tau2. Phases, our default, "
        "has a third one."
    )
    draw = partial(pictures.draw_fits, fits, curves[SHOWN], machine)
    return Section("Figure 1: lifetimes and the bathtub, Eq. 1", entries, told, "lifetimes", draw)


def _figure_2(
    types: Mapping[int, str], curves: Mapping[int, KaplanMeier], bathtubs: Mapping[int, Bathtub]
) -> Section:
    entries = [
        *(
            Entry(f"{types[cores]}: lost within {EARLY_HOURS:g} hours", float(curve.cdf(EARLY_HOURS)), unit="%")
            for cores, curve in curves.items()
        ),
        *(
            Entry(f"{types[cores]}: expected lifetime, by the bathtub", mean_hours(bathtub), unit="h")
            for cores, bathtub in bathtubs.items()
        ),
    ]
    told = "Larger machines are lost sooner (Observation 4), as in the paper, which gives no numbers."
    draw = partial(plot_lifetimes, {types[cores]: curve for cores, curve in curves.items()})
    return Section("Figure 2a: sizes of machines", entries, told, "sizes", draw)


def _equation_9(bathtub: Lifetime, default: Lifetime) -> Section:
    jobs = np.arange(0.5, END_HOURS, 0.5)
    uniform = jobs**2 / (2.0 * END_HOURS)  # t f(t) over 0..T, of machines lost at any age alike
    printed = np.asarray(scispot_eq9(bathtub, jobs)) - jobs
    renewed = np.asarray(expected_hours(default, jobs)) - jobs
    best = int(np.argmax(uniform / printed))
    entries = [
        Entry(
            "lost at any age alike, over the bathtub: time added, at most (up to)",
            float((uniform / printed)[best]),
            10.0,
            unit="times",
        ),
        *(
            Entry(f"a job of {hours:g} h: time added, {name}", float(added[jobs == hours][0] / hours), unit="%")
            for hours in (1.0, 8.0)
            for name, added in (("lost at any age alike", uniform), ("bathtub, Eq. 9", printed), ("ours", renewed))
        ),
    ]
    told = (
        "Machines that die young cost a job little, and those that have lived past that are safe until the end: "
        f"so a bathtub is better than losses at any age alike, most of all for a job of {jobs[best]:g} h. Eq. 9 "
        "lets a job fail once at most; ours counts all restarts, and gains less. Short jobs are worse off with a "
        "bathtub."
    )
    added = {"lost at any age alike": uniform, "bathtub, Eq. 9": printed, "ours, all restarts": renewed}
    draw = partial(pictures.draw_added, jobs, added)
    return Section("Sections 3.1 and 4.1: what preemptions add to a job", entries, told, "running_time", draw)


# --- reuse


def _figure_7(halves: Sequence[Mapping[str, Judged]]) -> Section:
    job = int(np.argmin(np.abs(JOBS - SIX_HOURS)))
    lines = {name: _over_halves(halves, name)[:, job] for name in POLICIES}
    late = AGES >= LATE_AGE
    entries = [
        Entry(
            f"machines of {LATE_AGE:g} h and more: a job of 6 h fails, {label}",
            float(np.nanmean(lines[name][late])),
            1.0 if name == "memoryless" else 0.4,
            unit="%",
        )
        for name, label in POLICIES.items()
    ]
    told = (
        "Whoever keeps an old machine loses the job with certainty. Both model-based policies take a new machine "
        f"then, on which it fails as often as new machines die within six hours, {lines['ours'][0]:.0%} here."
    )
    draw = partial(pictures.draw_policies, "Figure 7: a job of 6 h", AGES, lines, "the machine's age, hours")
    marks = {"memoryless": (LATE_AGE, 1.0), "ours": (LATE_AGE, 0.4)}
    return Section(
        "Figure 7: a job of six hours, by the machine's age", entries, told, "age", partial(draw, marks=marks)
    )


def _figure_8(halves: Mapping[int, Sequence[Mapping[str, Judged]]]) -> Section:
    entries = [
        Entry(
            f"{cores} cores: failures of {POLICIES[name]}, over memoryless",
            _ratio(each, name),
            0.5,
            unit="times",
        )
        for name in ("printed", "ours")
        for cores, each in halves.items()
    ]
    labels = {"printed": POLICIES["printed"], "ours": POLICIES["ours"], "least": "any policy, at least"}
    entries += [
        Entry(
            f"mean over sizes: failures of {label}, over memoryless",
            float(np.mean([_ratio(each, name) for each in halves.values()])),
            None if name == "least" else 0.5,
            unit="times",
        )
        for name, label in labels.items()
    ]
    told = (
        "Over jobs of half an hour to 12 h and machines of all ages, fewer fail where a model decides; in the "
        "paper, half as many. On large machines most failures are early deaths, which no decision avoids: there "
        "no policy comes to a half. Eq. 10 charges an old machine with its whole age, and so mostly takes new "
        "ones too soon."
    )
    lines = {name: np.nanmean(_over_halves(halves[SHOWN], name), axis=0) for name in POLICIES}
    draw = partial(pictures.draw_policies, "Figure 8: jobs on machines of all ages", JOBS, lines, "the job, hours")
    middle = float(JOBS[len(JOBS) // 2 - 1])
    half = 0.5 * float(lines["memoryless"][len(JOBS) // 2 - 1])
    return Section(
        "Figure 8: jobs of other lengths", entries, told, "length", partial(draw, marks={"ours": (middle, half)})
    )


def _figure_9(right: Sequence[Mapping[str, Judged]], wrong: Sequence[Mapping[str, Judged]]) -> Section:
    own, others, memoryless = (
        studies.mean_of(right, "ours"),
        studies.mean_of(wrong, "ours"),
        studies.mean_of(right, "memoryless"),
    )
    entries = [
        Entry("more failures than with its own model (less than)", others / own - 1.0, 0.02, unit="%"),
        Entry("fewer failures than memoryless", 1.0 - others / memoryless, 0.15, unit="%"),
    ]
    told = (
        f"Machines of {LARGER} cores, decided about by the model of those of {SHOWN}: one that is wrong in its "
        "numbers but right in its form does nearly as well, as in the paper. That more is gained over memoryless "
        "here may be due to the jobs and ages that are averaged over, which the paper does not give."
    )
    lines = {
        "memoryless": np.nanmean(_over_halves(right, "memoryless"), axis=0),
        "wrong": np.nanmean(_over_halves(wrong, "ours"), axis=0),
        "ours": np.nanmean(_over_halves(right, "ours"), axis=0),
    }
    draw = partial(pictures.draw_policies, "Figure 9: the model of other machines", JOBS, lines, "the job, hours")
    return Section("Figure 9: decided by the wrong model", entries, told, "wrong_model", draw)


def _ratio(halves: Sequence[Mapping[str, Judged]], policy: str) -> float:
    return studies.mean_of(halves, policy) / studies.mean_of(halves, "memoryless")


def _over_halves(halves: Sequence[Mapping[str, Judged]], policy: str) -> Floats:
    """How often jobs fail, by age and length; NaN at ages that not both halves reach."""
    told: Floats = np.mean([each[policy].failure for each in halves], axis=0)
    return told


# --- checkpoints, and the bag


def _checkpoints(quick: bool) -> Section:
    fits, work = (FITS[1:2], CHECKPOINT_WORK[:2]) if quick else (FITS, CHECKPOINT_WORK)
    ages, minutes = ((0.0, 12.0), (1.0,)) if quick else (CHECKPOINT_AGES, CHECKPOINT_MINUTES)
    cases = [
        (fit, Job(hours, each / 60.0, RESTART_HOURS, age))
        for fit in fits
        for each in minutes
        for hours in work
        for age in ages
    ]
    best = np.array([best_schedule(job, fit).expected_hours for fit, job in cases])
    theirs = np.array([young_daly_schedule(job, fit).expected_hours for fit, job in cases])
    does = np.array([job.work_hours for _, job in cases])
    gain, over = 1.0 - best / theirs, (theirs - best) / (theirs - does)
    entries = [
        Entry("expected time saved against Young-Daly, mean", float(gain.mean()), unit="%"),
        Entry("expected time saved against Young-Daly, least", float(gain.min()), unit="%"),
        Entry("expected time saved against Young-Daly, most", float(gain.max()), unit="%"),
        Entry("of what Young-Daly takes beyond the work, mean", float(over.mean()), unit="%"),
    ]
    told = (
        f"Not in the paper. {len(cases)} jobs on machines with bathtubs of the paper's range. Young-Daly saves at "
        "even times, as for machines without memory; a schedule that knows the bathtub saves often on young "
        "machines and seldom on those that have lived past that."
    )
    shown = {
        name: [
            float(np.mean([took[i] / does[i] - 1.0 for i in range(len(cases)) if does[i] == hours]))
            for hours in work
        ]
        for name, took in (("Young-Daly", theirs), ("best", best))
    }
    return Section(
        "Checkpoints, against Young-Daly",
        entries,
        told,
        "checkpoints",
        partial(pictures.draw_checkpoints, work, shown),
    )


def _figure_11(bags: Sequence[Bag], jobs: int, seeds: int) -> Section:
    on_demand, *others = bags
    spread = {each.policy: each.spread if seeds > 1 else None for each in bags}
    entries = [Entry(f"{jobs} jobs on demand", on_demand.dollars, spread=spread[on_demand.policy], unit="$")]
    for each in others:
        entries += [
            Entry(f"{jobs} jobs, {each.policy}", each.dollars, spread=spread[each.policy], unit="$"),
            Entry(f"on demand over {each.policy} (up to)", on_demand.dollars / each.dollars, 5.0, unit="times"),
            Entry(f"time that lost machines took, {each.policy} (less than)", each.overhead, 0.03, unit="%"),
            Entry(f"jobs that lost their machine, {each.policy}", each.lost, unit="%"),
        ]
    listed = studies.ON_DEMAND_A_CORE / studies.PREEMPTIBLE_A_CORE
    told = (
        f"Jobs of {studies.BAG_MINUTES:g} minutes on 16 cores, {studies.BAG_AT_A_TIME} at a time. By the list, "
        f"preemptible machines are {listed:.2f} times as cheap, which is as much as any policy could save on the "
        "same machines; the paper's 5 times is of its own prices and choice of machines. reuse is the paper's "
        "policy, with some first jobs to try every kind of machine; thrifty is our default."
    )
    return Section("Figure 11: what a bag of jobs costs", entries, told, "bag", partial(pictures.draw_bags, bags))
