"""tune(): run a study's trials here or on a cluster, and return what came of them."""

from __future__ import annotations

import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from thriftune.common.callables import one_argument_problem
from thriftune.common.clock import WallClock
from thriftune.common.setting_kinds import Kind, check_settings, setting, settings_of
from thriftune.engines import pickled, pickled_size
from thriftune.errors import SettingError
from thriftune.launch.drive import drive
from thriftune.launch.fingerprint import of_function
from thriftune.launch.open_study import open_study
from thriftune.launch.short_tracebacks import short_if_uncaught
from thriftune.launch.warm_start import same_store
from thriftune.loop.callbacks import Callbacks, OnReport, OnStudyEnd, OnTrialEnd
from thriftune.settings.initial_events import initial_events
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import RUN_SETTINGS, SEARCH, THIS_RUN, WHERE, RunSettings, Settings, in_groups
from thriftune.show.progress import make_view
from thriftune.space.space import Space
from thriftune.state.spec import Target
from thriftune.stopping import STOPPERS
from thriftune.store.opening import use_store
from thriftune.store.protocol import Store
from thriftune.study.ask_tell import WarmStart, made_up_name, sources_of, warn_of_other_seed
from thriftune.study.result import Result
from thriftune.system import System
from thriftune.training.trial import Trial

P = ParamSpec("P")
R = TypeVar("R")

_OBJECT = Kind((), "an object")


@dataclass(frozen=True)
class Arguments(RunSettings, Settings):
    """The arguments of tune(): the function, the space, all settings of the study, and those of this run."""

    train: Callable[[Trial], object]
    space: Space | Mapping[str, Any]
    _: KW_ONLY
    warm_start: WarmStart | Sequence[WarmStart] | None = setting(
        None,
        _OBJECT,
        "Past studies to learn from, whatever their spaces: a Study, a Result, the name of a study in the same "
        "store, or a list of these. What they know is copied when the study is created.",
        group=SEARCH,
    )
    store: str | Path | Store | None = setting(
        None,
        _OBJECT,
        "Where the study is recorded: the path of an SQLite file.",
        group=WHERE,
    )
    progress: bool | None = setting(
        None,
        _OBJECT,
        "False shows only problems. By default a terminal shows a picture, and other output a line now and then.",
        group=THIS_RUN,
    )
    on_report: OnReport | None = setting(
        None,
        _OBJECT,
        "Called as on_report(trial, report) in this process after each report was recorded.",
        group=THIS_RUN,
    )
    on_trial_end: OnTrialEnd | None = setting(
        None,
        _OBJECT,
        "Called as on_trial_end(trial) after a trial has ended.",
        group=THIS_RUN,
    )
    on_study_end: Callable[[Result], object] | None = setting(
        None,
        _OBJECT,
        "Called as on_study_end(result) when the study is done. An error in one of these three functions stops "
        "the study, which can be resumed.",
        group=THIS_RUN,
    )

    def __post_init__(self) -> None:
        check_settings(self, RUN_SETTINGS)


def _takes(arguments: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters of `arguments`, for people, editors and type checkers, and document them."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        signature = _signature(inspect.signature(arguments), inspect.signature(function).return_annotation)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> R:
            _check_names(function.__name__, kwargs, signature.parameters)
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(arguments(*bound.args, **bound.kwargs))

        del checked.__wrapped__
        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        checked.__annotations__["return"] = signature.return_annotation
        checked.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_help()}"
        return checked

    return decorate


def _signature(declared: inspect.Signature, returns: Any) -> inspect.Signature:
    """Return a signature whose keyword parameters are in the order of the help."""
    positional = [each for name, each in declared.parameters.items() if name not in _ARGUMENTS]
    keywords = [declared.parameters[each.name] for group in in_groups(_ARGUMENTS).values() for each in group]
    return declared.replace(parameters=[*positional, *keywords], return_annotation=returns)


