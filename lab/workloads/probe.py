"""The profiler's probes as workloads: `cotenant-profiler probe NAME` beside neighbours."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import PROGRAMS, Listens, Site, Workload, WorkloadResult, report_of
from profiler.probes import PROBES, load
from profiler.probes.sessions import DEFAULT_PORT

_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
# Names of a probe's values that are outcomes of the dataset format where they are times.
_MEAN, _P95, _JITTER = "mean", "p95", "stdev"
# Of a throughput more is better: a time becomes how often it fits into a second, and a loss becomes what is left.
_LOSSES = ("loss",)
_RATES = {"cpu-share": "%", "disk": "MB/s", "tcp": "Mb/s", "udp": "Mb/s", "messages": "Mb/s", "loss": "%"}


@dataclass(frozen=True, slots=True)
class ProbeWorkload(Workload):
    """One probe with its options. Where it has a far end, that is in the instance, and the probe beside the generators.

    Throughput is the probe's main value, turned so that more is better; `further` has all its values. With `samples`
    it runs until it has so many, otherwise for the measured time.
    """

    kind: ClassVar[str] = "probe"
    lead_s: ClassVar[float] = 0.2
    takes_rate: ClassVar[bool] = False
    tools: ClassVar[tuple[str, ...]] = ()

    probe: str
    samples: int | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        samples = fields.whole("samples", most=10**7) if fields.has("samples") else None
        options = tuple(str(option) for option in fields.sequence("options")) if fields.has("options") else ()
        refused = [option for option in options if option.split("=")[0] in ("--to", "--json", "--seconds", "--count")]
        if refused:
            fields.wrong(fields.at("options"), f"must not hold {refused[0]!r}, which the lab sets")
        probe = fields.choice("probe", tuple(PROBES))
        if samples is not None:
            _check(fields, "samples", probe, _length(samples, 1))
        _check(fields, "options", probe, [*_length(samples, 1), *options])
        return cls(probe, samples, options)

    @property
    def unit(self) -> str:
        return _RATES.get(self.probe, "1/s")

    @property
    def fixed(self) -> bool:
        return self.samples is not None

    @property
    def has_generator(self) -> bool:
        return PROBES[self.probe].needs_peer

    @property
    def listens(self) -> Listens | None:
        return ("tcp", DEFAULT_PORT) if self.has_generator else None

    def server(self, site: Site, /) -> list[str] | None:
        return _command("serve", "--listen", f"{site.address}:{DEFAULT_PORT}") if self.has_generator else None

    def work(self, site: Site, seconds: float, _rate: float | None, /) -> list[str]:
        far = ["--to", f"{site.address}:{DEFAULT_PORT}"] if self.has_generator else []
        return _command(self.probe, "--json", *far, *_length(self.samples, seconds), *self.options)

    def fill(self, _site: Site, _rate: float | None, /) -> list[str] | None:
        return None  # a probe only observes; another one before it would be a neighbour

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, f"probe {self.probe}") as report:
            values = {
                name: (float(entry["value"]), str(entry["unit"]))
                for name, entry in report["values"].items()
                if entry["value"] is not None
            }
            value, unit = values[report["main"]]
            runtime_s = value * _MS[unit] / 1e3 if self.probe == "cpu-work" else None
            return WorkloadResult(
                self._throughput(value, unit), _ms(values, _MEAN), _ms(values, _P95), _ms(values, _JITTER),
                runtime_s=runtime_s, further={name: entry for name, entry in values.items() if math.isfinite(entry[0])},
            )  # fmt: skip

    def _throughput(self, value: float, unit: str) -> float:
        if not math.isfinite(value):
            raise RunError(f"probe {self.probe} found no main value")
        if unit in _MS:
            return 1e3 / (value * _MS[unit])
        return 100.0 - value if self.probe in _LOSSES else value


class _Options(argparse.ArgumentParser):
    """Reads a probe's options as its command line does, but raises ValueError where that would end the program."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _check(fields: Fields, name: str, probe: str, words: list[str]) -> None:
    parser = _Options(add_help=False, allow_abbrev=False)
    load(probe).add_options(parser)
    try:
        parser.parse_args(words)
    except ValueError as error:
        fields.wrong(fields.at(name), f"is not what probe {probe} takes: {error}")


def _length(samples: int | None, seconds: float) -> list[str]:
    return ["--seconds", f"{seconds:g}"] if samples is None else ["--count", str(samples)]


def _ms(values: Mapping[str, tuple[float, str]], name: str) -> float | None:
    value, unit = values.get(name, (math.nan, ""))
    return value * _MS[unit] if unit in _MS and math.isfinite(value) else None


def _command(*arguments: str) -> list[str]:
    """A command of the profiler's own, whether it is installed or runs from its source."""
    return [sys.executable, "-I", "-B", str(PROGRAMS / "profiler_command.py"), "probe", *arguments]
