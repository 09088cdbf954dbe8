"""Connect to Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thriftune.object_store.urls import ObjectUrl

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

CREDENTIALS = (
    "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS, or give the machine a "
    "service account"
)

_TOKEN_VARIABLES = ("GOOGLE_BEARER_TOKEN", "GOOGLE_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN")
_ENDPOINT_VARIABLES = ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL")


def endpoint_of(url: ObjectUrl, environ: Mapping[str, str]) -> str:
    """Return the server's address from the URL's option or the environment; empty for Google's own."""
    given = (environ.get(name, "") for name in _ENDPOINT_VARIABLES)
    return url.options.get("endpoint") or next((each for each in given if each), "")


def connect(url: ObjectUrl, environ: Mapping[str, str], client_options: Mapping[str, Any]) -> Client:
    """Return obstore's client of a bucket."""
    from obstore.store import GCSStore

    config: dict[str, Any] = {}
    endpoint = endpoint_of(url, environ)
    if endpoint:
        config["base_url"] = endpoint
    token = next((environ[name] for name in _TOKEN_VARIABLES if environ.get(name)), "")
    if token:
        config["bearer_token"] = token
    elif endpoint.startswith("http://"):
        config["bearer_token"] = "none"  # a test server; real credentials are not sent over an open connection
    return GCSStore(
        url.bucket,
        config=config,  # type: ignore[arg-type]  # built step by step
        client_options=client_options,  # type: ignore[arg-type]
        retry_config={"max_retries": 0},
    )
