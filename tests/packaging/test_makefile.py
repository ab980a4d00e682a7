"""`make setup` on a machine where something is missing: it says what to install, and goes on once it is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _make(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    program.chmod(0o755)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    argv = ["make", "-C", str(ROOT), "setup", f"VENV={folder}/venv", f"PYTHON={program}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=environment)


pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def test_without_ensurepip_it_names_the_package_and_leaves_no_half_environment(tmp_path: Path) -> None:
    done = _make(tmp_path, 'case "$*" in *ensurepip*) exit 1;; esac')
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == "Python's ensurepip is missing: apt-get install python3-venv"
    assert not (tmp_path / "venv").exists()


def test_an_environment_without_pip_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/false")
    asked = tmp_path / "asked"
    _make(tmp_path, f'echo "$*" >> {asked}')
    assert f"-m venv --clear {tmp_path}/venv" in asked.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("broke_off", [False, True])
def test_after_an_installation_that_broke_off_all_is_installed_anew(tmp_path: Path, *, broke_off: bool) -> None:
    (tmp_path / "venv").mkdir()
    if broke_off:
        (tmp_path / "venv" / ".broke-off").touch()
    argv = ["make", "--dry-run", "-C", str(ROOT), "setup", f"VENV={tmp_path}/venv"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    installs = [line for line in done.stdout.splitlines() if "requirements.lock" in line]
    assert len(installs) == 2
    assert [("reinstall" in line) for line in installs] == [broke_off, broke_off]


def test_an_old_python_is_refused_with_its_version_before_anything_is_made(tmp_path: Path) -> None:
    done = _make(tmp_path, '[ "$1" = -V ] && echo Python 3.9.18; exit 1')
    assert done.returncode != 0
    said = f"Cotenant needs Python 3.11 or newer, and {tmp_path}/python is Python 3.9.18: name another, PYTHON=..."
    assert done.stderr.splitlines()[0] == said
    assert not (tmp_path / "venv").exists()
