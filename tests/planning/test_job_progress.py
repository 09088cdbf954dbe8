"""Tests of job progress, which follows from the history alone and never changes for the past."""

from __future__ import annotations

from tests.support.tables import Table, replayed
from thriftune.planning import JobSpec, successive_halving
from thriftune.planning.job_progress import JobProgress, StageSpan, stage_spans
from thriftune.stopping.successive_halving import SuccessiveHalving

JOB = successive_halving(4, 1, 7, 2)  # 4 trials to step 1, 2 to step 3, 1 to step 7


def table(trials: int = 4, slots: int = 4) -> Table:
    return Table(slots=slots, trials=trials, max_steps=7, stopper=SuccessiveHalving(4, min_steps=1, eta=2))


def end_stage(study: Table, trial: int, step: int) -> None:
    """Let a trial reach the end of its stage, ten seconds after the last event."""
    study.now += 10.0
    study.report(trial, step, loss=float(trial), saved=True)
    study.end(trial, cut=step < 7)


def stage_facts(study: Table, job: JobSpec = JOB) -> tuple[list[float], list[int]]:
    """Return the start of each stage in seconds, and its trials; check them against a replay of the log."""
    progress = JobProgress(job)
    began, trials = progress.stage_starts(study.history), progress.stage_trials(study.history)
    again = JobProgress(job)
    assert again.stage_starts(replayed(study.spec, study.log)) == began
    return [each - began[0] for each in began], trials


def test_the_trials_of_a_bracket_are_created_together() -> None:
    assert stage_spans(JobSpec.of([(4, 1), (2, 2), (3, 5)])) == [
        StageSpan(0, 4, 0, 1, 4),
        StageSpan(0, 4, 1, 3, 2),
        StageSpan(4, 7, 0, 5, 3),
    ]


def test_a_stage_begins_when_all_trials_have_ended_the_one_before() -> None:
    study = table()
    assert stage_facts(study) == ([0.0], [4])
    for trial in (0, 1, 2):
        end_stage(study, trial, 1)
    assert stage_facts(study) == ([0.0], [4])
    end_stage(study, 3, 1)
    assert stage_facts(study) == ([0.0, 40.0], [4, 2])
    end_stage(study, 0, 3)
    end_stage(study, 1, 3)
    end_stage(study, 0, 7)
    assert stage_facts(study) == ([0.0, 40.0, 60.0, 70.0], [4, 2, 1])


def test_trials_left() -> None:
    study, progress = table(), JobProgress(JOB)
    found = [progress.trials_left(study.history)]
    for trial in range(4):
        end_stage(study, trial, 1)
        found.append(progress.trials_left(study.history))
    assert found == [4, 3, 2, 1, 2]


def test_a_report_alone_does_not_end_a_stage() -> None:
    study = table(slots=4)
    for trial in (0, 1, 2):
        end_stage(study, trial, 1)
    study.report(3, 1, loss=3.0, saved=True)
    assert stage_facts(study) == ([0.0], [4])


def test_a_failed_trial_ends_its_stage_and_is_not_in_the_next() -> None:
    study = table()
    for trial in (0, 1, 2):
        study.fail(trial)
    study.retry()
    for trial in (0, 1, 2):
        study.fail(trial)
    end_stage(study, 3, 1)
    assert stage_facts(study) == ([0.0, 11.0], [4, 1])


def test_all_stages_are_over_when_all_trials_have_failed() -> None:
    study = table()
    for _ in range(2):
        for trial in range(4):
            study.fail(trial)
        study.retry()
    assert stage_facts(study) == ([0.0, 1.0, 1.0, 1.0], [4, 0, 0])


def test_the_next_bracket_begins_after_the_last_stage() -> None:
    study, job = table(trials=8), JOB + JOB
    for trial in range(4):
        end_stage(study, trial, 1)
    for trial, step in ((0, 3), (1, 3), (0, 7)):
        end_stage(study, trial, step)
    assert stage_facts(study, job) == ([0.0, 40.0, 60.0, 70.0], [4, 2, 1, 4])


def test_repeated_steps_do_not_end_a_stage_again() -> None:
    study = table()
    for trial in range(3):
        end_stage(study, trial, 1)
    study.now += 10.0
    study.report(3, 1, loss=-1.0)  # it does not save, so it has to repeat the step
    study.end(3, cut=True)
    before = stage_facts(study)
    study.now += 50.0
    study.report(3, 1, loss=-1.0, saved=True)
    assert stage_facts(study) == before == ([0.0, 40.0], [4, 2])


def test_another_history_resets_the_cache() -> None:
    one, other, progress = table(), table(), JobProgress(JOB)
    for trial in range(4):
        end_stage(one, trial, 1)
    assert len(progress.stage_starts(one.history)) == 2
    assert len(progress.stage_starts(other.history)) == 1
