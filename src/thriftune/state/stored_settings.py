"""The settings that a study's log stores in the form in which users give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from thriftune.common.file_patterns import check_patterns
from thriftune.common.setting_kinds import FLAG, Kind, choice, setting, whole_number

DiskFullPolicy = Literal["stop", "go_on"]
FailurePolicy = Literal["stop", "go_on"]
ChangePolicy = Literal["stop", "go_on"]
ValuePolicy = Literal["auto", "best", "last"]

LIMITS = "Limits"
ENDING_EARLY = "Ending early"
FAILURES = "Failures"
RUNNING = "Running"
RESULTS = "Results"


@dataclass(frozen=True, kw_only=True)
class StoredSettings:
    """Settings that have the same form in four places.

    The places are tune(), study files, the command line and the logs of studies. A setting that is added here
    appears in all four. A log without a setting gets its default. Spec has another default where older studies
    behaved differently. Settings that a log stores in another form are in settings/table.py. Examples are a
    deadline, which is stored in seconds, and an engine, which is stored as a name and options.
    """

    trials: int | None = setting(
        None,
        whole_number(1),
        "How many trials to run in all. Running the study again with a larger number runs the missing ones.",
        group=LIMITS,
        at_resume=True,
    )
    max_steps: int | None = setting(
        None, whole_number(1), "How many steps a trial runs at most: trial.steps() ends after them.", group=LIMITS
    )
    retries: int = setting(
        1,
        whole_number(0),
        "How many times to try a failed trial again. A lost machine is not a failure.",
        group=FAILURES,
    )
    on_failure: FailurePolicy = setting(
        "stop",
        choice("stop", "go_on"),
        "What to do when the first three trials fail with the same error: stop the study, which can be resumed, "
        "or go on.",
        group=FAILURES,
    )
    patience: int | None = setting(
        None,
        whole_number(1),
        "Start no more trials after this many in a row without a better value.",
        group=ENDING_EARLY,
    )
    stop_when_converged: bool = setting(
        False,
        FLAG,
        "Start no more trials when the searcher expects no improvement worth another one.",
        group=ENDING_EARLY,
    )
    value: ValuePolicy = setting(
        "auto",
        choice("best", "last", "auto"),
        "Which of a trial's values counts, and which checkpoint is its model: the best over its steps or the "
        "last. auto is best for one objective without constraints, and last otherwise.",
        group=RESULTS,
    )
    keep: int = setting(
        2,
        whole_number(2),
        "How many of its newest checkpoints a trial keeps, besides the best one; 2 or more.",
        group=RESULTS,
    )
    files: Sequence[str] | None = setting(
        None,
        Kind((list,), "a list of patterns, such as ['src', 'train.py']", check=check_patterns),
        "Which files of the project are sent to machines that share no folder with this one: patterns such as "
        "['src', '*.py'], or ['!data'] to leave files out. By default the files that git tracks or does not "
        "ignore, or the folder of the script.",
        group=RUNNING,
    )
    disk_full: DiskFullPolicy = setting(
        "stop",
        choice("stop", "go_on"),
        "What to do when the disk is full: stop the study, or wait until the disk has room.",
        group=FAILURES,
    )
