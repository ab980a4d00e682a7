"""Redis as key-value server, loaded by redis-benchmark at saturation or in an open loop at a requested rate."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import Listens, Progress, ServedWorkload, Site, WorkloadResult, excerpt, program
from lab.workloads.open_loop import at_rate, read_at_rate

Command = Literal["get", "set"]
_PORT = 6379
# redis-benchmark counts requests, not seconds: it repeats batches of so many, each with one line of results, until it
# is ended. A batch takes some 50 ms at full speed, so little is lost with the one that is cut off at the end.
_BATCH = 4000
_CONNECTIONS = 16
# The keys that redis-benchmark asks for with -r; safe to repeat.
_POPULATE = (
    "local value = string.rep('x', ARGV[2]) "
    "for i = 0, ARGV[1] - 1 do redis.call('SET', string.format('key:%012d', i), value) end return 'OK'"
)


@dataclass(frozen=True, slots=True)
class KeyValueWorkload(ServedWorkload):
    """One command on keys drawn at random from `keys`, with values of `value_bytes`; nothing is written to disk."""

    kind: ClassVar[str] = "key-value"
    unit: ClassVar[str] = "req/s"
    progress: ClassVar[Progress] = "sent"
    lead_s: ClassVar[float] = 0.03
    listens: ClassVar[Listens] = ("tcp", _PORT)
    tools: ClassVar[tuple[str, ...]] = ("redis-server", "redis-cli", "redis-benchmark", "stdbuf")

    command: Command = "get"
    keys: int = 10_000
    value_bytes: int = 1024

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        command: Command = fields.choice("command", ("get", "set"), "get")
        keys, size = fields.whole("keys", 10_000), fields.whole("value_bytes", 1024, most=1 << 20)
        if keys * size > 1 << 30:
            fields.wrong(fields.at("keys"), "times value_bytes must not be above 1 GiB of memory")
        return cls(command, keys, size)

    def server(self, site: Site, /) -> list[str]:
        anywhere = "0.0.0.0"  # noqa: S104 - of a namespace or a guest of its own
        return [
            "redis-server", "--port", str(_PORT), "--bind", anywhere, "--protected-mode", "no", "--save", "",
            "--appendonly", "no", "--daemonize", "no", "--dir", str(site.directory), "--loglevel", "warning",
        ]  # fmt: skip

    def ready_check(self, site: Site, /) -> list[str]:
        sizes = [str(self.keys), str(self.value_bytes)]
        return ["redis-cli", "-e", "-h", site.address, "-p", str(_PORT), "EVAL", _POPULATE, "0", *sizes]

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        if rate is not None:
            target = f"{self.command}:{self.keys}:{self.value_bytes}"
            return at_rate("redis", site, _PORT, target, rate, seconds)
        return program(
            "run_together", seconds, "--", "stdbuf", "--output=L", "redis-benchmark", "-h", site.address, "-p", _PORT,
            "-c", _CONNECTIONS, "-n", _BATCH, "-r", self.keys, "-d", self.value_bytes, "-t", self.command, "--csv",
            "-l",
        )  # fmt: skip

    def read(self, output: str, rate: float | None, /) -> WorkloadResult:
        """At saturation the mean over whole batches, also of their 95th percentiles.

        The time between batches, in which redis-benchmark reconnects, does not count.
        """
        if rate is not None:
            return read_at_rate(output)
        lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
        try:
            batches = [
                (float(row["rps"]), float(row["avg_latency_ms"]), float(row["p95_latency_ms"]))
                for row in csv.DictReader(lines)
            ]
            seconds = sum(_BATCH / rps for rps, _, _ in batches)
            throughput = len(batches) * _BATCH / seconds
        except (KeyError, TypeError, ValueError, ZeroDivisionError, csv.Error):
            raise RunError(
                f"redis-benchmark finished no {_BATCH} requests, measure for more seconds: {excerpt(output)}"
            ) from None
        mean, p95 = (sum(batch[place] for batch in batches) / len(batches) for place in (1, 2))
        return WorkloadResult(throughput, mean, p95)
