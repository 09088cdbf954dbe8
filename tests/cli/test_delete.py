"""`thriftune delete`, and `thriftune stop` of a study that this process drives."""

from __future__ import annotations

from pathlib import Path

from tests.cli import studies
from tests.cli.programs import RunCli
from thriftune.store.opening import open_store
from thriftune.store.study_files import StudyFiles


def test_delete_asks_and_removes_the_files_of_the_study(run_cli: RunCli, finished: None, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    StudyFiles(folder, "0f").claim()
    (folder / "trials" / "0" / "checkpoints").mkdir(parents=True)
    (folder / "run").mkdir()
    (folder / "run" / "alive").touch()
    (folder / "function.pickle").touch()
    assert "Aborted" in run_cli("delete", "digits", answer="n\n", status=1).stderr
    assert "with all its trials and their checkpoints?" in run_cli("delete", "digits", status=1).stdout
    assert folder.exists()
    assert run_cli("delete", "digits", "--yes").stdout == "study 'digits' is deleted\n"
    assert not folder.exists()
    assert "there is no study 'digits'" in run_cli("show", "digits", status=1).stderr


def test_delete_keeps_files_that_the_study_did_not_make(run_cli: RunCli, finished: None, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    StudyFiles(folder, "0f").claim()
    (folder / "trials" / "0").mkdir(parents=True)
    (folder / "trials" / "notes").mkdir()
    (folder / "run").mkdir()
    (folder / "thesis.tex").touch()
    deleted = run_cli("delete", "digits", answer="y\n").stdout
    assert f"{folder} has links or files of others and stays" in deleted
    assert studies.relative_paths(folder) == ["thesis.tex", "trials", "trials/notes"]


def test_delete_does_not_follow_links(run_cli: RunCli, finished: None, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "digits", tmp_path / "elsewhere"
    StudyFiles(folder, "0f").claim()
    for name in ("trials", "run"):
        (elsewhere / name / "0").mkdir(parents=True)
        (folder / name).symlink_to(elsewhere / name)
    deleted = run_cli("delete", "digits", "--yes").stdout
    assert f"{folder} has links or files of others and stays" in deleted
    assert studies.relative_paths(elsewhere) == ["run", "run/0", "trials", "trials/0"]
    assert studies.relative_paths(folder) == ["run", "trials"]


def test_delete_does_not_follow_a_link_that_replaces_the_folder(
    run_cli: RunCli, finished: None, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "digits", tmp_path / "elsewhere"
    StudyFiles(elsewhere, "0f").claim()
    (elsewhere / "trials" / "0").mkdir(parents=True)
    folder.symlink_to(elsewhere)
    assert f"{folder} has links or files of others and stays" in run_cli("delete", "digits", "--yes").stdout
    assert folder.is_symlink()
    assert studies.relative_paths(elsewhere) == ["owner", "trials", "trials/0"]


def test_delete_is_refused_and_stop_requested_while_a_driver_runs(
    run_cli: RunCli, finished: None, store_path: Path
) -> None:
    with open_store(store_path) as store, store.drive("digits"):
        assert "is being run by process" in run_cli("delete", "digits", "--yes", status=1).stderr
        assert "requested that process" in run_cli("stop", "digits", "--no-wait").stdout
        assert store.take_requests("digits") == ["stop"]
    assert run_cli("stop", "digits").stdout == "study 'digits' is not running\n"
    with open_store(store_path) as store:
        assert store.take_requests("digits") == []