def _check_names(function: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown keyword argument, with the most similar name if there is one."""
    unknown = [(name, get_close_matches(name, known, n=1)) for name in given if name not in known]
    if unknown:
        name, close = next((each for each in unknown if each[1]), unknown[0])
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _help() -> str:
    """Return the help on all arguments, by group."""
    lines = []
    for group, members in in_groups(_ARGUMENTS).items():
        lines.append(f"{group}:\n")
        for each in members:
            choices = f" One of {', '.join(map(repr, each.kind.choices))}." if each.kind.choices else ""
            text = f"- `{each.name}`: {each.help}{choices} {each.python_help}".rstrip()
            lines += textwrap.wrap(text, 100, subsequent_indent="  ")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


_ARGUMENTS = settings_of(Arguments)
"""All arguments of tune() but the function and the space."""


@_takes(Arguments)
def tune(given: Arguments) -> Result:
    """Run trials of `train` until a limit is reached, here or on a cluster, and return what came of them.

    Limits are totals over the life of the study. Called again with the same `name` and `store`, tune() runs what
    is left, and returns at once if nothing is. Give at least one of `trials`, `deadline` and `budget`.
    """
    train = given.train
    callbacks = Callbacks(given.on_report, given.on_trial_end, _with_result(given.on_study_end))
    _check_function(train)
    sources = sources_of(given.warm_start)
    function_name = getattr(train, "__name__", type(train).__name__)
    name = made_up_name(getattr(train, "__name__", "study"))
    spec = make_spec(given.space, given, target=Target("pickled"), name=name)
    spec = replace(spec, code=of_function(train))
    events = initial_events(spec, WallClock().now(), enqueue=given.enqueue, known=given.known, attrs=given.attrs)
    own = _own_objects(given, spec.stopping)
    # Pickled before the study is created: a function that cannot be pickled leaves nothing behind.
    function = pickled.dump(function_name, {"train": train, **own})
    with short_if_uncaught(), use_store(given.store, create=not same_store(sources)) as store:
        on_change = "go_on" if given.retry_failed else given.on_change  # users retry after they changed something
        messages: list[str] = []
        spec = open_study(
            store, spec, sources, events, fresh=given.fresh, on_change=on_change, say=messages.append
        )
        for message in messages:
            warnings.warn(message, stacklevel=3)
        warn_of_other_seed(spec, given.seed, stacklevel=4)
        spec, history = drive(
            store,
            spec,
            make_view(spec, given.progress),
            **own,
            function=function,
            callbacks=callbacks,
            remark=functools.partial(pickled_size.size_warning, train, len(function)),
            initial_events=events,
            retry_failed=given.retry_failed,
        )
        return Result(spec, history)


def _own_objects(given: Arguments, rule: str) -> dict[str, Any]:
    """Return the user's own searcher, stopping rule and parts of the system setting, as drive() takes them.

    Built-in rules are made again by their names, as one that was used before holds a whole history.
    """
    return {
        "searcher": None if isinstance(given.searcher, str) else given.searcher,
        "stopper": None if isinstance(given.stopping, str) or rule in STOPPERS else given.stopping,
        "system": given.system.own if isinstance(given.system, System) else {},
    }


def _with_result(on_study_end: Callable[[Result], object] | None) -> OnStudyEnd | None:
    """Return the function as the loop calls it. Callbacks refuses what is not a function."""
    if on_study_end is None or not callable(on_study_end):
        return on_study_end
    return lambda spec, history: on_study_end(Result(spec, history))


def _check_function(train: object) -> None:
    """Raise SettingError for a function that would fail in every trial."""
    if not callable(train):
        raise SettingError(f"train: {train!r} is not a function; it should take a trial and report its metrics")
    function: Any = train
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    # An object that is called like a function runs its class's __call__.
    kinds = [function] if isinstance(function, type) else [function, type(function).__call__]
    if any(map(inspect.iscoroutinefunction, kinds)):
        raise SettingError(f"train: {name} is an async function; give a plain one, which may use asyncio.run()")
    if any(inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds):
        raise SettingError(
            f"train: {name} has a yield, so it is a generator; give a plain function that calls trial.report()"
        )
    if why := one_argument_problem(train):
        raise SettingError(f"train: {name}() {why}; it is called with one, the trial")
