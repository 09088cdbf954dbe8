"""How trials used their machines: decisions, and the measurements they rest on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.stories import BOTH, KEPT, Story, tuned
from thriftune.results.system_decisions import Pace, StudyUsage, TrialUsage, WindowCounts, explain
from thriftune.state import events as ev
from thriftune.system.knowledge import OTHERS, OWN, PROCESS


def explained(story: Story) -> StudyUsage:
    return explain(story.history(), story.now)


def only(story: Story) -> TrialUsage:
    (found,) = explained(story).trials
    return found


# --- decisions


def test_each_decision_has_its_step_and_the_windows_before_and_after() -> None:
    found = only(tuned(Story()))
    first, second, third = found.decisions
    assert (first.step, first.setting, first.is_probe, first.from_window) == (2, KEPT, True, 2)
    assert (second.step, second.setting, second.is_probe, second.from_window) == (3, BOTH, True, 3)
    assert first.before is not None
    assert first.before == Pace(1.0, 1, None)  # and not the cold one
    assert first.after == second.before
    assert first.after is not None
    assert first.after == Pace(0.8, 1, None)
    assert second.after == third.before
    assert second.after is not None
    assert second.after.seconds_a_step == pytest.approx(0.73)
    assert (third.step, third.setting, third.is_probe, third.from_window) == (4, BOTH, False, 4)
    assert third.after is not None
    assert third.after.windows == 7
    assert third.after.seconds_a_step == pytest.approx(0.72 - 0.01 / 7)
    assert third.after.spread is not None


def test_a_first_step_is_compared_with_a_great_error() -> None:
    found = only(Story().begin().window(1.5, cold=True).decide(KEPT).window(1.0))
    assert len(found.windows) == 2
    assert found.pace_without_knobs == Pace(1.5, 1, None, cold=True)
    assert found.decisions[0].before == found.pace_without_knobs
    assert found.gain is not None
    assert found.gain_error is not None
    assert 0.1 < found.gain < 0.3
    assert found.gain_error > 0.15
    assert found.saved_seconds is not None
    assert abs(found.saved_seconds) < 1.5 * found.saved_error


def test_a_window_that_was_open_at_a_decision_comes_before_it() -> None:
    story = Story().begin().window(1.0).decide(KEPT).window(1.0, setting={}).window(0.5).end()
    (decided,) = only(story).decisions
    assert decided.from_window == 2
    assert decided.before is not None
    assert decided.before.windows == 2
    assert decided.after == Pace(0.5, 1, None)
    assert only(story).counts == WindowCounts(2, 1, 0)


def test_a_refused_setting_was_never_in_force() -> None:
    """A window has the setting that was in force, whatever was decided."""
    story = Story().begin().window(1.0).decide({"nice": 5}).window(1.1, setting={}).window(0.9, setting={})
    story.decide(KEPT).window(0.5)
    first, second = only(story).decisions
    assert first.after is None
    assert first.from_window == second.from_window == 3
    assert first.before == second.before
    assert second.before is not None
    assert second.before.windows == 3
    assert second.after == Pace(0.5, 1, None)
    assert only(story).counts == WindowCounts(3, 1, 0)


def test_a_decision_between_windows_has_the_last_reported_step() -> None:
    """As when another trial has come to the machine meanwhile."""
    story = Story().begin().window(1.0, steps=4)
    story.entries.append(ev.Reported(103.0, 0, 1, 2, 5, {"loss": 1.0}))
    story.entries.append(ev.SetKnobs(103.5, 0, {"threads": 2}, "a probe"))
    assert only(story).decisions[0].step == 5
    assert only(Story().begin().decide(KEPT, "good")).decisions[0].step == 0


def test_windows_are_counted_by_kind_of_decision() -> None:
    assert only(tuned(Story())).counts == WindowCounts(2, 2, 7)  # the last decision is no probe
    story = Story().begin().window(1.0).decide(KEPT).window(1.2).window(1.1)
    story.decide({}, "nothing better is known").window(1.0).window(1.0)
    assert only(story).counts == WindowCounts(1, 2, 2)
    assert only(Story().begin().window(1.0).window(1.0)).counts == WindowCounts(2, 0, 0)


@pytest.mark.parametrize("by", [OWN, OTHERS, PROCESS, "known work"])
def test_the_basis_of_a_setting(by: str) -> None:
    assert only(Story().begin().decide(KEPT, "good", by).window(1.0)).basis == by


# --- comparisons


def test_the_time_without_knobs_rests_on_the_trials_own_windows() -> None:
    found = only(tuned(Story()))
    assert found.gain == pytest.approx(0.28, abs=0.03)
    assert found.gain_error is not None
    assert 0.03 < found.gain_error < 0.1
    assert not found.by_others
    assert found.saved_seconds == pytest.approx(0.2 + 8 * 0.28, abs=0.4)
    assert found.seconds_without_knobs == pytest.approx(found.seconds + (found.saved_seconds or 0.0))
    assert found.seconds == pytest.approx(2.0 + 1.0 + 0.8 + 8 * 0.72 + 0.01)


def test_a_worse_setting_has_cost_time() -> None:
    found = only(
        Story().begin().window(1.0).decide(KEPT).window(1.5).decide({}, "nothing better is known").window(1.0)
    )
    assert found.saved_seconds == pytest.approx(-0.5, abs=0.1)  # the first window of a setting takes longer anyway
    assert found.gain is None  # it has no knob now


def test_a_trial_without_a_window_to_compare_takes_the_gain_of_others() -> None:
    without = Story().begin().decide(BOTH, "good").window(0.4).window(0.36)
    assert only(without).gain is None
    assert only(without).saved_seconds is None
    story = tuned(Story()).begin().decide(BOTH, "good").window(0.4).window(0.36)
    found = explained(story)
    other, this = found.trials
    assert this.pace_without_knobs is None
    assert (this.gain, this.gain_error) == pytest.approx((other.gain, other.gain_error))
    assert (this.by_others, other.by_others) == (True, False)
    assert this.gain is not None
    assert this.saved_seconds == pytest.approx(0.76 / (1 - this.gain) - 0.76)
    assert other.saved_seconds is not None
    assert this.saved_seconds is not None
    assert found.saved_seconds == pytest.approx(other.saved_seconds + this.saved_seconds)
    assert found.saved_error == pytest.approx(math.hypot(other.saved_error, this.saved_error))


def test_machines_of_different_kinds_are_not_compared() -> None:
    story = Story().begin().window(1.0).lose().place(1)
    story.decide(KEPT, "good").window(0.25, kind="another")
    found = only(story)
    assert found.pace_without_knobs is None
    assert found.gain is None
    assert found.saved_seconds is None
    assert explained(story).kinds == ("a processor, 2 cores, 8 GiB", "another")
    # Where each kind has both, each is compared with its own.
    story.decide({}, "nothing better is known").window(0.5, kind="another")
    story.decide(KEPT, "50% less a step").window(0.25, kind="another")
    assert only(story).saved_seconds == pytest.approx(0.5, abs=0.1)
    assert only(story).gain == pytest.approx(0.5, abs=0.05)


def test_steps_of_unequal_length_are_no_gain() -> None:
    """Every third one validates."""
    story = Story().begin().window(0.3, cold=True).window(0.3).window(0.9).decide(KEPT)
    for number in range(9):
        story.window(0.3 if number % 3 < 2 else 0.9)
    found = only(story)
    assert found.saved_seconds is not None
    assert abs(found.saved_seconds) < 1.5 * found.saved_error
    assert found.gain is not None
    assert found.gain_error is not None
    assert abs(found.gain) < 1.5 * found.gain_error


def test_a_trial_without_knobs_has_saved_nothing() -> None:
    found = only(Story().begin().window(1.0).window(2.0).end())
    assert found.saved_seconds == 0.0
    assert found.seconds_without_knobs == found.seconds
    assert found.gain is None


def test_the_time_of_a_trial_that_runs_goes_on() -> None:
    story = Story().begin().window(1.0).decide(KEPT).window(0.5)
    assert explain(story.history(), story.now + 8.5).trials[0].seconds == pytest.approx(10.0)


# --- a study


def test_a_study_without_windows() -> None:
    found = explained(Story().begin().idle(1.0).end())
    assert found.trials == []
    assert (found.windows, found.steps, found.saved_seconds, found.counts) == (0, 0, 0.0, (0, 0, 0))
    assert found.joules.total == found.joules.estimated == pytest.approx(1.01 * 3.5)


def test_logs_of_older_versions_may_have_fewer_trials_at_a_time() -> None:
    story = tuned(tuned(Story()), meter="RAPL")
    story.entries.append(ev.LimitTrialsPerMachine(story.now, 2, 1, "one is better"))
    found = explained(story)
    assert [each.at_a_time for each in found.trial_limits] == [1]
    assert found.meters == ("estimate", "RAPL")
    assert len(found.kinds) == 1


SETTINGS: list[dict[str, Any]] = [{}, {"memory": "kept"}, {"threads": 2}, {"memory": "kept", "threads": 2}]
acts = st.one_of(
    st.tuples(
        st.just("window"),
        st.floats(0.01, 100.0),
        st.integers(1, 9),
        st.sampled_from([None, *SETTINGS]),
        st.booleans(),
        st.sampled_from(["one", "other"]),
        st.floats(0.0, 100.0),
        st.sampled_from(["", "estimate", "RAPL"]),
    ),
    st.tuples(st.just("decide"), st.sampled_from(SETTINGS), st.sampled_from(["a probe", "9% less"])),
    st.tuples(st.just("lose")),
    st.tuples(st.just("begin")),
    st.tuples(st.just("idle"), st.floats(0.0, 10.0)),
)


def story_of(acts: list[tuple[Any, ...]]) -> Story:
    story = Story().begin()
    for act, *how in acts:
        if act == "window":
            seconds, steps, setting, cold, kind, joules, meter = how
            story.window(seconds, steps=steps, setting=setting, cold=cold, kind=kind, joules=joules, meter=meter)
        elif act == "decide":
            story.decide(*how)
        elif act == "idle":
            story.idle(*how)
        elif act == "lose":
            story.lose().place(story.step)
        else:
            story.end().begin()
    return story.end()


@settings(max_examples=100, deadline=None)
@given(st.lists(acts, max_size=40))
def test_sums_add_up_in_any_log(acts: list[tuple[Any, ...]]) -> None:
    story = story_of(acts)
    history = story.history()
    found = explain(history, story.now)
    measured = [window.usage for trial in history.trials for window in trial.windows]
    assert found.windows == len(measured) == sum(found.counts)
    assert found.steps == sum(each.steps for each in measured)
    assert found.saved_seconds == pytest.approx(math.fsum(each.saved_seconds or 0.0 for each in found.trials))
    for each in found.trials:
        trial = history.trials[each.trial]
        assert sum(each.counts) == len(trial.windows)
        assert len(each.decisions) == len(trial.knob_changes)
        last = [window for window in each.windows if window.kind == each.windows[-1].kind]
        for setting, pace in each.paces:
            windows = [window for window in last if window.setting == setting and window.cold == pace.cold]
            assert pace.windows == len(windows)
            seconds = pace.seconds_a_step * sum(window.steps for window in windows)
            assert seconds == pytest.approx(math.fsum(window.seconds for window in windows))
        starts = [decided.from_window for decided in each.decisions]
        assert starts == sorted(starts)
        assert each.seconds == pytest.approx(trial.seconds)
        if each.seconds_without_knobs is not None:
            assert each.seconds_without_knobs - each.seconds == pytest.approx(each.saved_seconds, abs=1e-6)
    of_trials = math.fsum(each.joules.total for each in found.trials)
    unmeasured = {trial.id for trial in history.trials} - {each.trial for each in found.trials}
    assert of_trials <= found.joules.total * (1 + 1e-9)
    assert unmeasured or of_trials == pytest.approx(found.joules.total)
