"""The figure of how a trial used its machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.show.test_history_plot import FIRST_BYTES
from tests.system.stories import KEPT, Story, tuned
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.system_decisions import explain
from thriftune.show.system_plot import plot_profile


def draw(story: Story, path: Path) -> Path:
    """Draw the first trial of a story, and return the path."""
    mpl = pytest.importorskip("matplotlib")
    history = story.history()
    with mpl.rc_context({"svg.fonttype": "none"}):
        plot_profile("digits", history, explain(history, story.now).trials[0], path)
    return path


@pytest.mark.parametrize("kind", FIRST_BYTES)
def test_each_file_format_can_be_written(kind: str, tmp_path: Path) -> None:
    assert draw(tuned(Story()), tmp_path / f"profile.{kind}").read_bytes().startswith(FIRST_BYTES[kind])


def test_the_figure_has_the_counters_and_the_seconds_a_step(tmp_path: Path) -> None:
    figure = draw(tuned(Story()), tmp_path / "profile.svg").read_text()
    for text in ("digits, trial 0: memory kept, threads 2", "minor_faults", "10k to 50k /s", "seconds a step"):
        assert text in figure
    assert "idle" not in figure  # the counter is 0 in the whole study


def test_each_decision_has_a_numbered_line(tmp_path: Path) -> None:
    def labels(story: Story) -> set[str]:
        return set(re.findall(r">([12])</text>", draw(story, tmp_path / "profile.svg").read_text()))

    story = Story().begin().window(5.0, steps=10, faults=1.0).window(5.0, steps=10, faults=9.0)
    assert labels(story) == set()
    assert labels(story.decide(KEPT).window(4.0, steps=10, faults=9.0)) == {"1"}
    assert labels(story.decide({}, "nothing better").window(4.0, steps=10, faults=9.0)) == {"1", "2"}


def test_more_windows_than_the_figure_has_columns(tmp_path: Path) -> None:
    story = Story().begin()
    for number in range(2000):
        story.window(0.5, minor_faults=float(number))
    assert draw(story, tmp_path / "long.png").read_bytes().startswith(FIRST_BYTES["png"])


def test_a_trial_without_counters_is_drawn_and_one_without_windows_refused(tmp_path: Path) -> None:
    assert "seconds a step" in draw(Story().begin().window(1.0), tmp_path / "bare.svg").read_text()
    with pytest.raises(ThriftuneError, match="of trial 0 of 'digits' nothing was measured"):
        draw(Story().begin().decide(KEPT), tmp_path / "none.svg")
    with pytest.raises(SettingError, match="must end in"):
        draw(tuned(Story()), tmp_path / "profile.txt")
