"""Tests that a machine gets a study's code and local packages, from each kind of object store."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.launch.test_project_archive import STORE, target_in
from tests.support.object_servers import faulty
from tests.support.package_index import add_wheel, package_index
from tests.support.projects import editable, empty_site, install, source, write
from thriftune.engines import project_code
from thriftune.engines.project_code import enter_project, unpack
from thriftune.errors import SettingError
from thriftune.launch.send_code import send_code
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import StoreUnavailable
from thriftune.object_store.urls import is_object_url, parse_object_url


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_site(tmp_path, monkeypatch)


def below(url: str, name: str) -> str:
    """Return the URL of a place below this one."""
    return str(parse_object_url(url).child(name)) if is_object_url(url) else f"{url}/{name}"


def test_a_machine_fetches_what_was_sent(site: Path, tmp_path: Path, object_url: str) -> None:
    install(site, "first", {"url": "https://x/y.git", "vcs_info": {}})
    project = write(tmp_path / "project", "train.py", "package/module.py", "run")
    (project / "train.py").write_text("import first")
    (project / "run").chmod(0o755)
    (project / "link").symlink_to("package")
    target = target_in(project, kind="function")
    study = below(object_url, "studies/1")
    archive = send_code(target, None, object_url, study, STORE, pytest.fail)
    assert send_code(target, None, object_url, study, STORE, pytest.fail) == archive
    keys = [each.key for each in open_objects(object_url).list_objects()]
    assert keys == [f"code/{archive['hash']}.zip", "studies/1/code.json", *archive["wheels"]]
    folders = unpack(object_url, json.loads(json.dumps(archive)))
    assert (folders.root / "link/module.py").read_text() == "package/module.py"
    assert (folders.root / "run").stat().st_mode & 0o777 == 0o755
    assert (Path(folders.packages[0]) / "first/__init__.py").read_text() == "value = 'first'\n"


def test_a_store_that_cannot_be_reached_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = target_in(write(tmp_path / "project", "train.py"), kind="function")
    archive = send_code(target, None, s3_url, below(s3_url, "studies/1"), STORE, pytest.fail)
    with faulty(s3_url) as server:
        server.refuse()
        monkeypatch.setattr(project_code, "open_objects", functools.partial(open_objects, retry_seconds=0.1))
        with pytest.raises(StoreUnavailable):
            unpack(server.url, archive)
    assert [path for path in (tmp_path / "cache/thriftune/code").iterdir() if path.is_dir()] == []
    assert unpack(s3_url, archive).root.is_dir()


def test_a_machine_imports_the_project_and_its_local_packages(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "first", {"url": "https://x/y.git", "vcs_info": {}}, ("second",))
    install(site, "second", editable(source(tmp_path / "code", "second")))
    project = write(tmp_path / "project", "train.py")
    (project / "train.py").write_text("import first, second, numpy\nprint(first.value, second.value)\n")
    url = (tmp_path / "objects").as_uri()
    target = target_in(project, kind="function", where="train.py:train")
    archive = send_code(target, None, url, f"{url}/studies/1", STORE, pytest.fail)
    keys = [each.key for each in open_objects(url).list_objects()]
    assert [key.partition("/")[0] for key in keys] == ["code", "studies", "wheels", "wheels"]
    assert archive["versions"] == {"numpy": version("numpy")}
    assert send_code(target, None, url, f"{url}/studies/1", STORE, pytest.fail) == archive
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "machine"))
    folders = unpack(url, json.loads(json.dumps(archive)))
    assert folders.remarks == []
    code = "import sys; sys.path[:0] = sys.argv[1:]; import train"
    process = subprocess.run(
        [sys.executable, "-c", code, *folders.paths],
        cwd=folders.working_folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "first second\n"


def test_a_failed_build_uploads_nothing(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "https://x/y.git", "vcs_info": {}}, ("second",))
    install(site, "second", editable(source(tmp_path / "code", "second", backend="no_such_backend")))
    project = write(tmp_path / "project", "train.py")
    (project / "train.py").write_text("import first")
    url = (tmp_path / "objects").as_uri()
    with pytest.raises(SettingError, match=r"second .* cannot be built"):
        send_code(target_in(project, kind="function"), None, url, f"{url}/studies/1", STORE, pytest.fail)
    assert list(open_objects(url).list_objects()) == []


def test_a_package_whose_folder_is_gone_is_refused(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "https://x/y.git", "vcs_info": {}}, ("second",))
    install(site, "second", editable(tmp_path / "gone"))
    project = write(tmp_path / "project", "train.py")
    (project / "train.py").write_text("import first")
    url = (tmp_path / "objects").as_uri()
    with pytest.raises(SettingError, match=r"second .* the folder .* is gone: .*/gone; install it again"):
        send_code(target_in(project, kind="function"), None, url, f"{url}/studies/1", STORE, pytest.fail)
    assert list(open_objects(url).list_objects()) == []


def test_a_study_that_is_resumed_elsewhere_uses_its_stored_code(tmp_path: Path) -> None:
    storage, study = (f"file://{tmp_path}/{name}" for name in ("objects", "objects/studies/1"))
    target = target_in(write(tmp_path / "project", "train.py"))
    said: list[str] = []
    sent = send_code(target, None, storage, study, STORE, said.append)
    (warning,) = said  # this process has imported modules of other folders
    assert warning.startswith("modules that you have imported are not sent to other machines: ")
    said.clear()
    (tmp_path / "project").rename(tmp_path / "gone")
    assert send_code(target, None, storage, study, STORE, said.append) == sent
    assert said == [
        f"the folder {tmp_path}/project is not on this machine; trials use the code that was stored with the study"
    ]
    with pytest.raises(SettingError, match=rf"project with the code .* no copy of it is in {storage}; resume"):
        send_code(target, None, storage, f"{storage}/studies/2", STORE, pytest.fail)


def test_a_machine_installs_packages_that_it_lacks(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = package_index(tmp_path / "index", monkeypatch)
    install(site, "first", {"url": "https://x/y.git", "vcs_info": {}}, ("second",))
    install(site, "second", None, ("third",))
    install(site, "third", None)
    for name in ("second", "third"):
        add_wheel(index, name)
    project = write(tmp_path / "project", "train.py")
    (project / "train.py").write_text("import first, numpy\n")
    url = (tmp_path / "objects").as_uri()
    target = target_in(project, kind="function", where="train.py:train")
    archive = json.loads(json.dumps(send_code(target, None, url, f"{url}/studies/1", STORE, pytest.fail)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "machine"))
    assert unpack(url, archive).installed == ""  # it has them all
    assert not (tmp_path / "machine/thriftune/packages").exists()
    site.rename(tmp_path / "gone")
    monkeypatch.setattr("thriftune.engines.install_packages._QUICK_SECONDS", -1.0)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "given")
    (remark,) = enter_project({"archive": archive})
    assert remark.startswith("installed on ")
    assert remark.endswith(" s: second==1.5, third==1.5")
    first, given, installed = os.environ["PYTHONPATH"].split(os.pathsep)
    assert given == "given"
    assert first in sys.path[:3]
    assert sys.path[-1] == installed
    assert (Path(installed) / "second/__init__.py").read_text() == "value = '1.5'\n"
