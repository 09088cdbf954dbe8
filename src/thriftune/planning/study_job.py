"""The job of a study: the stages that its stopping rule makes of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, cycle, pairwise

from thriftune.errors import SettingError
from thriftune.planning.job import JobSpec, Stage, asha
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.asha import ASHA, FIRST_RUNG_DIVISOR
from thriftune.stopping.brackets import BracketStage
from thriftune.stopping.successive_halving import SuccessiveHalving


def job_of_study(spec: Spec) -> tuple[JobSpec, list[str]]:
    """Return the job of a study, and notes on what the job assumes.

    Raises SettingError if the study has no max_steps, or no number of trials although its rule needs one.
    """
    max_steps = spec.max_steps
    if max_steps is None:
        raise SettingError("max_steps: is missing; a plan needs the number of steps of a trial")
    rule = STOPPERS.make(spec.stopping, spec.stopping_options)
    if isinstance(rule, SuccessiveHalving):  # includes Hyperband, a subclass
        return _brackets_in_turn(rule.bracket_kinds(max_steps), spec.trials), []
    if spec.trials is None:
        raise SettingError(f"trials: is missing; with stopping {spec.stopping!r} a plan needs a number of trials")
    if isinstance(rule, ASHA):
        first_rung = rule.options["min_steps"] or max(1, max_steps // FIRST_RUNG_DIVISOR)
        note = (
            "asha: the plan assumes that an average number of trials continues from each rung, and that trials "
            "wait for each other there; ASHA does not let them wait, so the study finishes sooner"
        )
        return asha(spec.trials, first_rung, max_steps, rule.options["eta"]), [note]
    notes = []
    if spec.judged:
        notes.append(
            f"{spec.stopping}: may stop trials early, which cannot be predicted; the plan assumes that every "
            f"trial continues to step {max_steps}"
        )
    return JobSpec.of([(spec.trials, max_steps)]), notes


def _brackets_in_turn(kinds: Sequence[Sequence[BracketStage]], trials: int | None) -> JobSpec:
    """Return the job of brackets that run one after the other, the kinds in turn.

    The brackets have `trials` trials in all. If `trials` is None, the job has one bracket of each kind. The last
    bracket may have fewer trials than its kind.
    """
    sizes = [kind[0].trials for kind in kinds]
    remaining = sum(sizes) if trials is None else trials
    jobs = []
    for kind, size in cycle(zip(kinds, sizes, strict=True)):
        jobs.append(_bracket_job(kind, min(size, remaining)))
        remaining -= size
        if remaining <= 0:
            break
    return sum(jobs[1:], jobs[0])


def _bracket_job(stages: Sequence[BracketStage], trials: int) -> JobSpec:
    """Return the job of one bracket with this number of trials.

    A bracket with fewer trials than its kind promotes the same share of them.
    """

    def promoted(count: int, pair: tuple[BracketStage, BracketStage]) -> int:
        stage, next_stage = pair
        return max(1, next_stage.trials * count // stage.trials)

    counts = accumulate(pairwise(stages), promoted, initial=trials)
    job_stages = [Stage(count, stage.end - stage.start) for count, stage in zip(counts, stages, strict=True)]
    return JobSpec(job_stages, [stage.start for stage in stages])
