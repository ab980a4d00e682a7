"""The wheels, installed without the source and used: `make test-wheels`. Downloads what they require."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shown_commands import is_run
from tests.docs.test_links_and_commands import shown
from tests.models.synthetic import World
from tests.packaging.programs import load
from tests.packaging.test_completions import INTO, completed

ROOT = Path(__file__).resolve().parents[2]

# Distributions beside the service.
PARTS = load("release").PARTS
OF_THE_SERVICE = ("cotenant", "cotenant_client", "cotenant_profiler")
MOST_BYTES = 500_000_000  # of an installed service with all that it requires, pip included
# What only extras and other distributions bring.
PLUG_INS = [f"cotenant_{Path(part).name}" for part in PARTS if part.startswith("integrations/")]
NOT_THERE = (
    *PLUG_INS, "defusedxml", "lab", "research", "lightgbm", "matplotlib", "numba", "openstack", "ortools", "pandas",
    "psycopg", "pyarrow", "river", "sklearn",
)  # fmt: skip
OF_THE_SERVER = ("numpy", "pydantic", "sqlalchemy", "fastapi", "typer", "advisor", "models", "api")
# Exit codes of commands that may find something: a plan leaves an instance out, a host or a cloud lacks something.
FOUND = {"cotenant plan": {0, 3}, "cotenant doctor": {0, 1}, "cotenant-profiler check": {0, 1}}
Ask = Callable[..., dict[str, Any]]
Wheels = dict[str, Path]  # by distribution
installed = pytest.mark.skipif(os.environ.get("COTENANT_TEST_WHEELS") != "1", reason="make test-wheels")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """All wheels, built from a copy of what git keeps: nothing else may be needed."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
    tar = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"], cwd=ROOT, input=files, capture_output=True, check=True
    )
    subprocess.run(["tar", "--extract"], cwd=source, input=tar.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*pip, made, *(source / part for part in PARTS), source], check=True)
    names = ("cotenant", *(f"cotenant_{Path(part).name}" for part in PARTS))
    return {name: next(made.glob(f"{name}-*.whl")) for name in names}


def environment(folder: Path, constraints: Path, *wheels: Path | str) -> Path:
    """A new environment with these wheels or extras of them and what they require, as locked; its programs' folder."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--constraint", constraints, *wheels], check=True)
    subprocess.run([*pip, "check"], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked versions without hashes: pip demands hashes of our own wheels, too, where it sees any."""
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("lock") / "constraints.txt"
    path.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", locked, re.MULTILINE)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, constraints: Path, wheels: Wheels) -> Path:
    """The service without any extra."""
    return environment(
        tmp_path_factory.mktemp("server") / "venv", constraints, *(wheels[name] for name in OF_THE_SERVICE)
    )


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, constraints: Path, wheels: Wheels) -> Path:
    """All distributions with all extras."""
    extras = f"{wheels['cotenant']}[all]"
    others = [wheel for name, wheel in wheels.items() if name != "cotenant"]
    return environment(tmp_path_factory.mktemp("everything") / "venv", constraints, extras, *others)


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory, constraints: Path, wheels: Wheels) -> Path:
    return environment(tmp_path_factory.mktemp("profiler") / "venv", constraints, wheels["cotenant_profiler"])


