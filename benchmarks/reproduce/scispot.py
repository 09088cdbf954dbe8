"""The reproduction of SciSpot: Figures 1, 2a, 7, 8, 9 and 11.

They are from *SciSpot: Scientific Computing On Temporally Constrained Cloud Preemptible VMs* (Kadupitiya et al.),
sections 3, 4 and 6.
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
"""Cores of the machines of Figures 1 and 7, and of those of Figure 9, which uses the model of the former."""
SYNTHETIC_MACHINES = 150  # of each size
EARLY_HOURS = 3.0  # the first phase of Observation 1
END_HOURS = 24.0
SIX_HOURS = 6.0
LATE_AGE = 19.0
"""From this age on, a job of six hours is certain to fail; some machines live nearly an hour longer than 24."""
CHECKPOINT_WORK, CHECKPOINT_AGES, CHECKPOINT_MINUTES = (2.0, 4.0, 8.0, 16.0), (0.0, 6.0, 12.0, 20.0), (1.0, 5.0)


def scispot(request: Request) -> Reproduction:
    lives, lifetimes_source = _lifetimes(request)
    types = studies.judged_types(lives)
    if missing := {SHOWN, LARGER} - set(types):
        raise SettingError(
            f"{studies.LIFETIMES_FILE}: has too few machines with {' and '.join(map(str, sorted(missing)))} "
            f"cores, {studies.MIN_PREEMPTIONS} preempted ones are needed; get the file again, or remove it"
        )
    request.progress("lifetimes: fitting")
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
        request.progress(f"reuse: {types[cores]}")
        halves[cores] = studies.by_halves(lives, types[cores])
    with_wrong_model = studies.by_halves(lives, types[LARGER], model)
    sections += [_figure_7(halves[SHOWN]), _figure_8(halves), _figure_9(halves[LARGER], with_wrong_model)]
    request.progress("checkpoints: planning")
    sections.append(_checkpoints(request.quick))
    jobs, seeds = (50, 1) if request.quick else (studies.BAG_JOBS, 3)
    bags = studies.bag(
        studies.preemptible(lives), jobs, seeds, lambda step: request.progress(f"a bag of {jobs} jobs: {step}")
    )
    sections.append(_figure_11(bags, jobs, seeds))
    return Reproduction("scispot", sections, [lifetimes_source, *DIFFERS])


DIFFERS = (
    "A machine that its user stopped counts as alive until then (Kaplan-Meier). The paper does not mention how it "
    "treats these.",
    "A policy is evaluated on machines that its model was not fitted to: the model comes from one half of the "
    "record, and the evaluation from the other, in both directions.",
    "The paper's policy is shown as printed (Eq. 10 on its bathtub), and ours beside it: three phases, waste "
    "counted from the job's start, and restarts as often as necessary.",
    "Each job of the bag runs on one machine. The paper's jobs are scientific simulations on 4 or 8 machines, "
    "which we do not have. So Figure 10 (which machine is best), ExoSphere in Figure 11, and Figure 12 (waiting "
    "for a supercomputer, from its traces) are left out.",
    f"Machines cost ${studies.ON_DEMAND_PER_CORE:g} per core and hour on-demand and "
    f"${studies.PREEMPTIBLE_PER_CORE:g} preemptible, the list prices of 2019. The paper does not give its prices.",
    "Also left out: Figures 2 (b), 2 (c) and 3 (time of day, workload, region, day of week, machines launched "
    "together), Figures 4 and 5, and the selection of server types (6.2).",
    "Checkpoints are not in the paper.",
)


def _lifetimes(request: Request) -> tuple[Lifetimes, str]:
    file = request.record(studies.LIFETIMES_FILE)
    if file is not None:
        lives = Lifetimes.read(file)
        return lives, (
            f"Lifetimes are those published by the paper's authors: {len(lives)} machines in us-central1-c, some "
            "of them stopped by their users. The paper's Figure 1 is of us-east1-b."
        )
    return studies.synthetic_record(studies.SIZES, SYNTHETIC_MACHINES, np.random.default_rng(0)), (
        f"Without {studies.LIFETIMES_FILE}, lifetimes are synthetic: {SYNTHETIC_MACHINES} machines of each size, "
        "which resemble those published by the paper's authors."
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
    comment = (
        f"For {machine}: some machines are lost early, few later, and all others at the end. As in the paper, its "
        "bathtub (Eq. 1) fits better than memoryless forms. Machines are also lost between the first hours and "
        "the end. A form with two processes needs a longer tau1 or tau2 for these. Phases, our default, has a "
        "third process."
    )
    draw = partial(pictures.draw_fits, fits, curves[SHOWN], machine)
    return Section("Figure 1: lifetimes and the bathtub, Eq. 1", entries, comment, "lifetimes", draw)


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
    comment = "As in the paper, larger machines are lost sooner (Observation 4). The paper gives no numbers."
    draw = partial(plot_lifetimes, {types[cores]: curve for cores, curve in curves.items()})
    return Section("Figure 2a: sizes of machines", entries, comment, "sizes", draw)


def _equation_9(bathtub: Lifetime, default: Lifetime) -> Section:
    jobs = np.arange(0.5, END_HOURS, 0.5)
    uniform = jobs**2 / (2.0 * END_HOURS)  # integral of t f(t) over 0..T, for a constant density f
    printed = np.asarray(scispot_eq9(bathtub, jobs)) - jobs
    renewed = np.asarray(expected_hours(default, jobs)) - jobs
    best = int(np.argmax(uniform / printed))
    entries = [
        Entry(
            "constant density, over the bathtub: time added, at most (up to)",
            float((uniform / printed)[best]),
            10.0,
            unit="times",
        ),
        *(
            Entry(f"a job of {hours:g} h: time added, {name}", float(added[jobs == hours][0] / hours), unit="%")
            for hours in (1.0, 8.0)
            for name, added in (("constant density", uniform), ("bathtub, Eq. 9", printed), ("ours", renewed))
        ),
    ]
    comment = (
        "Early losses cost a job little, and later machines are safe until the end. So a job takes less time "
        f"with a bathtub than with a constant density of losses, most of all a job of {jobs[best]:g} h. Eq. 9 "
        "allows one failure; ours counts all restarts, and gains less. Short jobs take longer with a bathtub."
    )
    added = {"constant density": uniform, "bathtub, Eq. 9": printed, "ours, all restarts": renewed}
    draw = partial(pictures.draw_added, jobs, added)
    return Section("Sections 3.1 and 4.1: what preemptions add to a job", entries, comment, "running_time", draw)


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
    comment = (
        "On an old machine, the job is certain to fail. Both model-based policies then take a new machine. The "
        f"job fails there as often as new machines are lost within six hours, {lines['ours'][0]:.0%} here."
    )
    draw = partial(pictures.draw_policies, "Figure 7: a job of 6 h", AGES, lines, "the machine's age, hours")
    marks = {"memoryless": (LATE_AGE, 1.0), "ours": (LATE_AGE, 0.4)}
    return Section(
        "Figure 7: a job of six hours, by the machine's age", entries, comment, "age", partial(draw, marks=marks)
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
    comment = (
        "For jobs of half an hour to 12 h and machines of all ages, fewer jobs fail if a model decides; in the "
        "paper, half as many. On large machines most failures are early losses, which no decision avoids, so no "
        "policy reaches one half there. Eq. 10 charges an old machine with its whole age, and so mostly takes a "
        "new machine too soon."
    )
    lines = {name: np.nanmean(_over_halves(halves[SHOWN], name), axis=0) for name in POLICIES}
    draw = partial(pictures.draw_policies, "Figure 8: jobs on machines of all ages", JOBS, lines, "the job, hours")
    middle = float(JOBS[len(JOBS) // 2 - 1])
    half = 0.5 * float(lines["memoryless"][len(JOBS) // 2 - 1])
    return Section(
        "Figure 8: jobs of other lengths",
        entries,
        comment,
        "length",
        partial(draw, marks={"ours": (middle, half)}),
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
    comment = (
        f"The model of machines with {SHOWN} cores decides for machines with {LARGER} cores. As in the paper, a "
        "model with the right form but wrong parameters is nearly as good. The gain over memoryless is larger "
        "here, perhaps because of the averaged jobs and ages, which the paper does not give."
    )
    lines = {
        "memoryless": np.nanmean(_over_halves(right, "memoryless"), axis=0),
        "wrong": np.nanmean(_over_halves(wrong, "ours"), axis=0),
        "ours": np.nanmean(_over_halves(right, "ours"), axis=0),
    }
    draw = partial(pictures.draw_policies, "Figure 9: the model of other machines", JOBS, lines, "the job, hours")
    return Section("Figure 9: decided by the wrong model", entries, comment, "wrong_model", draw)


def _ratio(halves: Sequence[Mapping[str, Judged]], policy: str) -> float:
    return studies.mean_of(halves, policy) / studies.mean_of(halves, "memoryless")


def _over_halves(halves: Sequence[Mapping[str, Judged]], policy: str) -> Floats:
    """Return the failure probability by age and job length.

    It is NaN at ages that only one half reaches.
    """
    failure: Floats = np.mean([each[policy].failure for each in halves], axis=0)
    return failure


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
    young_daly = np.array([young_daly_schedule(job, fit).expected_hours for fit, job in cases])
    work_hours = np.array([job.work_hours for _, job in cases])
    gain, over = 1.0 - best / young_daly, (young_daly - best) / (young_daly - work_hours)
    entries = [
        Entry("expected time saved against Young-Daly, mean", float(gain.mean()), unit="%"),
        Entry("expected time saved against Young-Daly, least", float(gain.min()), unit="%"),
        Entry("expected time saved against Young-Daly, most", float(gain.max()), unit="%"),
        Entry("share of Young-Daly's overhead saved, mean", float(over.mean()), unit="%"),
    ]
    comment = (
        f"Not in the paper. {len(cases)} jobs run on machines with bathtubs of the paper's range. Young-Daly's "
        "even interval assumes a constant hazard. A schedule that knows the bathtub saves often on young "
        "machines and seldom on older ones."
    )
    shown = {
        name: [
            float(np.mean([took[i] / work_hours[i] - 1.0 for i in range(len(cases)) if work_hours[i] == hours]))
            for hours in work
        ]
        for name, took in (("Young-Daly", young_daly), ("best", best))
    }
    return Section(
        "Checkpoints, against Young-Daly",
        entries,
        comment,
        "checkpoints",
        partial(pictures.draw_checkpoints, work, shown),
    )


def _figure_11(bags: Sequence[Bag], jobs: int, seeds: int) -> Section:
    on_demand, *others = bags
    spread = {each.policy: each.spread if seeds > 1 else None for each in bags}
    entries = [Entry(f"{jobs} jobs, on-demand", on_demand.dollars, spread=spread[on_demand.policy], unit="$")]
    for each in others:
        entries += [
            Entry(f"{jobs} jobs, {each.policy}", each.dollars, spread=spread[each.policy], unit="$"),
            Entry(f"on-demand over {each.policy} (up to)", on_demand.dollars / each.dollars, 5.0, unit="times"),
            Entry(f"time that lost machines took, {each.policy} (less than)", each.overhead, 0.03, unit="%"),
            Entry(f"losses of the machine per job, {each.policy}", each.lost, unit="%"),
        ]
    listed = studies.ON_DEMAND_PER_CORE / studies.PREEMPTIBLE_PER_CORE
    comment = (
        f"Jobs of {studies.BAG_MINUTES:g} minutes on 16 cores, {studies.BAG_PARALLEL_JOBS} at a time. At list "
        f"prices, preemptible machines are {listed:.2f} times as cheap, which is the most that a policy can save "
        "on the same machines. The paper's 5 times is for its own prices and machines. reuse is the paper's "
        "policy, and tries every machine type with its first jobs. thrifty is our default."
    )
    return Section(
        "Figure 11: what a bag of jobs costs", entries, comment, "bag", partial(pictures.draw_bags, bags)
    )
