"""Which stage a job is in: from the history alone, and never otherwise than it was told before."""

from __future__ import annotations

from tests.support.tables import Table, replayed
from thriftune.planning import JobSpec, successive_halving
from thriftune.planning.job_progress import JobProgress, StageSpan, stage_spans
from thriftune.stopping.halving import SuccessiveHalving

JOB = successive_halving(4, 1, 7, 2)  # 4 trials to step 1, 2 to step 3, 1 to step 7


def table(trials: int = 4, slots: int = 4) -> Table:
    return Table(slots=slots, trials=trials, max_steps=7, stopper=SuccessiveHalving(4, min_steps=1, eta=2))


def through(where: Table, trial: int, step: int) -> None:
    """It comes to the end of its stage, ten seconds after whoever was last."""
    where.now += 10.0
    where.report(trial, step, loss=float(trial), saved=True)
    where.end(trial, cut=step < 7)


def told(where: Table, job: JobSpec = JOB) -> tuple[list[float], list[int]]:
    """Seconds from the start to each stage's beginning, and its trials; whoever reads the log finds the same."""
    under_way = JobProgress(job)
    began, trials = under_way.began(where.history), under_way.trials(where.history)
    again = JobProgress(job)
    assert again.began(replayed(where.spec, where.log)) == began
    return [each - began[0] for each in began], trials


def test_trials_of_a_bracket_are_those_that_begin_together() -> None:
    assert stage_spans(JobSpec.of([(4, 1), (2, 2), (3, 5)])) == [
        StageSpan(0, 4, 0, 1, 4),
        StageSpan(0, 4, 1, 3, 2),
        StageSpan(4, 7, 0, 5, 3),
    ]


def test_a_stage_begins_when_all_have_come_to_the_end_of_the_one_before() -> None:
    where = table()
    assert told(where) == ([0.0], [4])
    for trial in (0, 1, 2):
        through(where, trial, 1)
    assert told(where) == ([0.0], [4])
    through(where, 3, 1)
    assert told(where) == ([0.0, 40.0], [4, 2])
    through(where, 0, 3)
    through(where, 1, 3)
    through(where, 0, 7)
    assert told(where) == ([0.0, 40.0, 60.0, 70.0], [4, 2, 1])


def test_how_many_are_left_in_it() -> None:
    where, under_way = table(), JobProgress(JOB)
    found = [under_way.left(where.history)]
    for trial in range(4):
        through(where, trial, 1)
        found.append(under_way.left(where.history))
    assert found == [4, 3, 2, 1, 2]


def test_a_trial_that_reports_has_yet_to_save_and_end() -> None:
    where = table(slots=4)
    for trial in (0, 1, 2):
        through(where, trial, 1)
    where.report(3, 1, loss=3.0, saved=True)
    assert told(where) == ([0.0], [4])


def test_a_trial_that_fails_is_not_waited_for_and_not_in_the_next_stage() -> None:
    where = table()
    for trial in (0, 1, 2):
        where.fail(trial)
    where.retry()
    for trial in (0, 1, 2):
        where.fail(trial)
    through(where, 3, 1)
    assert told(where) == ([0.0, 11.0], [4, 1])


def test_where_all_fail_all_stages_are_over() -> None:
    where = table()
    for _ in range(2):
        for trial in range(4):
            where.fail(trial)
        where.retry()
    assert told(where) == ([0.0, 1.0, 1.0, 1.0], [4, 0, 0])


def test_the_next_bracket_comes_after_the_last_stage() -> None:
    where, job = table(trials=8), JOB + JOB
    for trial in range(4):
        through(where, trial, 1)
    for trial, step in ((0, 3), (1, 3), (0, 7)):
        through(where, trial, step)
    assert told(where, job) == ([0.0, 40.0, 60.0, 70.0], [4, 2, 1, 4])


def test_what_a_trial_does_again_changes_nothing() -> None:
    where = table()
    for trial in range(3):
        through(where, trial, 1)
    where.now += 10.0
    where.report(3, 1, loss=-1.0)  # it does not save, so that it begins anew
    where.end(3, cut=True)
    before = told(where)
    where.now += 50.0
    where.report(3, 1, loss=-1.0, saved=True)
    assert told(where) == before == ([0.0, 40.0], [4, 2])


def test_it_is_told_anew_of_another_history() -> None:
    one, other, under_way = table(), table(), JobProgress(JOB)
    for trial in range(4):
        through(one, trial, 1)
    assert len(under_way.began(one.history)) == 2
    assert len(under_way.began(other.history)) == 1
