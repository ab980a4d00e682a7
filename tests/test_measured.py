"""The rule for tests of real time: who was disturbed is measured again and says so, who is wrong fails each time."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_what_is_measured_has_three_tries_and_what_hangs_or_computes_one(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = measured: as here\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-ra", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
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
