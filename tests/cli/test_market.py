"""`thriftune market`: prices, lifetimes, fit, compare and catalog, on made-up records."""

from __future__ import annotations

import gzip
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.cli.programs import invoke, parse_json
from thriftune.cli.screen import busy
from thriftune.market import synthetic_lifetimes
from thriftune.market.catalog import Catalog

PRICES = """type,az,t,price
c5.large,us-east-1a,0,0.03
c5.large,us-east-1a,7200,0.09
c5.large,us-east-1a,10800,0.03
c5.large,us-east-1b,0,0.04
m9.odd,us-east-1a,0,1.5
m9.odd,us-east-1a,86400,1.5
"""


def run_cli(*args: object, status: int = 0) -> Result:
    return invoke("market", *args, status=status)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Write a record of the prices of three markets, and return its path."""
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    return path


@pytest.fixture(scope="module")
def lifetimes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a record of lifetimes: two sizes of preempted machines, and a type that was never preempted."""
    rng = np.random.default_rng(1)
    lines = ["machine_type,zone,lifetime_s,end_kind,hour_of_day"]
    for cores in (8, 16):
        for hours, ended in zip(*synthetic_lifetimes(40, rng, cores=cores), strict=True):
            lines.append(f"m-{cores},z1,{3600 * hours},{'preempted' if ended else 'stop'},12")
    lines += ["calm.large,z2,100,stop,3", "calm.large,z2,9000,stop,3"]
    path = tmp_path_factory.mktemp("market") / "lifetimes.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def has_chart(text: str) -> bool:
    """Tell whether the text has a chart, which is drawn in Braille characters."""
    return any("⠀" < character <= "⣿" for character in text)


# --- prices


def test_prices_lists_the_markets_of_a_file(prices: Path) -> None:
    shown = run_cli("prices", prices).stdout
    assert "3 markets" in shown
    (line,) = (line for line in shown.splitlines() if "c5.large" in line and "us-east-1a" in line)
    cells = ["3", "1970-01-01", "1970-01-02", "$0.0300", "$0.0300", "$0.0900", "2.0", "$0.0850"]
    assert line.split()[2:] == cells
    assert "m9.odd" in shown
    only = run_cli("prices", prices, "--zone", "us-east-1a", "--json")
    assert [one["type"] for one in parse_json(only.stdout)["markets"]] == ["c5.large", "m9.odd"]


def test_only_the_first_of_many_markets_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("type,az,t,price\n" + "".join(f"t{i},z,0,1\n" for i in range(70)))
    shown = run_cli("prices", path).stdout
    assert "and 10 more: choose with --type and --zone, or see all with --json" in shown
    assert len(parse_json(run_cli("prices", path, "--json").stdout)["markets"]) == 70


def test_prices_of_one_market_in_detail(prices: Path) -> None:
    shown = run_cli("prices", prices, "--type", "c5.large", "--zone", "us-east-1a", "--max-price", "0.05").stdout
    for text in (
        "1970-01-01 00:00 to 1970-01-02 00:00 UTC, 1.0 days",
        "$0.0850 in us-east-1",
        "available at that price 95.8% of the time",
        "dollars an hour, by days since",
        "revocations, the latest first",
        "1970-01-01 02:00 UTC",
        "2 h 00 min",
    ):
        assert text in shown
    assert has_chart(shown)
    assert "\x1b" not in shown


def test_prices_of_one_market_as_json(prices: Path) -> None:
    args = ("prices", prices, "--type", "c5.large", "--zone", "us-east-1a", "--max-price", "0.05", "--json")
    (market,) = parse_json(run_cli(*args).stdout)["markets"]
    assert market["revocations"] == [{"t": 7200.0, "lived_hours": 2.0}]
    assert market["on_demand"]["price"] == 0.085
    assert (market["rows"], market["highest"]) == (3, 0.09)
    (odd,) = parse_json(run_cli("prices", prices, "--type", "m9.odd", "--max-price", "1", "--json").stdout)[
        "markets"
    ]
    assert odd["on_demand"] is None
    assert odd["within_an_hour"] is None
    assert odd["revocations"] == []


