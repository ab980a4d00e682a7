"""The probes' frame: results, the command line, stops, raw series, pictures, statistics."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.processes import wait_until
from profiler.cli import main
from profiler.observed import ProbeResult, Quantity
from profiler.pictures import MOST_POINTS, PictureError, inline_svg, label, new_figure, save, thinned
from profiler.probes import PROBES, load
from profiler.probes.base import ProbeError, Progress, RawSeries, Stopped, described, log_bins
from profiler.probes.run import CounterReading, doubts, surroundings, write_series
from tests.examples import examples
from tests.probes.two_ends import children, gone, run

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "profiler.cli", "probe"]
sizes = st.floats(1e-3, 1e6, allow_nan=False)


def probe(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    """Exit code, output and errors of a command line in this process, which spares the start of another."""
    try:
        code: int | str | None = main(["probe", *arguments])
    except SystemExit as ended:  # argparse
        code = ended.code
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_quantity_is_never_unknown(value: float) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Quantity(value, "ms")


def test_a_result_has_its_main_value() -> None:
    with pytest.raises(ValueError, match="no value 'mean'"):
        ProbeResult("rtt", {"median": Quantity(1, "ms")}, "mean", {})


def test_a_stop_ends_what_may_be_interrupted_and_nothing_else() -> None:
    progress = Progress()
    reached = []
    with progress.interruptible():
        reached.append("in")
        progress.stop()
        reached.append("never")
    assert reached == ["in"]
    assert progress.stopped
    with pytest.raises(KeyboardInterrupt):
        progress.stop()  # a second one ends everything
    assert not isinstance(Stopped(), Exception)


@pytest.mark.parametrize(("name", "options"), [("cpu-work", ["--iterations", "1"]), ("transfer", []), ("hops", [])])
def test_a_stop_before_anything_was_measured_is_an_error(name: str, options: list[str]) -> None:
    if name == "hops" and os.geteuid() != 0:
        pytest.skip("needs root, or a ping_group_range that allows us ICMP")
    progress = Progress()
    progress.stop()  # nothing is interrupted, it is only noted
    with pytest.raises(ProbeError, match="stopped"):
        run(name, *options, to=None if name == "transfer" else ("127.0.0.1", 9), progress=progress)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("tcp", ["--megabytes", "0.1"], "less than one bucket"),
        ("udp", ["--rate-mbit", "10", "--seconds", "0.05"], "less than one bucket"),
        ("loss", ["--slot-ms", "1000", "--packets", "3", "--seconds", "1"], "slots"),
    ],
)
def test_too_little_to_measure_is_a_sentence(name: str, options: list[str], reason: str) -> None:
    with pytest.raises(ProbeError, match=reason):
        run(name, *options)


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_that_is_listed_can_be_loaded_and_says_its_name(name: str) -> None:
    assert load(name).name == name


def test_the_list_names_every_probe_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "list", "--json")
    assert code == 0
    listed = json.loads(out)
    assert [entry["probe"] for entry in listed] == list(PROBES)
    assert [entry["probe"] for entry in listed if not re.search(r"\((19|20)\d\d\)", entry["after"])] == []


def test_the_document_is_that_of_the_contract() -> None:
    done = probe("cpu-share", "--json", "--count", "100_000")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    document = json.loads(done.stdout)
    assert set(document) == {"probe", "values", "main", "circumstances", "marks"}
    assert document["probe"] == "cpu-share"
    assert document["values"][document["main"]].keys() == {"value", "unit"}
    assert {"machine", "kernel", "taken_at", "load"} <= document["circumstances"].keys()


def test_a_table_is_printed_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "cpu-work", "--count", "2", "--work-ms", "5")
    assert code == 0
    assert "median" in out
    assert "iterations" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cpu-share", "--count", "0"), "whole number"),
        (("cpu-share", "--seconds", "nan"), "not a number above"),
        (("rtt", "--to", "a:b:c"), "HOST:PORT"),
        (("rtt", "--to", "host:70000"), "HOST:PORT"),
        (("cpu-share", "--picture", "x.gif"), "neither .png nor .svg"),
        (("cpu-share", "--raw", "/no/such/folder/x.csv"), "no folder"),
        (("nonsense",), "invalid choice"),
    ],
)
def test_wrong_usage_is_two_and_says_why(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert words in err


def test_a_far_end_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "transfer", "--to", "127.0.0.1:1")
    assert (code, err.count("\n")) == (1, 1)
    assert "cotenant-profiler probe serve" in err


@pytest.mark.parametrize("name", ["rtt", "transfer"])
def test_a_name_without_an_address_is_one_sentence(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    code, _, err = said(capsys, name, "--to", "no-such-host.invalid", "--count", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert "no-such-host.invalid has no address: Name or service not known" in err


def test_a_stop_that_comes_on_the_very_edge_of_a_measurement_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr("profiler.probes.run.run_probe", stopped)
    assert said(capsys, "cpu-share", "--json") == (1, "", "cotenant-profiler: stopped\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.measured
def test_a_stopped_probe_shows_what_it_has_and_marks_it(number: signal.Signals) -> None:
    running = subprocess.Popen(
        [*COMMAND, "transfer", "--json", "--every", "0.02"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    child = own_responder(running.pid)
    time.sleep(0.6)
    running.send_signal(number)
    out, err = running.communicate(timeout=120)
    document = json.loads(out)
    assert running.returncode == 1
    assert "stopped before its end" in document["marks"]
    assert 0 < document["values"]["samples"]["value"] < 100
    assert "Traceback" not in err
    assert gone(child)


def test_a_killed_probe_leaves_no_responder() -> None:
    running = subprocess.Popen(
        [*COMMAND, "transfer", "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child = own_responder(running.pid)
    running.kill()
    running.communicate(timeout=120)
    assert gone(child)


def own_responder(pid: int) -> int:
    """Process of the responder that a probe started, once it has one."""
    assert wait_until(lambda: bool(children(pid)), 60), "it started no responder"
    return children(pid)[0]


def test_raw_series_and_picture_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, picture = tmp_path / "raw.csv.gz", tmp_path / "p.svg"
    files = "--raw", str(raw), "--picture", str(picture)
    assert said(capsys, "cpu-work", "--json", "--count", "3", "--work-ms", "2", *files)[0] == 0
    with gzip.open(raw, "rt", newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 3
    assert float(rows[0]["took_ms"]) > 0
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert sorted(tmp_path.iterdir()) == [picture, raw]  # nothing beside


def test_what_was_measured_is_shown_even_if_a_file_cannot_be_written() -> None:
    done = probe("cpu-share", "--json", "--count", "1000", "--raw", "/dev/full")
    assert done.returncode == 1
    assert json.loads(done.stdout)["probe"] == "cpu-share"
    assert done.stderr == "cotenant-profiler: /dev/full cannot be written: No space left on device\n"


def test_the_same_series_gives_the_same_bytes_and_unknown_is_empty(tmp_path: Path) -> None:
    series = RawSeries({"at_s": [0.0, 1.0], "rtt_ms": [None, 0.25]})
    for name in ("a.csv", "b.csv.gz", "c.csv.gz"):
        write_series(series, tmp_path / name)
    assert (tmp_path / "a.csv").read_text() == "at_s,rtt_ms\n0.0,\n1.0,0.25\n"
    assert (tmp_path / "b.csv.gz").read_bytes() == (tmp_path / "c.csv.gz").read_bytes()


def test_a_series_of_unequal_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="unequal"):
        RawSeries({"a": [1.0], "b": []})


def test_without_matplotlib_a_picture_is_refused_before_the_probe_runs(tmp_path: Path) -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from profiler.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["probe", "cpu-share", "--seconds", "600", "--picture", str(tmp_path / "x.png")]
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "matplotlib" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        figure, (axes, _) = new_figure(2)
        axes.plot([0, 1], [1, 3])
        label(axes, "<title>", "s", "ms")
        save(figure, tmp_path / name)
        assert "&lt;title&gt;" in inline_svg(figure, "x")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    first, second = ((tmp_path / f"{name}.svg").read_text() for name in "ab")
    assert len(first) == len(second)  # ids differ by name, so that both fit into one page
    with pytest.raises(PictureError, match="no folder"):
        save(figure, tmp_path / "none" / "x.png")


@pytest.mark.parametrize(
    ("cpuinfo", "below"),
    [("flags\t\t: fpu hypervisor\nbugs\t\t:\n", "yes"), ("flags\t\t: fpu\n", "no"), ("Features\t: fp\n", None)],
)
def test_a_hypervisor_below_is_read_from_the_flags_of_the_processor_and_not_guessed(
    cpuinfo: str, below: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.probes.run._text", lambda path: cpuinfo if path.name == "cpuinfo" else "")
    assert surroundings().get("hypervisor") == below


def test_steal_and_a_slow_clock_are_marked() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    found = doubts(CounterReading(0, 0.0), CounterReading(ticks, 10.0), {"clock_source": "hpet"})
    assert found[0].startswith("the hypervisor below took 10.0 % of a CPU")
    assert "hpet" in found[1]
    assert doubts(CounterReading(None, 0.0), CounterReading(ticks, 10.0), {"clock_source": "tsc"}) == ()


@given(st.lists(sizes, min_size=1, max_size=200))
def test_a_description_is_in_order(values: list[float]) -> None:
    numbers = {name: quantity.value for name, quantity in described(values, "ms").items()}
    assert numbers["min"] <= numbers["median"] <= numbers["max"]
    assert numbers["min"] <= numbers["mean"] <= numbers["max"]
    assert numbers["p95"] <= numbers["max"]
    assert ("stdev" in numbers) == (len(values) > 1)


@given(st.lists(sizes, max_size=200), st.floats(1e-3, 10), st.integers(1, 10))
def test_a_histogram_holds_every_value_once_in_bins_that_touch(values: list[float], low: float, steps: int) -> None:
    bins = log_bins(values, low, steps)
    assert sum(count for _, _, count in bins) == len(values)
    for (_, high, _), (begin, _, _) in pairwise(bins):
        assert begin == pytest.approx(high)
    if bins:
        assert bins[-1][1] >= max(values) * (1 - 1e-6)


@settings(max_examples=examples(20))
@given(st.integers(1, 4 * MOST_POINTS), st.integers(0, 2**32))
def test_thinning_keeps_order_and_extremes(length: int, seed: int) -> None:
    ys = [(seed * (place + 1) * 2654435761) % 1000003 for place in range(length)]
    times, shown = thinned(range(length), ys)
    assert len(times) == len(shown) <= max(MOST_POINTS, 10) + 2
    assert (min(shown), max(shown)) == (min(ys), max(ys))
    assert list(times) == sorted(times)
