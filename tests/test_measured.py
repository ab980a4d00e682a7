"""Measured tests: a disturbed one passes when tried again and says so, a wrong one fails, an unsteady one is found."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.retry_history import RetryRate, append_run, retry_rates

CIRCUMSTANCES = "circumstances"
FACTS = (
    r"\d+% of the CPU time stolen and \d+% idle in \d+\.\d s, load average \d+\.\d\d \d+\.\d\d \d+\.\d\d,"
    rf" {os.cpu_count()} CPUs, Linux {re.escape(platform.release())}"
)
TESTS = """
import time
import pytest
tries = []
made = []

@pytest.fixture(scope="module")
def guest():
    made.append("booted")
    return len(made)

@pytest.mark.measured
def test_disturbed_twice(guest, tmp_path):
    (tmp_path / "own").mkdir()  # of each try
    tries.append(guest)
    assert tries == [1, 2, 3], f"tried in guests {tries}"

@pytest.mark.measured
def test_wrong():
    tries.append("wrong")
    raise KeyError(f"reason {tries.count('wrong')}")

@pytest.mark.measured
@pytest.mark.timeout(1)
def test_hangs():
    tries.append("hang")
    time.sleep(30)

def test_that_computes():
    tries.append("computed")
    raise ValueError(f"try {tries.count('computed')} of one, hung {tries.count('hang')} time")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run what is in the folder with the conftest of this one; a history of earlier runs in the folder stays."""
    here = Path(__file__)
    for file in (here.parents[1] / "conftest.py", here.with_name("retry_history.py")):
        shutil.copy(file, folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = measured: as here\n")
    command = [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-p", "xdist.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--strict-markers", "-ra", *arguments, str(folder)],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # others take half a second to import
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_measured_test_has_three_tries_and_one_that_hangs_or_computes_has_one(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    said = run_pytest(tmp_path).stdout
    assert "3 failed, 1 measured again in " in said
    for number in (1, 2):
        assert f"test_some.py::test_disturbed_twice after try {number}, " in said
    assert "stolen" in said and ": AssertionError: tried in guests [1, 2]\n" in said
    assert all(f"KeyError: 'reason {number}'" in said for number in (1, 2, 3))
    wrong, hung = said.split("__ test_wrong __")[1].split("__ test_hangs __")
    assert all(len(re.findall(f"{CIRCUMSTANCES} of try {number} -", wrong)) == 1 for number in (1, 2, 3))
    assert f"{CIRCUMSTANCES} of try 1 -" in re.sub("__ test_that_computes __.*", "", hung, flags=re.DOTALL)
    assert re.search(FACTS, wrong.split(f"{CIRCUMSTANCES} of try 3 -")[1]), wrong
    assert CIRCUMSTANCES not in said.split("__ test_that_computes __")[1]
    assert "ValueError: try 1 of one, hung 1 time" in said
    kept = {run["test"].split("::")[1]: run for run in history_of(tmp_path)}
    assert {name: (run["tries"], run["passed"]) for name, run in kept.items()} == {
        "test_disturbed_twice": (3, True),
        "test_wrong": (3, False),
        "test_hangs": (1, False),
    }
    assert [one["why"] for one in kept["test_wrong"]["failed"]] == [
        f"KeyError: 'reason {number}'" for number in (1, 2, 3)
    ]
    assert all(re.fullmatch(FACTS, one["circumstances"]) for run in kept.values() for one in run["failed"])


STEADY = """
import pytest

@pytest.mark.measured
def test_steady():
    pass

@pytest.mark.measured
def test_skipped():
    pytest.skip("not here")

def test_that_computes():
    pass
"""


def history_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "var/test-retries.jsonl").read_text().splitlines()]


def earlier_runs(folder: Path, tries: list[int]) -> None:
    (folder / "test_steady.py").write_text(STEADY)
    for number in tries:
        append_run(folder / "var/test-retries.jsonl", "test_steady.py::test_steady", number, passed=True, failed=[])


def test_one_retry_of_many_runs_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    earlier_runs(tmp_path, [1, 2, 1, 1, 1])
    run = run_pytest(tmp_path)
    assert run.returncode == 0, run.stdout
    assert "test_steady.py::test_steady was retried in 1 of its last 6 runs\n" in run.stdout
    assert len(history_of(tmp_path)) == 6  # neither what was skipped nor what is not measured is in it


def test_an_often_retried_test_fails_the_run_that_holds_it_also_under_xdist(tmp_path: Path) -> None:
    earlier_runs(tmp_path, [1, 1, 2, 2, 3])
    run = run_pytest(tmp_path, "-n", "1")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    sentence = (
        "FAILED test_steady.py::test_steady needs a second try too often (3 of its last 6 runs):"
        f" mend it, then remove its lines from {tmp_path}/var/test-retries.jsonl.\n"
    )
    assert run.stdout.count(sentence) == 1
    assert run_pytest(tmp_path, "-m", "not measured").returncode == 0


@pytest.mark.parametrize(
    ("tries", "rate", "too_high"),
    [
        ([], (0, 0), False),  # a fresh clone
        ([2, 2, 2, 2, 2], (5, 5), False),  # too few to judge
        ([1, 1, 1, 1, 2, 3], (6, 2), False),  # no more than a third
        ([1, 1, 1, 2, 2, 3], (6, 3), True),
        ([1, 2, 2, 1, 1, 1, 1, 1, 1, 2, 2], (10, 4), True),
        ([2, 2, 2, 2, *[1] * 8, 2, 2], (10, 2), False),  # it was worse before
    ],
)
def test_over_a_third_of_the_last_ten_runs_is_too_high_a_rate(
    tmp_path: Path, tries: list[int], rate: tuple[int, int], too_high: bool
) -> None:
    earlier_runs(tmp_path, tries)
    found = retry_rates(tmp_path / "var/test-retries.jsonl", ["test_steady.py::test_steady"])
    assert [((one.runs, one.retried), one.too_high) for one in found] == [(rate, too_high)]


def test_failed_runs_and_lines_cut_off_when_a_run_was_killed_do_not_count(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text('{"test": "a", "tri\n[]\n3\n{"test": "a", "passed": true}\n')
    append_run(history, "a", 3, passed=False, failed=[])
    append_run(history, "a", 1, passed=True, failed=[])
    assert retry_rates(history, ["a"]) == [RetryRate("a", runs=1, retried=0)]
