"""Schemathesis asks a real service every operation of its description: whatever it finds is mended or explained."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.app import ROUTES
from tests.fuzz.explained import EXPLAINED
from tests.fuzz.findings import outdated, read, unexplained
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.service import COTENANT, Service

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
SEARCH = os.environ.get("COTENANT_TEST_SEARCH") == "1"  # as in conftest.py
# Generated questions of each operation, beside thousands that the description asks for.
EXAMPLES = 200 if SEARCH else 20
ANSWER_S = "300"  # even on a slow machine
MOST_S = 3600 if SEARCH else 900


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """With the example cloud, and without a limit of rate."""
    database = sqlite_with_tables(tmp_path / "cotenant.sqlite3")
    environment = {**os.environ, "COTENANT_DATABASE": database, "COTENANT_STATE_DIR": str(tmp_path)}
    subprocess.run([str(COTENANT), "sync", "examples/cloud.yaml"], cwd=ROOT, env=environment, check=True)
    started = Service(database, tmp_path, log_level="warning", max_request_s=ANSWER_S, extender_s=ANSWER_S).start()
    try:
        yield started
    finally:
        started.running.stop()


@pytest.mark.timeout(MOST_S + 120)
def test_every_finding_is_explained(service: Service, tmp_path: Path) -> None:
    """In a long search (COTENANT_TEST_SEARCH=1) every explanation is found, too; few questions meet some by chance."""
    report = tmp_path / "report.ndjson"
    words = ["--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure"]
    words += ["--seed", "2", "--max-examples", str(EXAMPLES), "--no-shrink", "--generation-database", "none"]
    # A stream takes a second or more for each of thousands of questions; tests/api/test_api_events.py asks it.
    # What other packages add has tests of its own beside it.
    for path in ("/v1/events", *sorted({route.path for route in ROUTES if not route.is_own})):
        words += ["--exclude-path", path]
    words += ["--request-timeout", ANSWER_S, "--no-color", "--report-ndjson-path", str(report)]
    done = subprocess.run(
        [
            str(SCHEMATHESIS),
            "--config-file",
            str(HERE / "schemathesis.toml"),
            "run",
            *words,
            f"{service.url}/openapi.json",
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.fuzz.formats", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout[-3000:] + done.stderr[-3000:]  # 1 = something was found
    with report.open(encoding="utf-8") as lines:
        findings = read(lines)
    print(done.stdout[-1500:])
    left = unexplained(findings, EXPLAINED)
    assert not left, "\n".join(["found and not explained:", *map(str, left)])
    gone = outdated(findings, EXPLAINED)
    print("explained and not found this time:", *gone, sep="\n  ")
    assert not (SEARCH and gone)
    assert service.ask("GET", "/readyz").status == 200
