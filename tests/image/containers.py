"""The image built by buildah and run by podman, in a storage of its own and from a base made of Debian's packages.

Everything happens in a mount namespace of the test, so that nothing is mounted on the machine, and nothing is left in
its own storage of images or in /dev/shm.
"""

from __future__ import annotations

import ast
import configparser
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.running import NotInstalled, as_child, found

ROOT = Path(__file__).resolve().parents[2]
SECLUDED = Path(__file__).with_name("secluded.py")
TOOLS = ("buildah", "podman", "crun", "mmdebstrap", "unshare", "nsenter", "setpriv")
BASE, IMAGE = "localhost/cotenant-base", "localhost/cotenant"
VOLUME = "state"
SOURCES = tuple(Path("/etc/apt") / name for name in ("sources.list.d/debian.sources", "sources.list"))
PIP_WORDS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
STEP_S = 900.0
# As docs/operations.md runs it, with the limits that a machine without CAP_SYS_RESOURCE can give, and no network.
CLOSED = (
    "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--volume", f"{VOLUME}:/var/lib/cotenant",
    "--network", "none", "--cgroups", "disabled", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096",
    "--no-healthcheck", "--pull", "never",
)  # fmt: skip


class Containers:
    """Images and containers of one test, all below `folder`."""

    def __init__(self, folder: Path, namespace: int) -> None:
        self.folder = folder
        self._namespace = namespace

    def build(self) -> None:
        """The image by its own Dockerfile, with this machine's index of packages as a secret."""
        self._make_base()
        secrets = [f"--secret=id={name},src={path}" for name, path in _pip_secrets(self.folder).items()]
        argv = ["build", "--isolation", "chroot", "--format", "docker", "--pull=never", *secrets]
        self.buildah(*argv, "--build-arg", f"BASE={BASE}", "--tag", IMAGE, str(ROOT))

    def _make_base(self) -> None:
        """Debian with Python, as the image's usual base is one, of the packages that this machine can get."""
        sources = next((path for path in SOURCES if path.exists()), None)
        if sources is None:
            raise NotInstalled(f"there is none of {', '.join(map(str, SOURCES))} to make a base from")
        tree = self.folder / "base.tar"
        argv = ["--quiet", "--variant=minbase", "--include=ca-certificates,python3,python3-venv"]
        self._inside(found("mmdebstrap"), *argv, _release(), str(tree), str(sources))
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(tree), "/")
        self.buildah("commit", "--quiet", "--rm", container, BASE)
        tree.unlink()

    def buildah(self, *arguments: str) -> str:
        return self._inside(found("buildah"), *self._storage(), *arguments).stdout

    def podman(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._inside(*self._podman(arguments), check=check)

    def podman_argv(self, *arguments: str) -> list[str]:
        """What to start so that podman runs beside the test."""
        return [*self._enter(), *self._podman(arguments)]

    def _podman(self, arguments: Sequence[str]) -> list[str]:
        own = ["--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime", "crun"]
        return [found("podman"), *self._storage(), *own, "--tmpdir", str(self.folder / "tmp"), *arguments]

    def _storage(self) -> list[str]:
        return ["--root", str(self.folder / "root"), "--runroot", str(self.folder / "run"), "--storage-driver=overlay"]

    def _inside(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        return _run([*self._enter(), *argv], STEP_S, environment, check=check)

    def _enter(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._namespace}/ns/mnt", f"--wd={ROOT}"]

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run the image in the foreground until it ends, whatever its exit code."""
        return self.podman("run", "--rm", *CLOSED, *_given(settings), IMAGE, *arguments, check=False)

    def shell(self, script: str, *options: str) -> str:
        """What a shell in the image says to a script."""
        return self.podman("run", "--rm", *CLOSED, *options, "--entrypoint", "sh", IMAGE, "-c", script).stdout

    @contextmanager
    def service(self, **settings: str) -> Iterator[Serving]:
        """The image as it serves by itself, in the background."""
        name = f"cotenant-{uuid.uuid4().hex}"
        self.podman("run", "--detach", "--name", name, *CLOSED, *_given(settings), IMAGE)
        try:
            yield Serving(self, name)
        finally:
            self.podman("rm", "--force", "--time", "0", name)


class Serving:
    """A container that serves; whoever asks it does so from inside, since it has no network."""

    def __init__(self, containers: Containers, name: str) -> None:
        self._containers = containers
        self._name = name

    def python(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._containers.podman("exec", self._name, "python", "-c", program, *arguments, check=False)

    def execute(self, *argv: str) -> int:
        return self._containers.podman("exec", self._name, *argv, check=False).returncode

    def signal(self, name: str) -> None:
        self._containers.podman("kill", "--signal", name, self._name)

    def exit_code(self) -> int:
        """Wait until it has ended."""
        return int(self._containers.podman("wait", self._name).stdout)

    def log(self) -> str:
        done = self._containers.podman("logs", self._name)
        return done.stdout + done.stderr


@contextmanager
def containers(tools: Sequence[str] = TOOLS) -> Iterator[Containers]:
    """An empty storage and its namespace; NotInstalled says what is missing for one."""
    if os.geteuid() != 0:
        raise NotInstalled("needs root for a mount namespace and a base system")
    for tool in tools:
        found(tool)
    folder = Path(tempfile.mkdtemp(prefix="cotenant-image-", dir="/var/tmp"))  # gigabytes, which /tmp may not have
    folder.chmod(0o711)  # apt-get fetches as a user of its own
    argv = [*as_child(drop=False), "unshare", "--mount", "--propagation", "private", sys.executable, str(SECLUDED)]
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as namespace:
            try:
                if namespace.stdout is None or namespace.stdout.readline() != b"ready\n":
                    raise NotInstalled("needs leave to make a mount namespace")
                yield Containers(folder, namespace.pid)
            finally:
                namespace.kill()
    finally:
        shutil.rmtree(folder)


def _given(settings: Mapping[str, str]) -> list[str]:
    return [f"--env=COTENANT_{name.upper()}={value}" for name, value in settings.items()]


def _release() -> str:
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith("VERSION_CODENAME="))


def _pip_secrets(folder: Path) -> dict[str, Path]:
    """This machine's way to its index of packages as the Dockerfile takes it: pip.conf, and ca.pem where one is set."""
    values = pip_configuration()
    written = configparser.RawConfigParser()
    written["global"] = {word: values[word] for word in PIP_WORDS if word in values}
    secrets = {"pip.conf": folder / "pip.conf"}
    if certificate := values.get("cert"):
        written["global"]["cert"] = "/run/secrets/ca.pem"
        secrets["ca.pem"] = Path(certificate)
    with os.fdopen(os.open(secrets["pip.conf"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        written.write(file)
    return secrets


def pip_configuration() -> dict[str, str]:
    """What pip goes by here: its files, and above them its variables."""
    listed = _run([sys.executable, "-m", "pip", "config", "list"], 60).stdout.splitlines()
    pairs = [line.partition("=")[::2] for line in sorted(listed, key=lambda line: line.startswith(":env:"))]
    return {name.rpartition(".")[2]: str(ast.literal_eval(value)) for name, value in pairs}


def _run(
    argv: list[str], timeout_s: float, environment: Mapping[str, str] | None = None, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{argv} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done
