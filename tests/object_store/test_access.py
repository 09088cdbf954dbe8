"""The check of an object store before a study starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_servers import FaultyServer, faulty
from thriftune.errors import SettingError
from thriftune.object_store.access import check_access
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectStoreError, StoreUnavailable


@pytest.fixture
def proxy(s3_url: str) -> Iterator[FaultyServer]:
    with faulty(f"{s3_url.replace('?', '/studies?', 1)}") as server:
        yield server


def test_a_store_that_works_passes_and_stays_empty(object_url: str) -> None:
    objects = open_objects(object_url)
    check_access(objects)
    assert list(objects.list_objects()) == []


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("PUT", "", "cannot write objects; the permission for it is s3:PutObject"),
        ("GET", "probe", "cannot read objects; the permission for it is s3:GetObject"),
        ("GET", "list-type=2", "cannot list objects; the permission for it is s3:ListBucket"),
        ("HEAD", "missing", "cannot look for objects; the permission for it is s3:ListBucket"),
        ("POST", "delete", "cannot delete objects; the permission for it is s3:DeleteObject"),
    ],
)
def test_the_missing_permission_is_named(proxy: FaultyServer, method: str, path: str, error: str) -> None:
    if path == "probe":  # the list names the probe too
        proxy.answer(403, "AccessDenied", method=method, path="/studies/.thriftune-probe-")
    else:
        proxy.answer(403, "AccessDenied", method=method, path=path)
    with pytest.raises(AccessDenied, match=error) as raised:
        check_access(open_objects(proxy.url))
    assert proxy.url in str(raised.value)


def test_a_probe_is_deleted_although_it_cannot_be_read(proxy: FaultyServer) -> None:
    proxy.answer(403, "AccessDenied", method="GET", path="/studies/.thriftune-probe-")
    with pytest.raises(AccessDenied):
        check_access(open_objects(proxy.url))
    proxy.mend()
    assert list(open_objects(proxy.url).list_objects()) == []


def test_a_missing_bucket(s3_url: str) -> None:
    url = s3_url.replace("test-", "no-such-", 1)
    with pytest.raises(ObjectStoreError, match="the bucket does not exist; create it, or correct the URL"):
        check_access(open_objects(url))


def test_a_server_that_does_not_run(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    proxy.refuse()
    with pytest.raises(StoreUnavailable, match="refused the connection"):
        check_access(objects)


def test_a_server_that_does_not_answer(s3_credentials: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"s3://bucket?endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            check_access(open_objects(url))


def test_wrong_credentials(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWNEXAMPLE")
    with pytest.raises(
        AccessDenied, match=r"credentials are not valid .*InvalidAccessKeyId.*set AWS_ACCESS_KEY_ID"
    ):
        check_access(open_objects(s3_url))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(AccessDenied, match="cannot write objects"):
        check_access(open_objects(tmp_path.as_posix()))


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="cannot be created"):
        open_objects(str(tmp_path / "file" / "objects"))
