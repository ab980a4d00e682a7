"""PostgreSQL, loaded by pgbench."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from lab.errors import PreparationError
from lab.fields import Fields
from lab.processes import call
from lab.workloads.base import Listens, Progress, ServedWorkload, Site, WorkloadResult, find_number, whole_seconds

Script = Literal["select", "update"]
_PORT = 5432
_USER = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")
_INIT_TIMEOUT_S = 60.0
_SETTINGS = """\
listen_addresses = '*'
unix_socket_directories = ''
shared_buffers = 64MB
fsync = on
autovacuum = off
logging_collector = off
"""


@dataclass(frozen=True, slots=True)
class DatabaseWorkload(ServedWorkload):
    """pgbench on tables of `scale` x 100,000 accounts; `script` is its select-only script or its simple update."""

    kind: ClassVar[str] = "database"
    unit: ClassVar[str] = "transactions/s"
    progress: ClassVar[Progress] = "packets"
    listens: ClassVar[Listens] = ("tcp", _PORT)
    tools: ClassVar[tuple[str, ...]] = ("pgbench", "setpriv")

    script: Script = "select"
    scale: int = 1
    connections: int = 4

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        script: Script = fields.choice("script", ("select", "update"), "select")
        return cls(script, fields.whole("scale", 1, most=1000), fields.whole("connections", 4, most=64))

    def disk_mb(self) -> float:
        return 100.0 + 16.0 * self.scale

    def prepare(self, site: Site, /) -> None:
        """A cluster, made once and kept over the campaign."""
        data = self._data(site)
        if (data / "made").exists():
            return
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        owner = _owner()
        for folder in (data, *data.parents):
            if folder == site.files.parent:
                break
            folder.chmod(folder.stat().st_mode | 0o011)  # the server's user passes through, and lists nothing
        os.chown(data, owner.pw_uid, owner.pw_gid)
        make = [*_as_user(), _binary("initdb"), "-D", str(data), "-A", "trust", "-U", _USER, "--no-sync"]
        call(make, timeout_s=_INIT_TIMEOUT_S, directory=data)
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(_SETTINGS)
        with (data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write("host all all 0.0.0.0/0 trust\n")  # all who reach its own namespace
        (data / "made").touch()

    def server(self, site: Site, /) -> list[str]:
        return [*_as_user(), _binary("postgres"), "-D", str(self._data(site)), "-p", str(_PORT)]

    def ready_check(self, site: Site, /) -> list[str]:
        """Makes pgbench's tables anew, which succeeds once the server answers."""
        return ["pgbench", "-iq", "-s", str(self.scale), _url(site)]

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        script = "--select-only" if self.script == "select" else "--skip-some-updates"
        return [
            "pgbench", "-n", script, "-M", "prepared", "-c", str(self.connections), "-T", str(whole_seconds(seconds)),
            *([] if rate is None else ["--rate", f"{rate:.6f}"]),
            _url(site),
        ]  # fmt: skip

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        mean_ms = find_number(r"latency average = ([\d.]+) ms", output, "pgbench")
        return WorkloadResult(find_number(r"tps = ([\d.]+)", output, "pgbench"), latency_mean_ms=mean_ms)

    def _data(self, site: Site) -> Path:
        return site.files / f"database-{site.position}-{self.scale}"


def _url(site: Site) -> str:
    return f"postgresql://{_USER}@{site.address}:{_PORT}/postgres"


def _binary(name: str) -> str:
    """Debian keeps the server's programs out of the PATH; the newest version counts."""
    path = shutil.which(name) or max(map(str, _DEBIAN.glob(f"*/bin/{name}")), default=None)
    if path is None:
        raise PreparationError(f"{name} is not installed: apt-get install postgresql")
    return path


def _owner() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_USER)
    except KeyError:
        raise PreparationError(f"there is no user {_USER}: apt-get install postgresql") from None


def _as_user() -> list[str]:
    """PostgreSQL refuses root. A change of user clears the parent-death signal, so setpriv sets it again."""
    owner = _owner()
    return [
        "setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--pdeathsig", "KILL", "--",
    ]  # fmt: skip
