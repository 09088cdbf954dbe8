"""URLs of object stores: what they name, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from thriftune.errors import SettingError
from thriftune.object_store.urls import ObjectUrl, folder_of, is_object_url, parse_object_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", ObjectUrl("s3", "bucket")),
        ("s3://bucket/", ObjectUrl("s3", "bucket")),
        ("s3://bucket/a/b/", ObjectUrl("s3", "bucket", "a/b")),
        ("gs://bucket/a%20b", ObjectUrl("gs", "bucket", "a b")),
        (
            "s3://bucket/a?region=eu-west-1&endpoint=http://127.0.0.1:9000",
            ObjectUrl("s3", "bucket", "a", {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}),
        ),
        ("az://container/a?account=mine", ObjectUrl("az", "container", "a", {"account": "mine"})),
    ],
)
def test_a_url_is_parsed_and_written_again(text: str, url: ObjectUrl) -> None:
    assert parse_object_url(text) == url
    assert parse_object_url(str(url)) == url


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "ftp://host/a",
            "storage: ftp:// is not supported; use s3://, gs://, az://, file:// or the path of a folder",
        ),
        ("s3://", "names no bucket; write s3://BUCKET/PREFIX"),
        ("s3:///a", "names no bucket"),
        ("s3://key:secret@bucket/a", "contains a user or password"),
        ("s3://bucket/a?regoin=x", "s3:// has no option 'regoin'; did you mean region?"),
        ("gs://bucket?region=x", "gs:// has no option 'region'; it may have endpoint"),
        ("s3://bucket/a?region=", "the option 'region' of s3:// is empty"),
        ("s3://bucket/a//b", "a prefix that object stores do not have"),
        ("s3://bucket/../b", "a prefix that object stores do not have"),
        ("s3://bucket/a#b", "a prefix that object stores do not have"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_its_password(text: str, error: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_object_url(text)
    assert error in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_child_keeps_the_options() -> None:
    url = parse_object_url("s3://bucket?region=x").child("a").child("b")
    assert str(url) == "s3://bucket/a/b?region=x"


def test_folders_are_no_object_stores(tmp_path: Path) -> None:
    assert folder_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert folder_of("x") == Path.cwd() / "x"
    assert not any(map(is_object_url, ("x", "/x", "file:///x", "sqlite:///x", "s3:/x")))
    assert is_object_url("s3://x")
    with pytest.raises(SettingError, match="is not a folder"):
        folder_of("file://host/x")
