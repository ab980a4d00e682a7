"""`cotenant demo`: an answer on the example cloud, what is known of it, and commands that work when typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.api.cli_runs import run

pytestmark = pytest.mark.usefixtures("_empty_folder")


def test_it_answers_with_a_table_commands_what_is_known_and_what_to_type_next() -> None:
    shown = run("demo").stdout
    assert "12 hosts of 64 CPUs, 150 VMs" in shown
    assert "shop-151 should go to kvm" in shown
    assert "rank  host" in shown
    assert "virsh" in shown
    assert "cotenant demo --serve" in shown
    assert "Of 146 VMs the demand for CPUs is known, of 4 only the size." in shown
    assert "not calibrated" in shown


def test_json_has_the_answer_and_what_is_known() -> None:
    answer = json.loads(run("demo", "--json").stdout)
    assert answer["known"] == {"hosts": 12, "instances": 150, "sizes_only": 4, "demands": 146}
    best, *others = answer["recommendation"]["candidates"]
    assert best["tied_with"] == []
    assert len(others) == 10


def test_the_host_with_most_room_would_slow_a_vm_that_the_advice_spares() -> None:
    answer = json.loads(run("demo", "--json").stdout)
    worst = {
        candidate["host"]: min(effect["throughput_ratio"]["expected"] for effect in candidate["neighbours"])
        for candidate in answer["recommendation"]["candidates"]
    }
    assert answer["most_free"] == "kvm09"
    assert worst["kvm09"] < 0.95
    assert worst[answer["recommendation"]["candidates"][0]["host"]] > 0.99


def test_the_command_that_it_proposes_works_on_the_files_that_it_saves() -> None:
    proposed = run("demo").stdout.splitlines()[-1]
    assert run("demo", "--out", "demo").exit_code == 0
    result = run(*shlex.split(proposed)[1:])
    assert result.exit_code == 0, result.output
    assert "shop-151 should go to kvm" in result.stdout


def test_it_never_overwrites_a_file() -> None:
    Path("demo").mkdir()
    Path("demo/new-vm.yaml").write_text("mine", encoding="utf-8")
    assert run("demo", "--out", "demo").exit_code == 2
    assert [path.name for path in Path("demo").iterdir()] == ["new-vm.yaml"]


def test_it_does_one_thing_at_a_time() -> None:
    result = run("demo", "--json", "--out", "demo")
    assert result.exit_code == 2
    assert not Path("demo").exists()


def test_it_is_served_to_this_machine_only() -> None:
    result = run("demo", "--serve", "--listen", "0.0.0.0:0")
    assert result.exit_code == 2
    assert "refusing to listen on 0.0.0.0" in result.stderr


def test_an_address_without_serve_is_refused() -> None:
    result = run("demo", "--listen", "127.0.0.1:8080")
    assert result.exit_code == 2
    assert "add --serve" in result.output
