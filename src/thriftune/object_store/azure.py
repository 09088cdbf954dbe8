"""Connect to Azure Blob Storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thriftune.errors import SettingError
from thriftune.object_store.urls import ObjectUrl

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

CREDENTIALS = (
    "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, set "
    "AZURE_USE_AZURE_CLI=true after `az login`, or give the machine an identity"
)

_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that every copy of Azure's emulator has; Azure publishes it."""

_ACCOUNT_VARIABLES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_KEY_VARIABLES = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_KEY",
)
_SAS_VARIABLES = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_ENDPOINT_VARIABLES = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def settings(url: ObjectUrl, environ: Mapping[str, str]) -> dict[str, str]:
    """Return obstore's settings: account_name, endpoint, and the key or SAS token if the environment has one.

    The URL's options come first, then the variables, then AZURE_STORAGE_CONNECTION_STRING.
    """
    connection = _connection_string(environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    found = {
        "account_name": url.options.get("account")
        or _first(environ, _ACCOUNT_VARIABLES)
        or connection["AccountName"],
        "endpoint": url.options.get("endpoint")
        or _first(environ, _ENDPOINT_VARIABLES)
        or connection["BlobEndpoint"],
        "account_key": _first(environ, _KEY_VARIABLES) or connection["AccountKey"],
        "sas_key": _first(environ, _SAS_VARIABLES) or connection["SharedAccessSignature"],
    }
    if found["account_name"] == _EMULATOR_ACCOUNT and not found["sas_key"]:
        found["account_key"] = found["account_key"] or _EMULATOR_KEY
    if not found["account_name"]:
        raise SettingError(
            "storage: az:// needs a storage account; add ?account=NAME, or set AZURE_STORAGE_ACCOUNT_NAME"
        )
    return {name: value for name, value in found.items() if value}


def connect(url: ObjectUrl, environ: Mapping[str, str], client_options: Mapping[str, Any]) -> Client:
    """Return obstore's client of a container."""
    from obstore.store import AzureStore

    return AzureStore(
        url.bucket,
        config=settings(url, environ),  # type: ignore[arg-type]  # built step by step
        client_options=client_options,  # type: ignore[arg-type]
        retry_config={"max_retries": 0},
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _connection_string(text: str) -> dict[str, str]:
    parts = dict.fromkeys(("AccountName", "AccountKey", "BlobEndpoint", "SharedAccessSignature"), "")
    for part in text.split(";"):
        name, _, value = part.partition("=")
        parts[name.strip()] = value.strip()
    if parts.get("UseDevelopmentStorage") == "true":
        parts["AccountName"] = _EMULATOR_ACCOUNT
        parts["BlobEndpoint"] = f"http://127.0.0.1:10000/{_EMULATOR_ACCOUNT}"
    return parts
