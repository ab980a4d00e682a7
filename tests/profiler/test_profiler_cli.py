"""The command line: exit codes, JSON of every command, errors of one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.backends import BackendError
from profiler.cli import main, shared_options
from tests.profiler.steady_backend import SteadyBackend

EIGHT = {"event", "switch", "pages_exchanged", "execution", "pages_per_execution", "cpu", "waiting", "block"}


def test_once_shows_the_eight_metrics_of_a_recording(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["once", "--replay", str(recording), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {sample["metric"] for sample in document["samples"]} >= EIGHT
    assert document["absent"] == []
    assert {instance["weight"] for instance in document["instances"]} == {256, 512}


def test_once_prints_a_table_with_every_instance(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["once", "--replay", str(recording)]) == 0
    printed = capsys.readouterr().out
    assert "web-1k" in printed
    assert "driver domain" in printed
    assert "host event" in printed


def test_what_once_recorded_replays_to_the_same_values_and_holds_no_mounts_but_control_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "reading.json"
    assert main(["once", "--every", "0.05", "--json", "--record", str(path)]) == 0
    live = json.loads(capsys.readouterr().out)
    assert any(sample["scope"] == "host" for sample in live["samples"])  # also without root and without containers
    assert main(["once", "--replay", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == live
    mounts = json.loads(path.read_text())["readings"][0]["files"].get("/proc/mounts", "")
    assert all(" cgroup" in line for line in mounts.splitlines())


def test_check_tells_state_distortion_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in document["checks"]}
    assert {"frequency governor", "SMT", "steal", "NUMA balancing", "schedstat", "wall clock"} <= set(checks)
    assert len(document["metrics"]) == 8
    assert all(check["distorts"] for check in checks.values() if check["state"] == "warning")


def test_once_names_the_chosen_backend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def find(name: str, *_others: object) -> SteadyBackend:
        asked.append(name)
        backends.append(SteadyBackend())
        return backends[-1]

    backends: list[SteadyBackend] = []
    monkeypatch.setattr(shared_options, "find_backend", find)
    for name in ("xen", "libvirt", "lxc", "auto"):
        assert main(["once", "--every", "0.01", "--json", "--backend", name]) == 0
        assert json.loads(capsys.readouterr().out)["host"] == "h1"
    assert asked == ["xen", "libvirt", "lxc", "auto"]
    assert all(backend.closed.is_set() for backend in backends)


def test_the_host_may_be_named_as_the_inventory_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["once", "--every", "0.01", "--json", "--backend", "lxc", "--host", "rack1-h7"]) == 0
    assert json.loads(capsys.readouterr().out)["host"] == "rack1-h7"
    with pytest.raises(SystemExit):
        main(["once", "--host", "not an id"])


@pytest.mark.parametrize("interval", ["abc", "0", "301", "nan", ""])
def test_a_wrong_interval_is_refused_with_what_it_may_be(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["once", "--every", interval])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"argument --every: {interval!r} is not between 0.01 and 300 seconds")


@pytest.mark.parametrize(
    "beside",
    [
        ["--record", "new.json"], ["--backend", "xen"], ["--host", "h9"], ["--xen-trace", "off"], ["--every", "5"],
        ["--backend", "lxc", "--host", "h9", "--record", "new.json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_replay_refuses_what_it_would_not_heed(
    beside: list[str], recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["once", "--json", "--replay", str(recording), *beside]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "--replay shows a recording and does not read this host: leave out" in printed.err
    assert all(option in printed.err for option in beside if option.startswith("--"))
    assert not Path("new.json").exists()


@pytest.mark.parametrize("command", ["once", "run"])
def test_a_trace_that_is_in_use_is_not_disturbed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared_options, "traced_already", lambda _source: True)
    assert main([command, "--backend", "xen"]) == 1
    assert "another xentrace runs here" in capsys.readouterr().err


def test_a_backend_is_closed_though_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SteadyBackend()

    def fail(_number: int) -> None:
        raise BackendError("xl gives no answer")

    backend.trouble = fail
    monkeypatch.setattr(shared_options, "find_backend", lambda *_asked: backend)
    assert main(["once", "--json"]) == 1
    assert backend.closed.is_set()


def test_without_rich_json_works_and_tables_say_what_is_missing(recording: Path) -> None:
    program = "import sys; sys.modules['rich'] = None\nfrom profiler.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "once", "--replay", str(recording)]
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["samples"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "cotenant-profiler: tables need the Python package rich; ask for --json, or install rich\n"
    )


def test_a_missing_recording_fails_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["once", "--replay", str(tmp_path / "none.json")]) == 1
    assert "--record" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["once", "--every", "0"], ["run", "--push"]])
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
