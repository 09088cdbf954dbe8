"""Run no-op trials with Optuna in two processes that share a stored study, as its documentation recommends.

See noop_thriftune.py for the task. This script runs in Optuna's environment and imports nothing of this project.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import optuna
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

NAME = "noop"


def objective(trial: optuna.Trial) -> float:
    trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    trial.suggest_int("width", 16, 256, log=True)
    trial.suggest_categorical("act", ["relu", "tanh"])
    return time.time()


def storage(kind: str, folder: Path) -> RDBStorage | JournalStorage:
    if kind == "journal":
        return JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    # With the timeout, a process waits for the other's lock instead of failing.
    return RDBStorage(f"sqlite:///{folder / 'optuna.db'}", engine_kwargs={"connect_args": {"timeout": 60}})


def work(kind: str, folder: Path, trials: int, start_together: Barrier) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler()
    study = optuna.load_study(study_name=NAME, storage=storage(kind, folder), sampler=sampler)
    start_together.wait()
    study.optimize(objective, n_trials=trials)


def main(kind: str, trials: int, folder: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(study_name=NAME, storage=storage(kind, folder))
    context = multiprocessing.get_context("fork")
    start_together = context.Barrier(2)
    shares = (trials // 2, trials - trials // 2)
    workers = [context.Process(target=work, args=(kind, folder, share, start_together)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ended = optuna.load_study(study_name=NAME, storage=storage(kind, folder)).trials
    print(json.dumps([trial.value for trial in ended if trial.value is not None]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
