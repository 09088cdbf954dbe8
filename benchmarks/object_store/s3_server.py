"""Runs rclone's S3 server on loopback for benchmarks."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ACCESS_KEY, SECRET_KEY = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"  # Amazon's examples
REGION = "us-east-1"


@contextlib.contextmanager
def s3_server(folder: Path, bucket: str) -> Iterator[str]:
    """Serve a folder that has an empty bucket, and yield the server's endpoint. Sets the credentials meanwhile."""
    (folder / bucket).mkdir(parents=True)
    rclone = Path(sys.executable).with_name("rclone")
    command = [str(rclone), "serve", "s3", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--addr", "127.0.0.1:0"]
    command += ["--vfs-cache-mode", "off", "--config", os.devnull, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    before = dict(os.environ)
    os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"s3 server on \[(http://[\d.:]+)/?\]", line):
                yield found[1]
                return
        raise RuntimeError("rclone's S3 server did not start")
    finally:
        process.kill()
        process.wait()
        os.environ.clear()
        os.environ |= before


def bucket_url(endpoint: str, bucket: str) -> str:
    """Return the URL of a bucket at this server."""
    return f"s3://{bucket}?endpoint={endpoint}&region={REGION}"
