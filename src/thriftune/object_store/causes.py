"""Translate the errors of obstore into the errors of the protocol, in plain words.

obstore reports most failures as a GenericError. Its text has the status, the server's answer and the cause, so
this module reads that text. tests/object_store/test_errors.py provokes the causes at a real server.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from thriftune.object_store.protocol import AccessDenied, ObjectMissing, ObjectStoreError, StoreUnavailable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_REGION = re.compile(r"<Region>([\w-]+)</Region>")
_METADATA_SERVICES = (
    "169.254.169.254",
    "169.254.170.",
    "metadata.google.internal",
    "/latest/api/token",
    "/latest/meta-data/",
    "performing token request",
)
"""Signs of a request for credentials, not for an object."""

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "RequestExpired"}
_WRONG_CREDENTIALS = {
    "AuthenticationFailed",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidToken",
    "NoAuthenticationInformation",
    "SignatureDoesNotMatch",
}
_THROTTLED = {"SlowDown", "ServerBusy", "Throttling", "TooManyRequests", "RequestLimitExceeded"}
_WRONG_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_MAY_PASS = {"RequestTimeout", "OperationAborted", "InternalError"}
_MAY_PASS_STATUS = {408, 409, 429}

_CONNECTION_CAUSES = (
    ("dns error", "the server's name cannot be resolved"),
    ("Connection refused", "the server refused the connection"),
    ("TimedOut", "the server did not answer in time"),
    ("kind: Timeout", "the server did not answer in time"),
    ("kind: Connect", "no connection to the server"),
    ("kind: Interrupted", "the connection was cut"),
    ("Incomplete", "the connection was cut"),
    ("error sending request", "the connection was cut"),
    ("body error", "the connection was cut"),
)
"""A sign in the text, and the cause in plain words. The first one that is found counts."""

_FOLDER_CAUSES = (
    ("No space left", "the disk is full; free some space"),
    ("Disk quota exceeded", "the disk quota is used up; free some space"),
    ("File name too long", "the file system does not permit names that long"),
    ("Read-only file system", "the file system is read-only; choose another folder"),
    ("Not a directory", "a part of the path is a file; choose another folder"),
    ("Is a directory", "there is a folder of this name"),
)


class Unsupported(ObjectStoreError):
    """The server does not implement the request."""


class NoRanges(ObjectStoreError):
    """The server does not send ranges of objects, or not as the protocol wants it."""


class Destination(NamedTuple):
    """Where requests go, for the texts of errors.

    - `url`: the URL as text.
    - `bucket`: the provider's word for a bucket.
    - `credentials`: a clause that says how to provide credentials.
    """

    url: str
    bucket: str
    credentials: str


def translated(error: Exception, action: str, place: Destination) -> ObjectStoreError:
    """Return the protocol's error for an error of obstore.

    `action`: what failed, such as "writing studies/7/a.json".
    """
    text = str(error)
    status, code = _status(text), _code(text)
    cause = _access_cause(error, status, code, place)
    failed = f"{action} failed in {place.url}: "
    if cause:
        return AccessDenied(failed + cause)
    if code in _NO_BUCKET or (isinstance(error, FileNotFoundError) and action.startswith("listing")):
        return ObjectStoreError(f"{failed}the {place.bucket} does not exist; create it, or correct the URL")
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(f"{failed}there is no such object")
    if code in _WRONG_REGION or "incorrectly configured region" in text:
        found = _REGION.search(text)
        region = found.group(1) if found else "REGION"
        return ObjectStoreError(
            f"{failed}the {place.bucket} is in another region; add ?region={region} to the URL"
        )
    if "non-partial response" in text:
        return NoRanges(f"{failed}the server does not send ranges of objects")
    if status == 501 or code == "NotImplemented" or type(error).__name__ == "NotSupportedError":
        return Unsupported(f"{failed}the server does not implement it{_answer(status, code)}")
    if code in _THROTTLED or status in (429, 503):
        return StoreUnavailable(f"{failed}the server is overloaded{_answer(status, code)}; try again later")
    if status >= 500 or status in _MAY_PASS_STATUS or code in _MAY_PASS:
        return StoreUnavailable(f"{failed}the server failed{_answer(status, code)}; try again later")
    if status:
        return ObjectStoreError(f"{failed}the server refused it{_answer(status, code)}: {first_line(error)}")
    for sign, cause in _FOLDER_CAUSES:
        if sign in text:
            return ObjectStoreError(failed + cause)
    for sign, cause in _CONNECTION_CAUSES:
        if sign in text:
            return StoreUnavailable(f"{failed}{cause}; check the network, and the endpoint if you have set one")
    return ObjectStoreError(failed + first_line(error))


def _access_cause(error: Exception, status: int, code: str, place: Destination) -> str:
    """Return what is wrong with credentials or permissions, and the way out; empty if something else is."""
    text = str(error)
    answer = _answer(status, code)
    if status < 500 and any(sign in text for sign in _METADATA_SERVICES):
        return f"no credentials were found; {place.credentials}"
    if code in _EXPIRED:
        return f"the credentials have expired{answer}; renew them"
    if code in _WRONG_CREDENTIALS:
        return f"the credentials are not valid{answer}; {place.credentials}"
    if code == "RequestTimeTooSkewed":
        return f"this machine's clock is wrong{answer}; correct it, for example with NTP"
    kind = type(error).__name__
    if kind == "UnauthenticatedError" or status == 401:
        return f"the server wants valid credentials{answer}; {place.credentials}"
    if kind == "PermissionDeniedError" or status == 403 or code == "AccessDenied":
        return f"the credentials do not permit it{answer}; grant the permission"
    if (
        status == 400 and "performing HEAD" in text
    ):  # such an answer has no code; S3 gives this one for expired tokens
        return f"the server gave no reason{answer}; the credentials may have expired: renew them"
    if "Permission denied" in text or "Operation not permitted" in text:
        return "this user may not; change the folder's permissions, or choose another folder"
    return ""


def _status(text: str) -> int:
    found = _STATUS.search(text)
    return int(found.group(1)) if found else 0


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found.group(1) or found.group(2) if found else ""


def _answer(status: int, code: str) -> str:
    parts = ([f"status {status}"] if status else []) + ([code] if code else [])
    return f" ({', '.join(parts)})" if parts else ""


def first_line(error: Exception) -> str:
    """Return the part of obstore's text that is for people."""
    return str(error).partition("\n")[0]
