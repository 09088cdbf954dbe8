"""thriftune: good hyperparameters for the fewest dollars, by the time you need them, on machines that may vanish.

The public names, and nothing else. They are loaded when first used, so that importing thriftune costs next to
nothing in every worker process and on every command line.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from thriftune.version import __version__ as __version__

if TYPE_CHECKING:
    from thriftune import errors as errors
    from thriftune import market as market
    from thriftune import planning as planning
    from thriftune import search as search
    from thriftune import stopping as stopping
    from thriftune import system as system
    from thriftune.errors import StudyFailed as StudyFailed
    from thriftune.errors import StudyInterrupted as StudyInterrupted
    from thriftune.errors import ThriftuneError as ThriftuneError
    from thriftune.launch.manage import delete as delete
    from thriftune.launch.manage import rename as rename
    from thriftune.launch.manage import stop as stop
    from thriftune.launch.manage import studies as studies
    from thriftune.planning.plan_finder import plan as plan
    from thriftune.replay import recorded as recorded
    from thriftune.replay.simulation import simulate as simulate
    from thriftune.results.models import BestModel as BestModel
    from thriftune.results.summaries import StudySummary as StudySummary
    from thriftune.settings.engine_options import Ray as Ray
    from thriftune.space.conditions import between as between
    from thriftune.space.parameters import Choice as Choice
    from thriftune.space.parameters import Float as Float
    from thriftune.space.parameters import Int as Int
    from thriftune.space.space import Space as Space
    from thriftune.state.trial_record import Report as Report
    from thriftune.state.trial_record import State as State
    from thriftune.state.trial_record import TrialRecord as TrialRecord
    from thriftune.study.ask_tell import Study as Study
    from thriftune.study.ask_tell import load as load
    from thriftune.study.result import Result as Result
    from thriftune.study.tune import tune as tune
    from thriftune.system import System as System
    from thriftune.training.current_trial import current_trial as current_trial
    from thriftune.training.current_trial import report as report
    from thriftune.training.trial import Trial as Trial

_HOMES = {
    "space.conditions": ["between"],
    "settings.engine_options": ["Ray"],
    "errors": ["StudyFailed", "StudyInterrupted", "ThriftuneError"],
    "training.current_trial": ["current_trial", "report"],
    "launch.manage": ["delete", "rename", "stop", "studies"],
    "results.models": ["BestModel"],
    "space.parameters": ["Choice", "Float", "Int"],
    "planning.plan_finder": ["plan"],
    "study.result": ["Result"],
    "replay.simulation": ["simulate"],
    "space.space": ["Space"],
    "study.ask_tell": ["Study", "load"],
    "study.tune": ["tune"],
    "results.summaries": ["StudySummary"],
    "system": ["System"],
    "state.trial_record": ["Report", "State", "TrialRecord"],
    "training.trial": ["Trial"],
}
_HOME = {name: f"thriftune.{home}" for home, names in _HOMES.items() for name in names}

_MODULES = {name: f"thriftune.{name}" for name in ("errors", "market", "planning", "search", "stopping", "system")}
_MODULES["recorded"] = "thriftune.replay.recorded"

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'thriftune' has no attribute {name!r}")
    if sys.platform != "linux":
        import_module("thriftune.common.platforms").require_linux()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if "THRIFTUNE_RUN" in os.environ:
    # A trial's command. Loaded now, as a signal handler may report while the first report would still load it.
    import_module("thriftune.training.current_trial")
