"""Programs under the filters of their units, set by the library that systemd uses: they do without what is refused."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.synthetic import World
from tests.packaging import units
from tests.packaging.units import PACKAGING, ROOT
from tests.servers.running import Running, free_port
from tests.servers.service import Answer, ask

SERVICE, AGENT = PACKAGING / "cotenant.service", PACKAGING / "cotenant-profiler.service"
COTENANT, PROFILER = (Path(sys.executable).with_name(name) for name in ("cotenant", "cotenant-profiler"))
CLOUD = ROOT / "examples" / "cloud.yaml"
INVENTORY = {
    "mode": "replace",
    "hosts": [{"id": f"h{number}", "kind": "lxc", "pcpus": 4, "memory_mb": 8192} for number in (1, 2)],
    "instances": [{"id": "a", "host": "h1", "memory_mb": 512}, {"id": "b", "host": "h2", "memory_mb": 512}],
}
FORBIDDEN = """
import ctypes, mmap, os
def refused(what):
    try:
        what()
    except PermissionError:
        return True
libc = ctypes.CDLL(None, use_errno=True)
def executable():  # what was written before
    page = mmap.mmap(-1, 4096)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if libc.mprotect(address, ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect")
print(refused(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)),
      refused(executable), refused(lambda: os.nice(1)), refused(lambda: os.chroot("/")))
"""
# Commands one after the other in one process; a training takes few trees.
COMMANDS = """
import json, sys
import pytest
from api.cli import main
from tests.models.made_models import limit_trees
limit_trees(pytest.MonkeyPatch(), boosters=1, folds=2)
for words in json.loads(sys.argv[1]):
    sys.argv = ["cotenant", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print("====")
"""
# What /proc/<pid>/mem is to one who may look into every process; the argument is another process.
WRITE_MEMORY = "import sys; open(f'/proc/{sys.argv[1]}/mem', 'r+b')"


@pytest.fixture(autouse=True)
def _possible() -> None:
    if shutil.which("systemd-analyze") is None or ctypes.util.find_library("seccomp") is None:
        pytest.skip("needs systemd-analyze and libseccomp (apt-get install systemd)")


def confined(unit: Path, *argv: str | Path) -> list[str]:
    return [sys.executable, units.__file__, str(unit), "--", *map(str, argv)]


def said(*argv: str | Path, **settings: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **settings},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_filter_nothing_of_it_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for chroot(2)")
    assert said(sys.executable, "-c", FORBIDDEN).split() == ["None"] * 4


@pytest.mark.parametrize("unit", [SERVICE, AGENT], ids=lambda unit: unit.stem)
def test_memory_cannot_be_written_and_run_and_resources_and_the_root_cannot_be_changed(unit: Path) -> None:
    assert said(*confined(unit, sys.executable, "-c", FORBIDDEN)).split() == ["True"] * 4


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("state")
    return {"COTENANT_DATABASE": f"sqlite:///{folder}/db.sqlite3", "COTENANT_STATE_DIR": str(folder)}


@dataclass(frozen=True)
class Done:
    """What commands did under the unit's filters: the version that was trained, and the file with a plan's report."""

    trained: str
    report: Path
    proven: bool


@pytest.fixture(scope="module")
def done(state: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("done")
    dataset, report = World(workloads=4, repeats=1).write(folder / "world"), folder / "plan.html"
    new_vms = CLOUD.with_name("new-vms.yaml")
    commands = (
        ("train", "--dataset", dataset, "--json"),
        ("plan", CLOUD, "--add", new_vms, "--json", "--report", report),
    )
    words = json.dumps(commands, default=str)
    argv = confined(SERVICE, sys.executable, "-c", COMMANDS, words)
    trained, planned, _ = said(*argv, **state, MPLCONFIGDIR=str(folder / "matplotlib")).split("====\n")
    return Done(json.loads(trained)["version"], report, json.loads(planned)["search"]["ended"] == "optimal")


@pytest.fixture(scope="module")
def service(state: dict[str, str], done: Done, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service under the filters, with a cloud, in which the model answers."""
    url = f"http://127.0.0.1:{free_port()}"
    argv = confined(SERVICE, COTENANT, "serve", "--listen", url.removeprefix("http://"), "--workers", "2")
    log = tmp_path_factory.mktemp("log") / "log"
    running = Running(argv, lambda: _ready(url), log, drop=False, environment=state)
    running.start()
    assert ask(f"{url}/v1/inventory", "PUT", INVENTORY).status == 200
    assert ask(f"{url}/v1/models/{done.trained}/activate", "POST", {"force": True}).status == 200
    yield url
    running.stop()
    assert "Traceback" not in running.log.read_text()


def _ready(url: str) -> bool:
    try:
        return ask(f"{url}/readyz").status == 200
    except OSError:
        return False


def test_the_service_answers_by_what_it_trained_and_plans(service: str, done: Done) -> None:
    answer: Answer = ask(f"{service}/v1/placements", "POST", {"instance": {"id": "n", "vcpus": 1, "memory_mb": 256}})
    assert (answer.status, answer.body["model_version"]) == (200, done.trained)
    plan = ask(f"{service}/v1/plans", "POST", {"kind": "consolidate"})
    assert plan.status == 200, plan.body


def test_plans_and_their_pictures_are_made_by_libraries_that_need_no_memory_to_be_written_and_run(done: Done) -> None:
    assert done.proven
    assert "<svg" in done.report.read_text()


def test_the_agent_reads_this_host() -> None:
    found = json.loads(said(*confined(AGENT, PROFILER, "once", "--json")))
    assert {"busy", "switch", "event"} <= {sample["metric"] for sample in found["samples"]}
    assert "not permitted" not in json.dumps(found)


@pytest.mark.lab
@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_only_proc_keeps_who_may_trace_from_writing_to_others_memory(read_only: bool) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare (util-linux) for a mount namespace")
    mount = ["mount", "-o", "remount,bind,ro", "/proc", "/proc"]
    program = f"import os, subprocess\nif {read_only}: subprocess.run({mount}, check=True)\n{WRITE_MEMORY}"
    argv = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", program, str(os.getpid())]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is not read_only, done.stderr
    assert ("Read-only file system" in done.stderr) is read_only
