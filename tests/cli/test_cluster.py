"""`thriftune cluster template`: prints or writes the configuration of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import Result

from tests.cli.programs import invoke
from thriftune.clouds.ray.cluster_template import cluster_file
from thriftune.clouds.ray.own_wheel import wheel_name


def run_cli(*args: object, status: int = 0) -> Result:
    return invoke("cluster", *args, status=status)


def test_the_template_is_printed() -> None:
    assert run_cli("template", "aws").stdout == cluster_file("aws")
    assert run_cli("template", "GCP").stdout == cluster_file("gcp")


def test_options_change_the_template() -> None:
    options = ["--machine", "m5.xlarge", "--machine", "p3.2xlarge", "--market", "spot", "--most", 3]
    options += ["--region", "us-east-1", "--name", "mine", "--idle-minutes", 5]
    config = yaml.safe_load(run_cli("template", "aws", *options).stdout)
    assert list(config["available_node_types"]) == ["head", "m5.xlarge_spot", "p3.2xlarge_spot"]
    assert config["available_node_types"]["p3.2xlarge_spot"]["max_workers"] == 3
    assert (config["cluster_name"], config["idle_timeout_minutes"]) == ("mine", 5)


def test_an_existing_file_is_only_overwritten_with_force(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    result = run_cli("template", "aws", "--to", path)
    wheel = tmp_path / wheel_name()
    assert (result.stdout, path.read_text()) == ("", cluster_file("aws", wheel=wheel))
    assert sorted(tmp_path.iterdir()) == [path, wheel]
    assert f"wrote {path} and {wheel}; edit what the comments say, then: ray up {path}" in result.stderr
    refused = run_cli("template", "gcp", "--to", path, status=1)
    assert f"{path}: exists already; choose another file, or overwrite it with --force" in refused.stderr
    assert path.read_text() == cluster_file("aws", wheel=wheel)
    run_cli("template", "gcp", "--to", path, "--force")
    assert path.read_text() == cluster_file("gcp", wheel=wheel)


def test_force_is_refused_without_a_file() -> None:
    assert "--force is for --to FILE" in run_cli("template", "aws", "--force", status=1).stderr


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["aws", "--machine", "m5.xlrge"], 1, "error: m5.xlrge: is not in the catalog"),
        (["aws", "--machine", "n1-highcpu-16"], 1, "error: n1-highcpu-16: is a machine of GCP"),
        (["aws", "--region", "nowhere"], 1, "error: region: the catalog has no prices of AWS in nowhere"),
        (["aws", "--most", "0"], 1, "error: most: 0 is below 1"),
        (["azure"], 2, "'azure' is not one of 'aws', 'gcp'"),
        (["aws", "--market", "free"], 2, "'free' is not one of 'spot', 'on-demand', 'both'"),
        ([], 2, "Missing argument"),
    ],
)
def test_mistakes_are_reported(args: list[str], status: int, message: str) -> None:
    assert message in run_cli("template", *args, status=status).stderr


def test_no_file_is_written_after_a_mistake(tmp_path: Path) -> None:
    run_cli("template", "aws", "--machine", "m5.xlrge", "--to", tmp_path / "cluster.yaml", status=1)
    assert list(tmp_path.iterdir()) == []
    assert "No such file" in run_cli("template", "aws", "--to", tmp_path / "no" / "cluster.yaml", status=1).stderr


def test_the_help_describes_the_command() -> None:
    shown = run_cli("template", "--help").stdout
    for text in (
        "{aws|gcp}",
        "--machine NAME",
        "--idle-minutes",
        "m5.xlarge",
        "This command rents nothing",
        "--force",
    ):
        assert text in shown
    assert "template" in run_cli("--help").stdout
