"""Hosts with what came out, one JSON object a line, gzipped; written so that an interrupted run goes on."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from profiler.observed import format_cpus, parse_cpus
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec
from research.contention.simulator import Bursts


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host, how it bursts, what it got, and the standard error of that; `cloud` joins hosts that are compared."""

    spec: HostSpec
    outcome: HostOutcome
    origin: str
    seed: int = 0
    cloud: str = ""
    bursts: Mapping[str, Bursts] | None = None
    share_error: Mapping[str, float] | None = None
    lost_95: Mapping[str, float] | None = None


def append(path: Path, record: HostRecord) -> None:
    """Add the record as a gzip member of its own, so that what stands before stays readable whenever writing ends."""
    with path.open("ab") as file:
        file.write(gzip.compress((json.dumps(_as_json(record), allow_nan=False) + "\n").encode(), mtime=0))


def read(path: Path) -> Iterator[HostRecord]:
    """All whole records of a file. A last line that was cut off is left out; any other fault is a ValueError."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        while True:
            try:
                line = file.readline()
            except EOFError:
                return
            if not line.endswith("\n"):
                return
            try:
                yield _from_json(json.loads(line))
            except (KeyError, TypeError) as error:
                raise ValueError(f"{path}: a record lacks {error}") from error


def write(path: Path, records: Iterator[HostRecord] | list[HostRecord]) -> None:
    """All records as one gzip member, which is smaller than one each; the file is replaced whole."""
    part = path.with_name(path.name + ".part")
    text = "".join(json.dumps(_as_json(record), allow_nan=False) + "\n" for record in records)
    part.write_bytes(gzip.compress(text.encode(), mtime=0))
    part.replace(path)


def _as_json(record: HostRecord) -> dict[str, Any]:
    spec = asdict(record.spec)
    instances = []
    for one in spec.pop("instances"):
        outcome = record.outcome.instances[one["id"]]
        row = {
            **one,
            "cap_cpus": None if math.isinf(one["cap_cpus"]) else one["cap_cpus"],
            "pin": format_cpus(one["pin"]),
        }
        row |= {"outcome": {name: round(value, 5) for name, value in asdict(outcome).items()}}
        for name in ("share_error", "lost_95"):
            values = getattr(record, name)
            if values is not None:
                row[name] = round(values[one["id"]], 5)
        if record.bursts and one["id"] in record.bursts:
            row["bursts"] = asdict(record.bursts[one["id"]])
        instances.append(row)
    host = {"origin": record.origin, "seed": record.seed, "cloud": record.cloud, **spec}
    return {**host, "short": round(record.outcome.short, 5), "instances": instances}


def _from_json(row: Mapping[str, Any]) -> HostRecord:
    specs, outcomes = [], {}
    bursts: dict[str, Bursts] = {}
    errors: dict[str, float] = {}
    lost: dict[str, float] = {}
    for one in row["instances"]:
        fields = dict(one)
        outcomes[fields["id"]] = InstanceOutcome(**fields.pop("outcome"))
        for name, target in (("share_error", errors), ("lost_95", lost)):
            if name in fields:
                target[fields["id"]] = float(fields.pop(name))
        if "bursts" in fields:
            bursts[fields["id"]] = Bursts(**fields.pop("bursts"))
        cap = fields.pop("cap_cpus")
        pin = fields.pop("pin")
        specs.append(
            InstanceSpec(**fields, cap_cpus=math.inf if cap is None else float(cap), pin=parse_cpus(pin) if pin else ())
        )
    spec = HostSpec(row["id"], int(row["cpus"]), tuple(specs), float(row["window_s"]))
    return HostRecord(
        spec,
        HostOutcome(outcomes, float(row["short"])),
        cast(str, row["origin"]),
        int(row["seed"]),
        cast(str, row["cloud"]),
        bursts,
        errors or None,
        lost or None,
    )
