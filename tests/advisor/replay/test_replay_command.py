"""`cotenant replay` as a user meets it: a table, JSON, a report, and one sentence where something is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import Result

from tests.advisor.replay.replay_cases import write_csv
from tests.api import cli_runs

TYPE = """
hosts:
  - {id: any, kind: kvm, pcpus: 2, memory_mb: 8192, nic_mbit: 1000, cpu_overcommit: 8}
workloads:
  - {name: web, metrics: {cpu: 90, net_mbit: 300}}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [
        {"instance": f"vm{who}", "time_s": 300 * step, "cpu_percent": 20 + 10 * (who % 4), "vcpus": 1}
        for step in range(12)
        for who in range(8)
    ]
    return write_csv(tmp_path / "trace.csv", rows)


def simulate(monkeypatch: pytest.MonkeyPatch, *words: object) -> Result:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # a process of its own takes longer to start
    return cli_runs.run("replay", *map(str, words))


def test_policies_are_shown_side_by_side_with_what_was_assumed(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "type.yaml").write_text(TYPE)
    words = (trace, "--host-type", tmp_path / "type.yaml", "--policies", "cotenant,first-fit,lower_bound", "--seeds", 2)
    reported: list[Path] = []
    monkeypatch.setattr("advisor.offline.write_replay_report", lambda _, path: reported.append(path))
    shown = simulate(monkeypatch, *words, "--report", tmp_path / "out.html")
    assert shown.exit_code == 0, shown.output
    assert "8 instances of trace.csv (csv) over 0.8 hours, 9 steps" in shown.output
    table = shown.output[: shown.output.index(" seed")].splitlines()
    lines = {line.split("  ")[0]: line.split() for line in table}
    assert {"cotenant", "first fit", "lower bound"} <= lines.keys()
    assert "no model has a part" in shown.output
    assert "drawn (seed 1) from the profiles given (1), scaled" in shown.output
    assert "These are the figures of the first of 2 seeds" in shown.output
    assert "nothing was measured on hosts" in shown.output
    assert reported == [tmp_path / "out.html"]
    answer = json.loads(simulate(monkeypatch, *words, "--json").stdout)
    assert [one["policy"] for one in answer["policies"]] == ["cotenant", "first fit", "lower bound"]
    first_fit = answer["policies"][1]
    assert lines["first fit"][2] == f"{first_fit['hosts_mean']:.2f}"
    assert first_fit["violation_share"] > answer["policies"][0]["violation_share"]
    assert len(first_fit["repeats"]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policies", "worst-fit"), "policies 'worst-fit' is none of cotenant, first fit"),
        (("--policies", ","), "--policies names none"),
        (("--history", "9"), "history 32400 s leaves nothing to replay of the trace"),
        (("--report", "/nowhere/out.html"), "folder /nowhere does not exist"),
        (("--host-count", "1", "--shards", "2"), "1 hosts cannot be dealt out to 2 shards"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    trace: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    refused = simulate(monkeypatch, trace, *words)
    assert refused.exit_code == 2
    assert says in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("cotenant: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts: []\n", "type.yaml has 0 hosts; exactly one describes the type of all hosts"),
        (TYPE.replace("{id: any,", "{id: any, enabled: false,"), "type.yaml: host any is disabled"),
    ],
)
def test_a_host_type_is_exactly_one_host_that_may_be_used(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "type.yaml").write_text(text)
    refused = simulate(monkeypatch, trace, "--host-type", tmp_path / "type.yaml")
    assert refused.exit_code == 2
    assert says in refused.stderr
