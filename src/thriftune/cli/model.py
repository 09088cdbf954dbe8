"""`thriftune best --checkpoint` and `--model`: where the model of a study is, and a copy of it."""

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
    """Add the options that give_model() answers."""
    for option in (
        click.option("--trial", "number", type=int, metavar="N", help="Of trial N, instead of the best one."),
        click.option("--to", type=click.Path(path_type=Path), metavar="FOLDER", help="Copy the model there."),
        click.option("--model", is_flag=True, help="Print the folder of the best saved model of all trials."),
        click.option("--checkpoint", is_flag=True, help="Print the folder of the best trial's model."),
    ):
        command = option(command)
    return command


def give_model(
    history: History, trial: TrialRecord | None, *, model: bool, to: Path | None, as_json: bool
) -> None:
    """Print the folder of a model, alone on its line, or as JSON; with `to`, copy it there and print that.

    `model`: the best of all saved ones. `trial`: whose model, if not the best trial's.
    """
    told: dict[str, Any]
    if model:
        told, passed_over = _best_model(history)
    else:
        told, passed_over = _model_of(_only_best(history) if trial is None else trial, history)
    for sentence in passed_over:
        click.echo(sentence, err=True)
    folder = told["checkpoint"]
    if to is not None:
        folder = copy_model(folder, to)
    if as_json:
        print_json({**told, "checkpoint": str(folder)})
    else:
        click.echo(folder)


def _best_model(history: History) -> tuple[dict[str, Any], tuple[str, ...]]:
    found, passed_over = find_best_model(history)
    if found is None:
        raise why_no_best_model(history)
    told = {"trial": found.trial.id, "step": found.step, "value": found.value, "checkpoint": found.checkpoint}
    return told, passed_over


def _model_of(trial: TrialRecord, history: History) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = find_model(trial)
    if found.folder is None:
        raise NoCheckpoint(" ".join((*found.passed_over, why_no_model(trial))))
    value = None if found.step is None else value_at(trial, found.step, history.metric)
    told = {"trial": trial.id, "step": found.step, "value": value, "checkpoint": found.folder}
    return told, found.passed_over


def _only_best(history: History) -> TrialRecord:
    if len(history.objectives) == 1:
        return history.best
    if not history.front:
        raise NoBestTrial(history.why_no_best())
    front = ", ".join(str(trial.id) for trial in history.front)
    raise NoBestTrial(f"there are {len(history.objectives)} objectives; say whose model: --trial N of {front}")
