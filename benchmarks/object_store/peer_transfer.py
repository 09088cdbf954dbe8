"""Uploads and downloads a folder with s3fs or boto3; runs in the environment of that peer.

    python peer_transfer.py s3fs|boto3 ENDPOINT BUCKET

Reads lines "put FOLDER KEY" and "get KEY FOLDER", and answers each with the seconds that it took. Imports only the
standard library and the peer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Transfer = Callable[[str, str], object]


def s3fs_transfers(endpoint: str, bucket: str) -> tuple[Transfer, Transfer]:
    """Return put(folder, key) and get(key, folder), with the settings that s3fs recommends for folders."""
    import s3fs

    system = s3fs.S3FileSystem(endpoint_url=endpoint, use_listings_cache=False)

    def put(folder: str, key: str) -> None:
        system.put(f"{folder}/", f"{bucket}/{key}/", recursive=True)

    def get(key: str, folder: str) -> None:
        # rclone's server answers ranges without the checksum that s3fs expects, so objects come whole.
        system.get(f"{bucket}/{key}/", f"{folder}/", recursive=True, max_concurrency=1)

    return put, get


def boto3_transfers(endpoint: str, bucket: str) -> tuple[Transfer, Transfer]:
    """Return put(folder, key) and get(key, folder), with the multipart transfers of boto3: ten threads in all."""
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = boto3.client("s3", endpoint_url=endpoint)
    config = TransferConfig(multipart_chunksize=32 << 20, max_concurrency=5)

    def put(folder: str, key: str) -> None:
        def upload(path: Path) -> None:
            client.upload_file(str(path), bucket, f"{key}/{path.name}", Config=config)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(upload, [path for path in Path(folder).rglob("*") if path.is_file()]))

    def get(key: str, folder: str) -> None:
        def download(found: str) -> None:
            client.download_file(bucket, found, f"{folder}/{Path(found).name}", Config=config)

        Path(folder).mkdir(parents=True)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{key}/")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(download, [each["Key"] for page in pages for each in page["Contents"]]))

    return put, get


def main(peer: str, endpoint: str, bucket: str) -> None:
    put, get = {"s3fs": s3fs_transfers, "boto3": boto3_transfers}[peer](endpoint, bucket)
    print("ready", flush=True)
    for line in sys.stdin:
        action, first, second = line.split()
        started = time.perf_counter()
        (put if action == "put" else get)(first, second)
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