def run(program: Path, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run it outside of the repository, without a Python path."""
    return subprocess.run([program, *arguments], cwd=cwd, env=bare(), capture_output=True, text=True, check=False)


def bare() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COTENANT_", "PYTHON"))}
    return kept | {"COTENANT_LOG_LEVEL": "warning"}


@installed
def test_no_file_belongs_to_two_wheels(wheels: Wheels) -> None:
    names = [name for wheel in wheels.values() for name in zipfile.ZipFile(wheel).namelist()]
    assert len(names) == len(set(names))


@installed
def test_the_wheels_carry_what_the_tree_has_beside_python(wheels: Wheels) -> None:
    carried = {name for wheel in wheels.values() for name in zipfile.ZipFile(wheel).namelist()}
    for pattern in (
        "api/html/**/*", "api/cli/demo_cloud/*", "advisor/store/migrations/**/*", "advisor/templates/*",
        "lab/show/templates/*", "profiler/look/*", "cotenant_client/py.typed",
    ):  # fmt: skip
        there = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern) if path.is_file()]
        wanted = {name for name in there if "__pycache__" not in name}
        assert wanted <= carried, pattern


@installed
@pytest.mark.parametrize("program", ["cotenant", "cotenant-lab", "cotenant-profiler", "cotenant-research"])
def test_every_program_helps(everything: Path, program: str, tmp_path: Path) -> None:
    done = run(everything / program, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@installed
@pytest.mark.parametrize(
    ("shell", "program", "begun", "offered"),
    [
        *((shell, "cotenant", "pl", {"plan", "plans"}) for shell in INTO),
        *((shell, "cotenant-profiler", "pro", {"probe"}) for shell in ("bash", "zsh")),
        *((shell, "cotenant-lab", "sh", {"show"}) for shell in ("bash", "zsh")),
        *((shell, "cotenant-research", "fi", {"findings"}) for shell in INTO),
    ],
)
def test_a_shell_completes_what_a_wheel_has_installed(
    everything: Path, shell: str, program: str, begun: str, offered: set[str]
) -> None:
    assert completed(shell, everything.parent / INTO[shell], program, begun, programs=everything) == offered


@installed
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_the_agent_where_it_is_alone(profiler: Path, shell: str) -> None:
    offered = completed(shell, profiler.parent / INTO[shell], "cotenant-profiler", "pro", programs=profiler)
    assert offered == {"probe"}


@installed
def test_an_installed_service_is_small_and_has_no_library_that_only_extras_need(server: Path, tmp_path: Path) -> None:
    there = "import sys; from importlib.util import find_spec; print([x for x in sys.argv[1:] if find_spec(x)])"
    assert run(server / "python", "-c", there, *NOT_THERE, cwd=tmp_path).stdout == "[]\n"
    files = [path for path in server.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


@pytest.fixture(scope="module")
def cloud(server: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the demo."""
    folder = tmp_path_factory.mktemp("cloud")
    assert run(server / "cotenant", "demo", "--out", "demo", cwd=folder).returncode == 0
    return folder / "demo"


@installed
def test_a_plan_is_made_and_its_report_says_why_it_has_no_pictures(server: Path, cloud: Path, tmp_path: Path) -> None:
    words = ("plan", cloud / "cloud.yaml", "--add", cloud / "new-vm.yaml", "--json", "--report", "plan.html")
    done = run(server / "cotenant", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"][0]["host"].startswith("kvm")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "<svg" not in page
    assert "matplotlib is not installed (pip install &#39;cotenant[plots]&#39;)" in page


@installed
def test_a_report_has_pictures_where_matplotlib_is_installed(everything: Path, tmp_path: Path) -> None:
    words = ("report", ROOT / "examples" / "kvm-64.yaml", "--out", "cloud.html")  # a calm cloud has nothing to draw
    assert run(everything / "cotenant", *words, cwd=tmp_path).returncode == 0
    page = (tmp_path / "cloud.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "cotenant[plots]" not in page


@installed
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("train", "--no-register", "--dataset", "."), "cotenant[train]"),
        (("evaluate", "--dataset", "."), "cotenant[train]"),
        (("replay", "cloud.yaml"), "cotenant[traces]"),
        (("sync", "openstack"), "cotenant[openstack]"),
        (("sync", "kubernetes"), "cotenant[kubernetes]"),
        (("migrate", "kubernetes", "--server", "http://127.0.0.1:9"), "cotenant[kubernetes]"),
        (("sync", "proxmox"), "cotenant[proxmox]"),
        (("history", "proxmox"), "cotenant[proxmox]"),
        (("sync", "cloudstack"), "cotenant[cloudstack]"),
        (("sync", "xapi"), "cotenant[xapi]"),
        (("history", "gnocchi"), "cotenant[openstack]"),
        (("history", "node-exporter", "--cloud", "west"), "cotenant[openstack]"),
        (("db", "upgrade", "--database", "postgresql://db/cotenant"), "cotenant[postgresql]"),
        (("profile", "a", "--samples", "cloud.yaml", "--picture", "a.png"), "cotenant[plots]"),
        (("probe-plan", "cloud.yaml", "--campaign", "next.yaml"), "cotenant-lab"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else one,
)
def test_what_is_not_installed_is_named_in_one_sentence(
    server: Path, cloud: Path, words: tuple[str, ...], extra: str
) -> None:
    done = run(server / "cotenant", *words, cwd=cloud)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert re.search(rf" needs .*: pip install '?{re.escape(extra)}'?$", done.stderr.strip())


@installed
def test_a_model_answers_the_same_where_nothing_is_installed_that_trains(
    server: Path, everything: Path, cloud: Path, tmp_path: Path
) -> None:
    dataset = World(workloads=4, repeats=1).write(tmp_path / "world")
    trained = run(everything / "cotenant", "train", "--no-register", "--dataset", dataset, "--json", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    model = tmp_path / json.loads(trained.stdout)["artifact"]
    words = ("where", cloud / "cloud.yaml", "--instance", cloud / "new-vm.yaml", "--model", model, "--json")
    answers = [json.loads(run(where / "cotenant", *words, cwd=tmp_path).stdout) for where in (server, everything)]
    assert answers[0]["model_version"] == model.name
    assert answers[0]["candidates"] == answers[1]["candidates"]


@installed
def test_the_demo_answers_without_the_repository(server: Path, tmp_path: Path) -> None:
    done = run(server / "cotenant", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "shop-151 should go to kvm" in done.stdout
    assert list(tmp_path.iterdir()) == []


def ended(programs: Path, line: str, cwd: Path) -> str:
    """What is wrong with how a command of a document ended; empty = nothing."""
    program, *words = shlex.split(line)
    done = run(programs / program, *words, cwd=cwd)
    good = done.returncode in FOUND.get(" ".join([program, *words[:1]]), {0}) and "Traceback" not in done.stderr
    return "" if good else f"{line} ended with {done.returncode}: {done.stderr[-300:]}"


@installed
def test_the_commands_that_documents_show_run_from_the_wheels(everything: Path, tmp_path: Path) -> None:
    for name in ("examples", "datasets", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines = dict.fromkeys(line.strip() for _, line in shown() if is_run(line))
    lines = dict.fromkeys(["cotenant db upgrade", *lines])
    assert [wrong for line in lines if (wrong := ended(everything, line, tmp_path))] == []


@installed
def test_the_database_is_upgraded_by_the_migrations_in_the_wheel(server: Path, tmp_path: Path) -> None:
    done = run(server / "cotenant", "db", "upgrade", "--database", f"sqlite:///{tmp_path}/c.sqlite3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "revision" in done.stdout


@installed
@pytest.mark.parametrize("command", [("serve",), ("demo", "--serve")], ids=" ".join)
def test_the_service_answers_a_question(server: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    database = ("--database", f"sqlite:///{tmp_path}/c.sqlite3") if command == ("serve",) else ()
    host = {"kind": "kvm", "pcpus": 64, "memory_mb": 524288}
    question = {"instance": {"id": "new", "vcpus": 4, "memory_mb": 8192}}
    with served(server, *command, *database, cwd=tmp_path) as ask:
        if command == ("serve",):
            ask("PUT", "/v1/hosts/kvm01", host)
        answer = ask("POST", "/v1/placements", question)
    assert answer["candidates"][0]["host"].startswith("kvm")


@contextmanager
def served(programs: Path, *command: str, cwd: Path) -> Iterator[Ask]:
    """The service on a free port of this machine, until the end of the block; gives what asks it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = [str(programs / "cotenant"), *command, "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(arguments, cwd=cwd, env=bare(), stderr=subprocess.PIPE, text=True)

    def ask(method: str, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as response:
            return dict(json.loads(response.read() or b"{}"))

    try:
        for _ in range(600):
            try:
                ask("GET", "/readyz")
                break
            except OSError:
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.1)
        yield ask
    finally:
        process.terminate()
        process.communicate(timeout=60)


@installed
def test_the_profiler_alone_checks_a_host_without_the_libraries_of_the_server(profiler: Path, tmp_path: Path) -> None:
    for module in OF_THE_SERVER:
        assert run(profiler / "python", "-c", f"import {module}", cwd=tmp_path).returncode == 1, module
    assert run(profiler / "cotenant-profiler", "--help", cwd=tmp_path).returncode == 0
    done = run(profiler / "cotenant-profiler", "check", "--json", cwd=tmp_path)
    assert done.returncode in {0, 1}, done.stderr  # 1 where this host lacks what it checks
    assert "Traceback" not in done.stderr


@installed
def test_the_client_alone_asks_without_the_libraries_of_the_server(
    tmp_path_factory: pytest.TempPathFactory, constraints: Path, wheels: Wheels, tmp_path: Path
) -> None:
    client = environment(tmp_path_factory.mktemp("client") / "venv", constraints, wheels["cotenant_client"])
    for module in (*OF_THE_SERVER, "profiler"):
        assert run(client / "python", "-c", f"import {module}", cwd=tmp_path).returncode == 1, module
    program = "from cotenant_client import Client; Client('http://127.0.0.1:1', tries=1).ready()"
    done = run(client / "python", "-c", program, cwd=tmp_path)
    assert "Unavailable: http://127.0.0.1:1 cannot be asked: nothing listens there" in done.stderr
