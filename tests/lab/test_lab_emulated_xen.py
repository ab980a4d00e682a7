"""Campaigns on the emulated Xen machine, as far as no Xen is needed: what is refused, and what its rows say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.campaign import read_campaign
from lab.cli import main
from lab.dataset_writer import write_dataset
from lab.emulated_xen.client_progress import ClientProgress
from lab.environment import read_machine
from lab.records import StateOutcome
from lab.schedule import expand
from models.data.dataset import load_dataset
from tests.lab.lab_records import record

EXAMPLE = Path(__file__).parents[2] / "examples" / "campaigns" / "xen.yaml"


def changed(tmp_path: Path, **changes: Any) -> Path:
    document = yaml.safe_load(EXAMPLE.read_text("utf-8")) | {"groups": None} | changes
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in document.items() if value is not None}), "utf-8")
    return path


def test_the_example_has_the_papers_nine_configurations() -> None:
    forms = read_campaign(EXAMPLE).pinnings
    taken = [(len(form.driver or ()), *(len(form.place(position)[0]) for position in (0, 1))) for form in forms]
    assert taken == [(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 2, 2), (2, 1, 1), (3, 1, 1), (1, 1, 1), (3, 3, 3), (4, 4, 4)]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"on_off": None}, "emulated needs on_off with dwell_ms and guard_ms"),
        (
            {
                "workloads": {"web-1k": {"kind": "web", "disk_limit_mb_s": 5}, "web-1m": {"kind": "web"}},
                "emulated": None, "on_off": None,
            },
            "web-1k has a disk limit, which Xen does not have: leave it out",
        ),
        ({"pinnings": {"p": {"cpus": ["1"]}}}, "pinning p must give Dom0 as `driver` between 1 and 4 CPUs"),
        ({"pinnings": {"p": {"cpus": ["5"], "driver": "0"}}}, "uses CPU 5, this host has 0-3: change its pinnings"),
        ({"pinnings": {"p": {"cpus": ["1"], "driver": "0", "clients": ["0"]}}}, "places clients, which are outside"),
        ({"workloads": {"web-1k": {"kind": "web", "size_kb": 2}, "web-1m": {"kind": "cpu"}}}, "web-1k cannot run"),
        ({"workloads": {"web-1k": {"kind": "memory"}, "web-1m": {"kind": "cpu"}}}, "web-1k cannot run"),
        ({"workloads": {"web-1k": {"kind": "web", "weight": 512}, "web-1m": {"kind": "cpu"}}}, "no settings"),
        ({"instances": "container"}, "`emulated` is a Xen machine: write `instances: xen`, or leave it out"),
    ],
)  # fmt: skip
def test_a_dry_run_refuses_in_one_sentence_what_the_machine_cannot_do(
    tmp_path: Path, changes: dict[str, Any], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path, **changes)
    code = 2 if changes == {"on_off": None} else 1  # 2 = the campaign file itself is wrong
    assert main(["run", str(path), "--dataset", str(tmp_path / "out"), "--dry-run"]) == code
    errors = capsys.readouterr().err
    assert complaint in errors
    assert errors.count("\n") == 1


def test_every_row_says_that_it_is_emulated_and_models_read_it(tmp_path: Path) -> None:
    campaign = read_campaign(EXAMPLE)
    run = next(run for run in expand(campaign) if run.kind == "group")
    states = tuple(StateOutcome((0, 1), place, "throughput", 400.0, 200.0, 0.01, 5) for place in (0, 1))
    write_dataset(tmp_path, campaign, [replace(record(campaign, run, 1), states=states)], read_machine(campaign), {})
    data = load_dataset(tmp_path)
    assert {row.platform for row in data.colocations} == {"xen-emulated"}
    assert [(platform.kind, platform.pcpus) for platform in data.platforms.values()] == [("xen", 4)]
    assert "EMULATED" in (tmp_path / "dataset.yaml").read_text("utf-8")


def test_progress_counts_bins_that_lie_whole_in_a_time() -> None:
    progress = ClientProgress(0.5, {1: 1.0, 2: 2.0, 3: 4.0, 4: 8.0})
    assert progress.between(1.0, 2.0) == (6.0, 1.0)
    assert progress.between(0.9, 2.1) == (6.0, 1.0)
    assert progress.between(2.1, 2.2) == (0, 0)
