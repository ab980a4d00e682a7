"""The systemd unit of the service: accepted, little exposed, and with settings that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from advisor.settings import Settings
from api.cli import app

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "cotenant.service"
ENVIRONMENT = ROOT / "packaging" / "cotenant.env"


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("needs systemd-analyze (apt-get install systemd)")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "cotenant"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/cotenant/bin/cotenant", str(program)))
    checked = analyze("verify", str(unit))
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_it_is_little_exposed() -> None:
    judged = analyze("security", "--offline=true", "--no-pager", str(UNIT))
    level = re.search(r"Overall exposure level for .*: ([0-9.]+)", judged.stdout)
    assert level
    assert float(level[1]) < 2.0, judged.stdout


def test_the_example_names_settings_and_options_that_there_are() -> None:
    lines = [line.lstrip("#") for line in ENVIRONMENT.read_text().splitlines() if re.match(r"#?[A-Z]+", line)]
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and " " not in line.partition("=")[0])
    options = pairs.pop("COTENANT_SERVE_OPTIONS").split()
    names = {name.removeprefix("COTENANT_").lower() for name in pairs if name.startswith("COTENANT_")}
    assert {"database", "state_dir", "listen"} <= names <= set(Settings.model_fields)
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    assert {option for option in options if option.startswith("--")} <= {o for p in serve.params for o in p.opts}


def test_it_has_the_time_to_end_that_it_needs() -> None:
    from api.serving import GRACE_S

    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    (drain,) = re.findall(r"^COTENANT_DRAIN_S=(\d+)$", ENVIRONMENT.read_text(), re.MULTILINE)
    assert int(seconds) > int(drain) + GRACE_S
