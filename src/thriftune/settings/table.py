"""The table of all settings of a study: names, types, defaults, kinds of values and help.

tune(), study files and the command line derive their settings from this table. Settings that a study's log stores
as users give them, such as trials and patience, are declared in state/stored_settings.py and inherited here.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thriftune.common.durations import Duration
from thriftune.common.setting_kinds import (
    DURATION,
    FLAG,
    NUMBER,
    TEXT,
    Kind,
    Setting,
    choice,
    positive_number,
    setting,
    settings_of,
    whole_number,
)
from thriftune.search.protocol import Searcher
from thriftune.settings.deadlines import Deadline
from thriftune.settings.engine_options import Local, Ray
from thriftune.space.objectives import Names
from thriftune.state.events import Config
from thriftune.state.stored_settings import (
    ENDING_EARLY,
    FAILURES,
    LIMITS,
    RESULTS,
    RUNNING,
    ChangePolicy,
    StoredSettings,
)
from thriftune.stopping.protocol import Stopper
from thriftune.system import System

GOAL = "Goal"
SEARCH = "Search"
WHERE = "Where it is stored"
THIS_RUN = "This run"
GROUPS = (GOAL, LIMITS, ENDING_EARLY, FAILURES, SEARCH, RUNNING, RESULTS, WHERE, THIS_RUN)
"""The groups of settings, in the order in which the help shows them."""

_METRICS = Kind((str, list), "the name of a metric, or a list of names")
_DEADLINE = Kind(
    (int, float, str, datetime.datetime), f"{DURATION.description}; or a time such as 2026-11-20 09:00:00", "TIME"
)


def _named(description: str) -> Kind:
    """Return the kind of a setting that is a name, or a table with a name and options."""
    return Kind((str, dict), description, "NAME")


@dataclass(frozen=True, kw_only=True)
class Settings(StoredSettings):
    """All settings of a study, as users give them. make_spec() turns them into what the log stores."""

    minimize: Names | None = setting(None, _METRICS, "The metric to minimise, or a list of metrics.", group=GOAL)
    maximize: Names | None = setting(None, _METRICS, "The metric to maximise, or a list of metrics.", group=GOAL)
    constraints: Names | None = setting(
        None,
        Kind((str, list), "a list of strings, such as ['latency_ms <= 10']"),
        'Limits on metrics that a good trial keeps, such as ["latency_ms <= 10"].',
        group=GOAL,
    )
    deadline: Deadline | None = setting(
        None,
        _DEADLINE,
        "How long the study may run in all, such as '20m', or when it must be done, such as '2026-11-20 09:00'.",
        group=LIMITS,
        at_resume=True,
        python_help="Also a number of seconds, a timedelta or a datetime.",
    )
    budget: float | None = setting(
        None,
        positive_number("DOLLARS"),
        "How many dollars the study may cost. This machine counts at the price of the smallest rented machine "
        "with as many cores.",
        group=LIMITS,
        at_resume=True,
    )
    timeout: Duration | None = setting(
        None,
        DURATION,
        "How long one attempt of a trial may take, such as '20m'. Then it counts as hung and is killed.",
        group=FAILURES,
    )
    max_trial_time: Duration | None = setting(
        None,
        DURATION,
        "How long a trial may run in all, such as '2h'. Then it ends, and its value counts.",
        group=LIMITS,
    )
    target: float | None = setting(
        None, NUMBER, "End the study when a trial's value reaches this number.", group=ENDING_EARLY
    )
    workers: int | None = setting(
        None,
        whole_number(1),
        "How many trials run at a time. By default one on each core, and on a cluster as many as it has room for.",
        group=RUNNING,
        at_resume=True,
    )
    engine: str | Local | Ray | Mapping[str, Any] = setting(
        "local",
        _named("'local', 'ray', or a table such as {name = \"ray\", cpus = 2}"),
        "Where trials run: local or ray.",
        group=RUNNING,
        python_help="Also tt.Ray(...), with what each worker gets.",
    )
    system: str | System | Mapping[str, Any] = setting(
        "auto",
        Kind(
            (str, dict), "'auto', 'off', or a table such as {knobs = [\"memory\"], aim = \"energy\"}", "auto|off"
        ),
        "Whether thriftune measures how trials use their machine and improves it between steps: auto or off.",
        group=RUNNING,
        python_help="Also tt.System(...), with options.",
    )
    data: Mapping[str, str | Path] | None = setting(
        None,
        Kind((dict,), "a table: write [data] and in it NAME = 'URL or path'"),
        'Datasets by name: URLs such as "s3://bucket/train", or paths. Each machine fetches a URL once. '
        'trial.data["train"] is the path of its copy.',
        group=RUNNING,
    )
    searcher: str | Searcher = setting(
        "bayes",
        _named('a name, or a table such as {name = "grid", points = 5}'),
        "What suggests configurations: bayes, random, sobol or grid.",
        group=SEARCH,
        python_help="Also an object with options, such as tt.search.Bayes(cost_aware=True).",
    )
    stopping: str | Stopper = setting(
        "auto",
        _named('a name, or a table such as {name = "asha", eta = 4}'),
        "Which rule stops poor trials early: auto, none (no trial is stopped), median, asha, "
        "halving, hyperband or early_curve. auto needs max_steps and one objective without constraints.",
        group=SEARCH,
        python_help="Also an object with options, such as tt.stopping.ASHA(eta=4).",
    )
    enqueue: Sequence[Config] | None = setting(
        None,
        Kind((list,), "tables: write [[enqueue]] and in it NAME = value"),
        "Configurations to try before all others, such as [{'lr': 0.1}]. Parameters that are left out are drawn "
        "at random. They count among trials. One that was tried before is not tried again.",
        group=SEARCH,
    )
    known: Sequence[tuple[Config, float | Mapping[str, float] | None]] | None = setting(
        None,
        Kind((list,), "tables: write [[known]] and in it config = { NAME = value } and value = number"),
        "Results from elsewhere to learn from, such as [({'lr': 0.1}, 0.93)]: pairs of a configuration and its "
        "value, a dict of metrics, or None if it failed. They count towards no limit.",
        group=SEARCH,
    )
    seed: int | None = setting(None, whole_number(0), "The seed of all random choices.", group=SEARCH)
    attrs: Mapping[str, Any] | None = setting(
        None,
        Kind((dict,), "a table: write [attrs] and in it NAME = value"),
        "Values to attach to the study, by name; any JSON.",
        group=WHERE,
    )
    name: str | None = setting(
        None,
        TEXT,
        "The study's name. By default the name of the study file, or else a new name.",
        group=WHERE,
    )
    storage: str | Path | None = setting(
        None,
        Kind((str,), "the path of a folder, or a URL such as s3://bucket/prefix", "PATH|URL"),
        "Where checkpoints and output are kept: a folder, or an object store such as s3://bucket/prefix. By "
        "default beside the store.",
        group=WHERE,
    )


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of one call of tune() or `thriftune run`. The study does not keep them."""

    retry_failed: bool = setting(
        False,
        FLAG,
        "Run the trials again that have failed for good, after you have fixed the cause.",
        group=THIS_RUN,
        at_resume=True,
    )
    fresh: bool = setting(
        False, FLAG, "Start over. An existing study of this name is kept under another name.", group=THIS_RUN
    )
    on_change: ChangePolicy = setting(
        "stop",
        choice("stop", "go_on"),
        "What to do if the trials' code has changed since they got their values: stop with an error, or go on.",
        group=THIS_RUN,
        at_resume=True,
    )


def in_groups(settings: Mapping[str, Setting]) -> dict[str, list[Setting]]:
    """Return the settings by group, in the order of GROUPS; groups without settings are omitted."""
    members = {group: [each for each in settings.values() if each.group == group] for group in GROUPS}
    return {group: listed for group, listed in members.items() if listed}


SETTINGS = settings_of(Settings)
RUN_SETTINGS = settings_of(RunSettings)
