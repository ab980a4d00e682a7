"""A lab that is killed at any moment leaves no program running, and the next one removes what it made."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from lab.processes import wait_until
from lab.resource_registry import clean
from lab.volume import TOOLS
from tests.lab.container_run import left_of, native_programs_alone, programs_of

pytestmark = pytest.mark.lab
_LAB = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.lab.container_run import placed
from lab.campaign import Volume
from lab.control_groups import GroupMaker
from lab.instances import RunSetup
from lab.instances.containers import ContainerInstances
from lab.instances.native import NativeInstances
from lab.resource_registry import ResourceRegistry
from lab.volume import mounted_volume
from lab.workloads import CpuWorkload, WebWorkload
containers = (ContainerInstances, (WebWorkload(1), WebWorkload(1)))
natives = (NativeInstances, (CpuWorkload(), CpuWorkload()))
kind, works = {"container": containers, "native": natives, "volume": containers}[sys.argv[3]]
maker, registry, folder = GroupMaker(), ResourceRegistry(Path(sys.argv[2]) / "state"), Path(sys.argv[2])
maker.prepare()
print(registry.run, flush=True)
scratch = registry.directory(folder)
registry.made("directory", str(scratch))
scratch.mkdir()
if sys.argv[3] == "volume":
    mounted = mounted_volume(registry, maker, scratch, Volume(50.0), 100.0)
    scratch = mounted.__enter__()
while True:
    with kind(RunSetup(registry, (placed(0), placed(1)), works, scratch), maker) as made:
        one = made.running[0]
        load = one.start(one.workload.work(one.site, 1, None))
        print("works", flush=True)
        while load.returncode is None: pass
        load.stop()
"""


@pytest.mark.parametrize(
    ("backing", "seed"),
    [("container", 0), ("container", 1), ("container", 2), ("native", 3), ("volume", 4), ("volume", 5)],
)
def test_after_kill_9_at_any_moment_nothing_runs_on_and_clean_removes_the_rest(
    tmp_path: Path, backing: str, seed: int
) -> None:
    if backing == "volume" and not all(map(shutil.which, TOOLS)):
        pytest.skip(f"needs {', '.join(sorted(TOOLS))}")
    argv: list[str | Path] = [sys.executable, "-c", _LAB, Path(__file__).parents[2], tmp_path, backing]
    with native_programs_alone() if backing == "native" else nullcontext():
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as lab:
            assert lab.stdout is not None
            try:
                run = lab.stdout.readline().strip()
                assert wait_until(lambda: _listed(tmp_path / "state") > 0, 30)  # else there is nothing to clean
                if seed % 2:
                    assert lab.stdout.readline() == "works\n"
                time.sleep(random.Random(seed).uniform(0, 0.25))  # in the middle of building, or of working
                assert lab.poll() is None
            finally:
                lab.kill()
        assert wait_until(lambda: programs_of(run) == [], 20)
        assert clean(tmp_path / "state")
        assert wait_until(lambda: left_of(run) == [], 20), left_of(run)  # devices go a moment after their namespace
        assert run not in Path("/proc/self/mounts").read_text()
        assert [path.name for path in tmp_path.iterdir()] == ["state"]


def _listed(state: Path) -> int:
    """Bytes of what a lab lists there as made."""
    return sum(path.stat().st_size for path in state.glob("*.jsonl"))