def test_repaired_rows_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("type,az,t,price\na,z,60,1\na,z,0,2\n")
    assert "1 rows were out of order and were sorted" in run_cli("prices", path).stdout
    assert parse_json(run_cli("prices", path, "--json").stdout)["repairs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--type", "c5.larg"), "'c5.larg' has no prices; similar types are c5.large"),
        (
            ("--type", "m9.odd", "--zone", "x"),
            "m9.odd has no prices in 'x'; its zones are us-east-1a",
        ),
        (("--zone", "x"), "the record has no prices for the zone 'x'; it has prices for us-east-1a, us-east-1b"),
        (("--max-price", "1"), "--max-price is for one market, not 3; choose it with --type and --zone"),
        (("--type", "m9.odd", "--max-price", "0"), "max price 0 must be a number of dollars per hour above 0"),
        (("--plot", "x.gif"), "plot: 'x.gif' must end in .png, .svg or .pdf"),
        (("--seed", "3"), "--seed is for --synthetic"),
        (("--synthetic",), "give either a FILE or --synthetic"),
    ],
)
def test_mistakes_are_reported_in_one_line(prices: Path, options: tuple[str, ...], message: str) -> None:
    result = run_cli("prices", prices, *options, status=1)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


# --- lifetimes


def test_lifetimes_summarizes_each_machine_type(lifetimes: Path) -> None:
    shown = run_cli("lifetimes", lifetimes).stdout
    lines = [line.split() for line in shown.splitlines()[1:4]]
    assert [line[0] for line in lines] == ["calm.large", "m-8", "m-16"]
    assert lines[0][1:] == ["2", "0", "2", "-", "-", "-", "-", "-", "no", "end"]
    assert not has_chart(shown)
    assert has_chart(run_cli("lifetimes", lifetimes, "--type", "m-8").stdout)
    parsed = parse_json(run_cli("lifetimes", lifetimes, "--json").stdout)["types"]
    assert [one["machines"] for one in parsed] == [2, 40, 40]
    assert parsed[0]["mean_hours"] is None
    assert parsed[1]["revoked"] + parsed[1]["stopped"] == 40
    assert parsed[1]["quantiles"]["0.1"] <= parsed[1]["quantiles"]["0.25"]
    assert len(parsed[1]["curve"]["hours"]) == len(parsed[1]["curve"]["alive"])


def test_fit_compares_models_of_lifetimes(lifetimes: Path) -> None:
    shown = run_cli("fit", lifetimes, "--type", "m-16", "--zone", "z1").stdout
    assert shown.startswith("m-16 in z1: 40 machines, ")
    assert has_chart(shown)
    for form in ("default", "Exponential", "Weibull", "GompertzMakeham", "Bathtub", "Phases"):
        assert form in shown
    parsed = parse_json(run_cli("fit", lifetimes, "--type", "m-16", "--json").stdout)
    fits = {fit["name"]: fit for fit in parsed["fits"]}
    assert fits["default"]["default"]
    assert fits["default"]["form"] == "Phases"
    low, high = fits["Exponential"]["intervals"]["mean_hours"]
    assert low < fits["Exponential"]["parameters"]["mean_hours"] < high
    assert fits["default"]["r2"] > fits["Exponential"]["r2"]


