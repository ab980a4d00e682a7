"""OpenArena's dedicated server with bots at play: how fast it answers queries, and how fast it changes maps."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import ClassVar, Protocol, Self

from lab.fields import Fields
from lab.workloads.base import Listens, ServedWorkload, Site, WorkloadResult, program, report_of

_PORT = 27960
_SERVER = "/usr/lib/ioquake3/ioq3ded"  # what openarena-server starts; that is a shell script which would stay between
_DATA = Path("/usr/lib/openarena-server")
_FIRST_MAP = "oa_dm1"
_BOTS = ("grism", "kyonshi", "sarge", "angelyss", "gargoyle", "merman", "assassin", "beret")
# All large deathmatch maps of the Debian package, from 5.4 to 2.7 MB.
_MAPS = (
    "wrackdm17", "oa_minia", "suspended", "oa_pvomit", "delta", "czest1dm", "oa_dm2", "kaos", "oa_spirit3", "oa_shine",
)  # fmt: skip
_RCON = "lab"  # of a server that stands in a network of its own


class _Game(ServedWorkload, Protocol):
    """The server of both kinds."""

    __slots__ = ()

    takes_rate: ClassVar[bool] = False
    listens: ClassVar[Listens] = ("udp", _PORT)
    # games are not on every user's PATH
    tools: ClassVar[tuple[str, ...]] = ("/usr/games/openarena-server", "quakestat")

    @property
    def bots(self) -> int:
        """How many players the server plays itself, so that there is a game."""

    @property
    def changes(self) -> int:
        """How many maps `changes.cfg` loads one after another."""
        return 0

    def server(self, site: Site, /) -> list[str]:
        home = site.directory / "openarena"
        (home / "baseoa").mkdir(parents=True, exist_ok=True)
        start = [f"map {_FIRST_MAP}", "wait 20", *(f"addbot {name} 3" for name in _BOTS[: self.bots])]
        _write(home / "baseoa" / "start.cfg", start)
        changes = [f"map {name}" for name in islice(cycle(_MAPS), self.changes)]
        _write(home / "baseoa" / "changes.cfg", [*changes, "set sv_hostname changed"])
        settings = {
            "com_basegame": "baseoa", "com_protocol": "71", "com_legacyprotocol": "71", "fs_basepath": str(_DATA),
            "fs_homepath": str(home), "dedicated": "1", "net_port": str(_PORT), "net_enabled": "1", "cl_motd": "0",
            "ttycon": "0", "com_hunkmegs": "128", "sv_maxclients": "16", "sv_pure": "0", "bot_enable": "1",
            "rconPassword": _RCON, "sv_master1": "", "sv_hostname": "lab",
        }  # fmt: skip
        return [_SERVER, *(word for item in settings.items() for word in ("+set", *item)), "+exec", "start.cfg"]

    def ready_check(self, site: Site, /) -> list[str]:
        return program("game_queries", site.address, _PORT, 0)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join([*lines, ""]), encoding="ascii")


@dataclass(frozen=True, slots=True)
class GameWorkload(_Game):
    """Queries for its status, as many as its protection against floods allows (programs/game_queries.py).

    Throughput counts answers; jitter is the latencies' standard deviation, as in the paper (table 2 of
    latency-sensitive-cloud-2010). A query without an answer within a second counts as timed out. `further` has qstat's
    own pings, in whole ms.
    """

    kind: ClassVar[str] = "game"
    unit: ClassVar[str] = "answers/s"
    lead_s: ClassVar[float] = 0.03

    bots: int = 3

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        return cls(fields.whole("bots", 3, least=0, most=len(_BOTS)))

    def work(self, site: Site, seconds: float, _rate: float | None, /) -> list[str]:
        return program("game_queries", site.address, _PORT, f"{seconds:g}")

    def fill(self, _site: Site, _rate: float | None, /) -> list[str] | None:
        return None  # queries in the warm-up would use up the measured ones' allowance

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, "the query program") as report:
            queries = [*report["latencies_ms"], *report["qstat_ms"]]
            own, pings = _known(report["latencies_ms"]), _known(report["qstat_ms"])
            answers = len(own) + len(pings)
            throughput, lost = answers / float(report["seconds"]), 100 * (1 - answers / len(queries))
        further = {"qstat_latency_mean": (statistics.fmean(pings), "ms")} if pings else {}
        if not own:
            return WorkloadResult(throughput, timeouts_percent=lost, further=further)
        p95 = sorted(own)[min(len(own) - 1, int(0.95 * len(own)))]
        return WorkloadResult(throughput, statistics.fmean(own), p95, statistics.pstdev(own), lost, further=further)


@dataclass(frozen=True, slots=True)
class GameMapWorkload(_Game):
    """Changes of the map, one after another from one command, with the map files out of the page cache if `cold`.

    Run time is that of one change, from the command to the server's next answer; throughput is changes per second.
    """

    kind: ClassVar[str] = "game-map"
    unit: ClassVar[str] = "maps/s"
    lead_s: ClassVar[float] = 0.03
    fixed: ClassVar[bool] = True

    changes: int = 20
    bots: int = 3
    cold: bool = False

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        changes, bots = fields.whole("changes", 20, most=1000), fields.whole("bots", 3, least=0, most=len(_BOTS))
        return cls(changes, bots, fields.choice("cache", ("warm", "cold"), "warm") == "cold")

    def work(self, site: Site, _seconds: float, _rate: float | None, /) -> list[str]:
        cold = sorted((_DATA / "baseoa").glob("*.pk3")) if self.cold else []
        return program("change_maps", site.address, _PORT, _RCON, self.changes, *cold)

    def fill(self, _site: Site, _rate: float | None, /) -> list[str] | None:
        return None  # the bots play

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, "the program that changes maps") as report:
            seconds = float(report["seconds"]) / int(report["changes"])
            return WorkloadResult(1 / seconds, runtime_s=seconds)


def _known(values: list[object]) -> list[float]:
    return [float(str(value)) for value in values if value is not None]
