"""The agent as one file under a bare Python, and the capabilities of its systemd unit: enough, and all are needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from profiler.backends import LxcBackend
from research.benchmarks import light_containers

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "packaging" / "build_agent.py"
UNIT = ROOT / "packaging" / "cotenant-profiler.service"
UNPRIVILEGED = "65534"


def _bare_python() -> str | None:
    """An interpreter of 3.11 or newer that is not the one of this virtual environment."""
    for path in ("/usr/bin/python3", str(Path(sys.base_prefix) / "bin" / "python3")):
        test = "import sys; sys.exit(sys.version_info < (3, 11))"
        if Path(path).exists() and subprocess.run([path, "-I", "-S", "-c", test], check=False).returncode == 0:
            return path
    return None


PYTHON = _bare_python()
bare = pytest.mark.skipif(PYTHON is None, reason="needs Python 3.11 or newer outside of this environment")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("build") / "cotenant-profiler.pyz"
    done = subprocess.run([sys.executable, BUILD, "--out", target], capture_output=True, text=True, check=True)
    assert str(target) in done.stdout
    return target


def run(archive: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with neither site packages nor environment variables, in a folder with nothing of ours."""
    assert PYTHON is not None
    return subprocess.run(
        [PYTHON, "-I", "-S", str(archive), *arguments], capture_output=True, text=True, check=False, timeout=60,
        cwd="/", env={"PATH": os.environ["PATH"]},
    )  # fmt: skip


def test_the_same_sources_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    subprocess.run([sys.executable, BUILD, "--out", again], capture_output=True, check=True)
    assert again.read_bytes() == archive.read_bytes()


def test_it_holds_no_lab_no_tests_and_nothing_compiled(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    expected = {"__main__.py", "profiler/agent/loop.py", "prometheus_client/__init__.py", "rich/table.py", "LICENSE"}
    assert expected <= set(names)
    assert not [name for name in names if name.startswith("lab") or name.endswith((".pyc", ".so"))]
    assert len([name for name in names if "licenses/" in name]) >= 2, "what is passed on keeps its licence"
    assert archive.stat().st_size < 2_000_000
    assert os.access(archive, os.X_OK)


@bare
def test_once_and_check_work_with_only_python_as_tables_too(archive: Path) -> None:
    once = run(archive, "once", "--every", "0.1", "--json", "--backend", "lxc")
    assert once.returncode == 0, once.stderr
    assert any(sample["scope"] == "host" for sample in json.loads(once.stdout)["samples"])
    check = run(archive, "check", "--json")
    assert check.returncode == 0, check.stderr
    assert json.loads(check.stdout)["checks"]
    shown = run(archive, "once", "--every", "0.1", "--backend", "lxc")
    assert (shown.returncode, "driver domain" in shown.stdout) == (0, True), shown.stderr


@bare
@pytest.mark.measured
def test_the_agent_runs_with_only_python(archive: Path, tmp_path: Path) -> None:
    done = run(
        archive, "run", "--seconds", "3", "--window", "1", "--backend", "lxc", "--listen", "127.0.0.1:0", "--json",
        "--push", "http://127.0.0.1:1", "--spool", str(tmp_path / "spool"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["readings"] == 4
    assert summary["windows"] >= 2
    assert summary["spool"]["batches"] == summary["windows"]
    hello = json.loads(done.stderr.splitlines()[0])
    assert re.fullmatch(r"\d+\.\d+.*", hello["version"])


def _capabilities() -> str:
    (line,) = re.findall(r"^AmbientCapabilities=(.+)$", UNIT.read_text(), re.MULTILINE)
    return ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in line.split())


def _absences(archive: Path, capabilities: str, ours: set[str]) -> list[str]:
    """Why metrics are absent for an unprivileged user with these capabilities, where it says that more would help.

    Of the host and of our containers: those of others on this host come and go meanwhile.
    """
    assert PYTHON is not None
    dropped = [
        "setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", "--no-new-privs",
        f"--inh-caps=-all{capabilities}", f"--ambient-caps=-all{capabilities}", f"--bounding-set=-all{capabilities}",
    ]  # fmt: skip
    command = [*dropped, PYTHON, "-I", "-S", str(archive), "once", "--every", "0.3", "--json", "--backend", "lxc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert ours <= {instance["id"] for instance in document["instances"]}
    reasons = {absence["reason"] for absence in document["absent"] if absence["instance"] in {None, *ours}}
    return sorted(reason for reason in reasons if re.search(r"root|permission|could be read|denied", reason))


@bare
@pytest.mark.lab
def test_the_units_capabilities_are_enough_to_read_containers_and_all_are_needed(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (apt-get install util-linux)")
    # its own list, so that a benchmark may run beside
    monkeypatch.setattr(light_containers, "STATE", tmp_path / "state")
    where = Path("/tmp") / f"cotenant-{os.getpid()}.pyz"  # the user `nobody` may not look into pytest's own folders
    shutil.copy(archive, where)
    try:
        with light_containers.LightContainers(2) as made:
            ours = {group.removeprefix("cotenant-lab-") for group in made.groups}
            assert _absences(where, f",{_capabilities()}", ours) == []
            # A kernel on which some group ever had a disk limit counts bytes by group, and files of tasks are not read.
            there = LxcBackend().read_counters().instances
            by_group = all(there[name].disk_bytes is not None for name in ours)
            for name in _capabilities().split(","):
                if name == "+sys_ptrace" and by_group:
                    continue
                assert _absences(where, f",{name}", ours), f"{name} alone should not be enough"
    finally:
        where.unlink()