def test_fit_by_least_squares(lifetimes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.market.lifetime.fitting.BOOTSTRAP_FITS", 3)
    parsed = parse_json(run_cli("fit", lifetimes, "--type", "m-16", "--by", "least_squares", "--json").stdout)
    by = {fit["name"]: fit["by"] for fit in parsed["fits"]}
    assert by["Weibull"] == "least squares"
    assert by["Phases"] == "likelihood"


def test_a_type_that_was_never_preempted_cannot_be_fitted(lifetimes: Path) -> None:
    result = run_cli("fit", lifetimes, "--type", "calm.large", status=1)
    assert result.stderr == "error: lifetimes: no preemption among 2 machines; at least 2 are needed\n"


def test_compare_advises_on_checkpoints_and_new_machines(lifetimes: Path) -> None:
    shown = run_cli("compare", lifetimes, "--type", "m-16", "--job", "2", "--job", "40").stdout
    for text in ("needs checkpoints", "keep it", "Young-Daly, every", "never", "longest job, in hours"):
        assert text in shown
    assert has_chart(shown)
    parsed = parse_json(
        run_cli("compare", lifetimes, "--type", "m-16", "--job", "2", "--job", "40", "--json").stdout
    )
    assert parsed["starts"][0]["age"] == 0.0
    assert {start["job_hours"] for start in parsed["starts"]} == {2.0, 40.0}
    assert all(0 <= start["failure_probability"] <= 1 for start in parsed["starts"])
    short, long = parsed["checkpoints"]
    assert 2.0 < short["best"]["hours"] <= short["young_daly"]["hours"]
    assert math.fsum(long["best"]["segments"]) == pytest.approx(40.0)
    assert (
        len(parsed["frontier"]["ages"]) == len(parsed["frontier"]["up_to"]) == len(parsed["frontier"]["longest"])
    )


def test_compare_counts_the_time_to_save_and_to_restart(lifetimes: Path) -> None:
    def hours(*options: object) -> float:
        parsed = parse_json(run_cli("compare", lifetimes, "--type", "m-16", "--job", 4, "--json", *options).stdout)
        return float(parsed["checkpoints"][0]["best"]["hours"])

    assert hours() < hours("--checkpoint-minutes", 10) < hours("--checkpoint-minutes", 10, "--restart-minutes", 60)
    assert run_cli("compare", lifetimes, "--type", "m-16", "--checkpoint-minutes", -1, status=2)
    assert run_cli("compare", lifetimes, "--type", "m-16", "--job", 0, status=2)


@pytest.mark.parametrize("command", ["lifetimes", "fit", "compare"])
def test_a_missing_type_and_unreadable_files_are_reported(command: str, lifetimes: Path, tmp_path: Path) -> None:
    result = run_cli(command, lifetimes, "--type", "m-32", status=1)
    assert (
        result.stderr == "error: no lifetime of a 'm-32' is recorded; recorded types are calm.large, m-8, m-16\n"
    )
    result = run_cli(command, tmp_path / "none.csv", "--type", "m-8", status=1)
    assert result.stderr.startswith(f"error: {tmp_path / 'none.csv'}: cannot be read")
    result = run_cli(command, "--type", "m-8", status=1)
    assert result.stderr == "error: give either a FILE or --synthetic\n"
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    result = run_cli(command, tmp_path / "other.csv", "--type", "m-8", status=1)
    assert "the columns machine_type" in result.stderr
    (tmp_path / "cut.csv.gz").write_bytes(lifetimes.read_bytes()[:-200])
    result = run_cli(command, tmp_path / "cut.csv.gz", "--type", "m-8", status=1)
    assert result.stderr == f"error: {tmp_path / 'cut.csv.gz'}: is gzipped but incomplete; get the file again\n"


def test_a_missing_zone_is_reported(lifetimes: Path) -> None:
    for command in ("fit", "compare"):
        result = run_cli(command, lifetimes, "--type", "m-8", "--zone", "z2", status=1)
        assert result.stderr == "error: no lifetime of a m-8 in 'z2' is recorded; its recorded zones are z1\n"


# --- synthetic records, figures, progress


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_the_type_is_optional_only_in_synthetic_records(command: str, lifetimes: Path) -> None:
    assert "synthetic-16" in run_cli(command, "--synthetic").stdout
    message = run_cli(command, lifetimes, status=1).stderr
    assert message.startswith("error: choose a machine type with --type; the record has ")
    assert "Invalid value for '--seed'" in run_cli(command, "--synthetic", "--seed", "-1", status=2).stderr


def test_synthetic_records_depend_on_the_seed() -> None:
    def parsed(command: str, *seed: object) -> Any:
        return parse_json(run_cli(command, "--synthetic", "--json", *seed).stdout)

    for command in ("prices", "lifetimes"):
        assert parsed(command) == parsed(command, "--seed", 0) != parsed(command, "--seed", 1)
    assert {one["on_demand"] is not None for one in parsed("prices")["markets"]} == {True}
    shown = run_cli("compare", "--synthetic", "--type", "synthetic-16", "--job", 1).stdout
    assert "synthetic-16: by the default fit" in shown


def figure_text(tmp_path: Path, *args: object) -> str:
    """Draw the figure of a command as SVG, and return the file's text."""
    mpl = pytest.importorskip("matplotlib")
    path = tmp_path / "figure.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):
        result = run_cli(*args, "--plot", path)
    assert (result.stdout, result.stderr) == ("", f"wrote {path}\n")
    return path.read_text()


def test_each_command_draws_its_figure(prices: Path, lifetimes: Path, tmp_path: Path) -> None:
    one = ("--type", "c5.large", "--zone", "us-east-1a")
    figure = figure_text(tmp_path, "prices", prices, *one, "--max-price", "0.05")
    for text in ("c5.large in us-east-1a", "1 revocation", "maximum price", "on demand"):
        assert text in figure
    assert "maximum price" not in figure_text(tmp_path, "prices", prices, *one)
    assert "m9.odd" in figure_text(tmp_path, "prices", prices, "--type", "m9.odd")
    figure = figure_text(tmp_path, "lifetimes", lifetimes)
    assert all(kind in figure for kind in ("m-8", "m-16", "calm.large"))
    figure = figure_text(tmp_path, "fit", lifetimes, "--type", "m-16")
    assert all(text in figure for text in ("Kaplan-Meier", "95 %", "default", "Hazard", "Bathtub"))
    figure = figure_text(tmp_path, "compare", lifetimes, "--type", "m-16", "--job", "1")
    assert all(text in figure for text in ("take a new one", "keep it", "12 h old", "Without checkpoints"))


def test_a_figure_and_json_in_one_call(lifetimes: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run_cli("lifetimes", lifetimes, "--plot", tmp_path / "lifetimes.png", "--json")
    assert parse_json(result.stdout)["types"]
    assert (tmp_path / "lifetimes.png").read_bytes().startswith(b"\x89PNG")


def test_the_error_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run_cli("fit", "--synthetic", "--type", "synthetic-2", "--plot", "x.png", status=1)
    assert result.stderr == "error: a plot needs matplotlib; install it with: pip install 'thriftune[plot]'\n"


def test_slow_work_is_announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with busy("thinking"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("thriftune.cli.screen.PATIENCE_SECONDS", 0.0)
    message = ""
    with busy("thinking"):
        while not message:
            time.sleep(0.01)
            message = capsys.readouterr().err
    assert message == "thinking ...\n"


# --- real records


@pytest.mark.skipif("THRIFTUNE_DATA" not in os.environ, reason="needs the recorded data (THRIFTUNE_DATA)")
def test_fit_and_prices_of_real_records() -> None:
    data = Path(os.environ["THRIFTUNE_DATA"])
    lifetimes = data / "gcp_preemptions_2019_us-central1-c.csv.gz"
    parsed = parse_json(run_cli("fit", lifetimes, "--type", "n1-highcpu-32", "--json").stdout)
    fits = {fit["name"]: fit["r2"] for fit in parsed["fits"]}
    assert fits["default"] > 0.95
    shown = run_cli("prices", data / "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz").stdout
    assert "m4.10xlarge" in shown


# --- catalog ----------------------------------------------------------------------------------------------


def test_catalog_lists_and_searches_the_machines() -> None:
    all_machines = run_cli("catalog").output
    assert all_machines.startswith(f"{len(Catalog.shipped())} machines; list prices")
    assert all(offer.name in all_machines for offer in Catalog.shipped())
    matching = run_cli("catalog", "--cloud", "aws", "--search", "M5.").output
    rows = [line.split() for line in matching.splitlines()[3:]]
    assert {(row[0], row[1][:3]) for row in rows} == {("aws", "m5.")}
    (row,) = [row for row in rows if row[1] == "m5.xlarge"]
    offer = Catalog.shipped()["m5.xlarge"]
    assert row[2:] == ["-", "4", "16", f"{offer.price_per_hour:g}", "-", "us-east-1", offer.as_of]
    assert "V100" in run_cli("catalog", "--search", "v100").output


def test_catalog_as_json() -> None:
    found = parse_json(run_cli("catalog", "--cloud", "GCP", "--search", "n1-highcpu-16", "--json").stdout)
    offer = Catalog.shipped()["n1-highcpu-16"]
    assert found == [
        {
            "cloud": "gcp",
            "machine": "n1-highcpu-16",
            "cores": 16,
            "memory_gib": offer.memory_gib,
            "accelerator": None,
            "accelerators": 0,
            "price_per_hour": offer.price_per_hour,
            "spot_price_per_hour": offer.spot_price_per_hour,
            "region": "us-central1",
            "as_of": offer.as_of,
        }
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cloud", "azure"], "--cloud: 'azure' is not in the catalog; use aws or gcp"),
        (["--search", "m5.xlrage"], "has 'm5.xlrage' in its name; did you mean m5.xlarge"),
        (["--search", "qqqq"], "has 'qqqq' in its name; leave --search out to see all"),
    ],
)
def test_unknown_clouds_and_machines_are_reported(options: list[str], message: str) -> None:
    assert message in run_cli("catalog", *options, status=1).output
