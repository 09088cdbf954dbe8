"""Run moto's S3 server, and a small layer over it that speaks the XML API of Google Cloud Storage.

Prints both ports as JSON when they accept connections, and ends when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Environ = dict[str, Any]
_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
"""moto does not verify signatures, but lets strangers do less."""

App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


def google_layer(app: App) -> App:
    """Return an application that maps requests of Google's XML API to S3's."""

    def answer(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = _AUTHORIZATION
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", "") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        for name in ("RAW_URI", "REQUEST_URI"):  # obstore encodes even the hyphens of a bucket's name
            _, bucket, *rest = environ[name].split("/", 2)
            environ[name] = "/".join(("", unquote(bucket), *rest))
        source = environ.pop("HTTP_X_GOOG_COPY_SOURCE", "")
        if source:
            environ["HTTP_X_AMZ_COPY_SOURCE"] = source
        return app(environ, start_response)

    return answer


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def main() -> None:
    s3 = DomainDispatcherApplication(create_backend_app)
    ports = {}
    for name, app in (("moto", s3), ("gcs", google_layer(s3))):
        server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports[name] = server.server_port
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
