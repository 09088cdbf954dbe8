"""Where the credentials, endpoints and regions of object stores come from."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_servers import (
    ACCESS_KEY,
    SECRET_KEY,
    FaultyServer,
    Servers,
    faulty,
    hide_credentials,
    new_gcs_url,
)
from thriftune.errors import MissingExtra, SettingError
from thriftune.object_store import amazon, azure, google
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied
from thriftune.object_store.urls import parse_object_url


@pytest.fixture
def proxy(s3_url: str) -> Iterator[FaultyServer]:
    with faulty(s3_url) as server:
        yield server


@pytest.fixture
def profiles(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a bucket whose credentials are in AWS's files alone: in [good] and [default]."""
    hide_credentials(monkeypatch)
    path = tmp_path / "credentials"
    good = f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    path.write_text(
        f"[default]\n{good}[good]\n{good}[bad]\naws_access_key_id = AKIAX\naws_secret_access_key = x\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    return s3_url


def test_a_profile_of_the_url(profiles: str) -> None:
    open_objects(f"{profiles}&profile=good").put("a", b"1")
    with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
        open_objects(f"{profiles}&profile=bad").put("a", b"1")


def test_a_profile_of_the_url_comes_before_keys(profiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    open_objects(f"{profiles}&profile=good").put("a", b"1")


def test_a_profile_of_the_environment(profiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "good")
    open_objects(profiles).put("a", b"1")
    monkeypatch.setenv("AWS_PROFILE", "bad")
    with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
        open_objects(profiles).put("a", b"1")


def test_the_default_profile(profiles: str) -> None:
    open_objects(profiles).put("a", b"1")


def test_keys_in_the_environment_come_before_its_profile(profiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "bad")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    open_objects(profiles).put("a", b"1")


def test_a_profile_that_does_not_exist(profiles: str) -> None:
    with pytest.raises(SettingError, match=r"the AWS profile 'none' cannot be used: .*could not be found"):
        open_objects(f"{profiles}&profile=none")


def test_a_profile_without_boto3(profiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "boto3")
    with pytest.raises(MissingExtra, match="reading the AWS profile 'good' needs boto3; pip install boto3"):
        open_objects(f"{profiles}&profile=good")


def test_obstore_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "thriftune.object_store.obstore_objects", raising=False)
    _hide(monkeypatch, "obstore")
    with pytest.raises(MissingExtra, match=r"pip install 'thriftune\[storage\]'"):
        open_objects(str(tmp_path))


def test_no_credentials(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's credentials are asked of a server that refuses."""
    hide_credentials(monkeypatch)
    with faulty(s3_url) as nowhere:
        nowhere.answer(404, "NoCredentials")
        endpoint = parse_object_url(nowhere.url).options["endpoint"]
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", endpoint)
        with pytest.raises(AccessDenied, match="no credentials were found; set AWS_ACCESS_KEY_ID"):
            open_objects(s3_url, retry_seconds=0).put("a", b"1")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_endpoint_of_the_environment(s3_url: str, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    bare, _, options = s3_url.partition("?")
    monkeypatch.setenv(variable, parse_object_url(s3_url).options["endpoint"])
    open_objects(bare).put("a", b"1")
    assert open_objects(s3_url).get("a") == b"1"
    assert options


def test_the_endpoint_of_the_url_comes_first(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    open_objects(s3_url).put("a", b"1")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "nonsense", "ftp://host", "http://"])
def test_a_wrong_endpoint(endpoint: str) -> None:
    with pytest.raises(SettingError, match="is no address of a server; write https://HOST or http://HOST:PORT"):
        open_objects(f"s3://bucket?endpoint={endpoint}")


def test_the_endpoint_of_google() -> None:
    url = parse_object_url("gs://bucket")
    assert google.endpoint_of(url, {}) == ""
    assert google.endpoint_of(url, {"STORAGE_EMULATOR_HOST": "http://h:1"}) == "http://h:1"
    given = parse_object_url("gs://bucket?endpoint=http://h:2")
    assert google.endpoint_of(given, {"STORAGE_EMULATOR_HOST": "http://h:1"}) == "http://h:2"


def test_a_file_of_google_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_credentials(monkeypatch)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(
        SettingError, match=r"gs://bucket cannot be opened: .*/nonexistent/key.json.*; run `gcloud"
    ):
        open_objects("gs://bucket")


def test_no_credentials_of_google_are_needed_at_an_open_server(
    object_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_credentials(monkeypatch)
    url = new_gcs_url(object_servers)
    open_objects(url).put("a", b"1")
    monkeypatch.setenv("GOOGLE_ACCESS_TOKEN", "token")
    assert open_objects(url).get("a") == b"1"


def test_create_only_writes_are_relied_upon_at_amazon_alone() -> None:
    assert amazon.creates("") is True
    assert amazon.creates("https://s3.eu-west-1.amazonaws.com") is True
    assert amazon.creates("https://minio.example.com") is None


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("az://c?account=a", {}, {"account_name": "a"}),
        ("az://c", {"AZURE_STORAGE_ACCOUNT_NAME": "a"}, {"account_name": "a"}),
        ("az://c?account=b", {"AZURE_STORAGE_ACCOUNT": "a"}, {"account_name": "b"}),
        ("az://c?account=a", {"AZURE_STORAGE_KEY": "k"}, {"account_name": "a", "account_key": "k"}),
        ("az://c?account=a", {"AZURE_STORAGE_SAS_TOKEN": "s"}, {"account_name": "a", "sas_key": "s"}),
        (
            "az://c",
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=k==;BlobEndpoint=https://h/a"},
            {"account_name": "a", "account_key": "k==", "endpoint": "https://h/a"},
        ),
    ],
)
def test_the_settings_of_azure(text: str, environ: dict[str, str], expected: dict[str, str]) -> None:
    assert azure.settings(parse_object_url(text), environ) == expected


def test_the_emulator_of_azure() -> None:
    found = azure.settings(
        parse_object_url("az://c"), {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}
    )
    assert found["account_name"] == "devstoreaccount1"
    assert found["endpoint"] == "http://127.0.0.1:10000/devstoreaccount1"
    assert found["account_key"]


def test_azure_needs_an_account() -> None:
    with pytest.raises(SettingError, match=r"add \?account=NAME, or set AZURE_STORAGE_ACCOUNT_NAME"):
        azure.settings(parse_object_url("az://container"), {})


def _hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Let the import of a package fail as if it were not installed."""
    real = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
