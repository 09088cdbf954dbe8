"""The options of `thriftune best` that print where a model is, or copy it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from thriftune.cli.common import F, print_json
from thriftune.errors import NoBestTrial, NoCheckpoint
from thriftune.results.model_copy import copy_model
from thriftune.results.models import find_best_model, find_model, why_no_best_model, why_no_model
from thriftune.state.history import History
from thriftune.state.reports import value_at
from thriftune.state.trial_record import TrialRecord


def model_options(command: F) -> F:
    """Add the options that print_model() handles to a command."""
    for option in (
        click.option("--trial", "number", type=int, metavar="N", help="Use the model of trial N instead."),
        click.option("--to", type=click.Path(path_type=Path), metavar="FOLDER", help="Copy the model to FOLDER."),
        click.option("--model", is_flag=True, help="Print the folder of the best saved model of all trials."),
        click.option("--checkpoint", is_flag=True, help="Print the folder of the best trial's model."),
    ):
        command = option(command)
    return command


def print_model(
    history: History, trial: TrialRecord | None, *, best_of_all: bool, to: Path | None, as_json: bool
) -> None:
    """Print the folder of a model, alone on its line or as JSON.

    With `to`, copy the model there and print the folder of the copy. The model is the best saved one if
    `best_of_all`, else that of `trial`, or of the best trial if that is None. Raises NoBestTrial or NoCheckpoint
    if there is no such model.
    """
    if best_of_all:
        model, unreadable = _best_model(history)
    else:
        model, unreadable = _model_of(_only_best(history) if trial is None else trial, history)
    for sentence in unreadable:
        click.echo(sentence, err=True)
    folder = model["checkpoint"]
    if to is not None:
        folder = copy_model(folder, to)
    if as_json:
        print_json({**model, "checkpoint": str(folder)})
    else:
        click.echo(folder)


def _best_model(history: History) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the best saved model as JSON fields.

    Also return a sentence for each better model that cannot be read.
    """
    model, unreadable = find_best_model(history)
    if model is None:
        raise why_no_best_model(history)
    fields = {"trial": model.trial.id, "step": model.step, "value": model.value, "checkpoint": model.checkpoint}
    return fields, unreadable


def _model_of(trial: TrialRecord, history: History) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the trial's model as JSON fields.

    Also return a sentence for each better model that cannot be read.
    """
    model = find_model(trial)
    if model.folder is None:
        raise NoCheckpoint(" ".join((*model.passed_over, why_no_model(trial))))
    value = None if model.step is None else value_at(trial, model.step, history.metric)
    fields = {"trial": trial.id, "step": model.step, "value": value, "checkpoint": model.folder}
    return fields, model.passed_over


def _only_best(history: History) -> TrialRecord:
    """Return the best trial.

    Raises NoBestTrial if no trial has a value, or if several trials are on a front.
    """
    if len(history.objectives) == 1:
        return history.best
    if not history.front:
        raise NoBestTrial(history.why_no_best())
    front = ", ".join(str(trial.id) for trial in history.front)
    raise NoBestTrial(
        f"the study has {len(history.objectives)} objectives and no single best trial; choose one with --trial N: "
        f"{front}"
    )
