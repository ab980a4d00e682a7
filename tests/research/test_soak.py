"""The soak: what it asks, what it reads of memory, and when a slope is distinguished from none."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from research.benchmarks import soak
from research.benchmarks.http_load import LoadedCloud


def test_a_slope_is_distinguished_from_none() -> None:
    questions = np.arange(100) * 200.0
    noise = np.random.default_rng(0).normal(0.0, 300.0, 100)
    growing, steady = (400_000 + rise * questions + noise for rise in (0.7, 0.0))
    asked = questions.tolist()
    grows, flat = soak.slope(asked, growing.tolist()), soak.slope(asked, steady.tolist())
    assert grows.low < 700 < grows.high
    assert grows.low > 0
    assert flat.low < 0 < flat.high


def test_no_two_questions_are_alike() -> None:
    traffic = soak.Traffic(0, LoadedCloud.of(2))
    asked = [traffic._question(turn)[2] for turn in range(5000)]
    for one in asked:
        del one["instance"]["id"]
    assert len({json.dumps(one, sort_keys=True) for one in asked}) > 0.99 * len(asked)
    assert 0.02 < sum(not one["dry_run"] for one in asked) / len(asked) < 0.08


def test_the_memory_of_a_process_and_of_all_that_it_started_is_added_up() -> None:
    alone = soak.read(os.getpid(), 0.0, 0)
    code = "import sys; there = bytearray(b'x' * 30_000_000); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        both = soak.read(os.getpid(), 1.0, 7)
        child.communicate(b"")
    assert (both.processes - alone.processes, both.questions) == (1, 7)
    assert both.anonymous_kb - alone.anonymous_kb > 25_000
    assert both.rss_kb >= both.pss_kb >= both.anonymous_kb / 2


def test_a_short_one_leaves_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--prior --hosts 3 --minutes 0.03 --every 1 --warm-up 0 --folder"
    monkeypatch.setattr(sys, "argv", ["soak", *words.split(), str(tmp_path)])
    soak.main()
    rows = list(csv.DictReader((tmp_path / "soak.csv").read_text(encoding="ascii").splitlines()))
    assert int(rows[-1]["questions"]) > 0
    assert int(rows[-1]["rss_kb"]) > 50_000
    assert (tmp_path / "soak.png").stat().st_size > 1000
    reported = capsys.readouterr().out
    assert "200: " in reported
    assert not any(f"{status}: " in reported.splitlines()[0] for status in (422, 500, 503))
