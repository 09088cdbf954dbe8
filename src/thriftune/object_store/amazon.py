"""Connect to S3, and to servers that have its protocol."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.errors import MissingExtra, SettingError
from thriftune.object_store.urls import ObjectUrl

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or ?profile=, or give the machine a role"
)

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_DEFAULT_REGION = "us-east-1"


def endpoint_of(url: ObjectUrl, environ: Mapping[str, str]) -> str:
    """Return the server's address from the URL's option or the environment; empty for Amazon's own."""
    given = (environ.get(name, "") for name in _ENDPOINT_VARIABLES)
    return url.options.get("endpoint") or next((each for each in given if each), "")


def creates(endpoint: str) -> bool | None:
    """Return whether create-only writes work; None if only an attempt can tell: some servers ignore them."""
    return True if not endpoint or ".amazonaws.com" in endpoint else None


def connect(
    url: ObjectUrl, environ: Mapping[str, str], client_options: Mapping[str, Any], *, bulk_delete: bool = True
) -> Client:
    """Return obstore's client of a bucket. `bulk_delete`: delete many objects in one request."""
    from obstore.store import S3Store

    provider = _profile_provider(url, environ)
    region = url.options.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {
        # Those who read content verify it by hashes of their own. A signature would hash it once more.
        "unsigned_payload": True,
        "disable_bulk_delete": not bulk_delete,
    }
    if region or provider is None or "region" not in provider.config:
        config["region"] = region or _DEFAULT_REGION
    endpoint = endpoint_of(url, environ)
    if endpoint:
        config["aws_endpoint_url_s3"] = endpoint  # the one of obstore's names that replaces all variables
    return S3Store(
        url.bucket,
        config=config,  # type: ignore[arg-type]  # built step by step
        client_options=client_options,  # type: ignore[arg-type]
        retry_config={"max_retries": 0},
        credential_provider=provider,
    )


def _profile_provider(url: ObjectUrl, environ: Mapping[str, str]) -> Any:
    """Return boto3's provider for a profile of AWS's files; None if obstore finds the credentials itself."""
    profile = url.options.get("profile", "")
    if not profile:
        if any(environ.get(name) for name in _OTHER_CREDENTIALS):
            return None
        profile = environ.get("AWS_PROFILE", "")
        if not profile and not _has_default_profile(environ):
            return None
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        name = profile or "default"
        raise MissingExtra(
            f"storage: reading the AWS profile {name!r} needs boto3; pip install boto3, or set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY"
        ) from None
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=profile or None))
    except (BotoCoreError, ValueError) as error:
        raise SettingError(
            f"storage: the AWS profile {profile or 'default'!r} cannot be used: {error}; correct ~/.aws/config "
            "and ~/.aws/credentials, or choose another profile"
        ) from error


def _has_default_profile(environ: Mapping[str, str]) -> bool:
    default = Path(environ.get("HOME", "/nonexistent"), ".aws", "credentials")
    path = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or default)
    parser = configparser.RawConfigParser()
    try:
        parser.read(path)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return False
    return parser.has_section("default")
