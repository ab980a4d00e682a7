"""Datasets made up for `lab show`: as many workloads, forms, rounds, variants and windows as a test asks for."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab.dataset_writer import COLOCATIONS, OUTCOMES, SERIES

RUNS = (
    "run", "repeat", "kind", "pinning", "started", "seconds", "steal_percent", "foreign_percent", "disturbed",
    "instance", "clients", "generator_percent", "rate", "dropped", "driver_cpus", "unsteady", "warmup_s",
    "round_started", "cpu_speed",
)  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
Settings = Mapping[str, object]


@dataclass
class Made:
    """Collects runs and writes them as a dataset directory."""

    rows: dict[str, list[tuple[object, ...]]] = field(
        default_factory=lambda: {"colocations": [], "runs": [], "outcomes": [], "series": []}
    )
    clock: datetime = START
    ran: set[tuple[str, int, str]] = field(default_factory=set)  # run, repeat and instance of each row of runs

    def add(
        self, form: str, labels: Sequence[str], ratios: Sequence[float], repeat: int = 1, *, cpus: Sequence[str] = (),
        settings: Sequence[Settings] = (), further: Mapping[str, tuple[float, float]] | None = None,
        disturbed: bool = False, unsteady: bool = False, windows: int = 0, solo: float = 1000.0,
    ) -> str:  # fmt: skip
        """One run together in one round, and the solo runs that it is compared with; returns its name."""
        run = ":".join([form, *labels])
        for position, (label, ratio) in enumerate(zip(labels, ratios, strict=True)):
            instance, cpu = f"{label}.{position + 1}", cpus[position] if cpus else "0"
            own = settings[position] if settings else {}
            workload = label.partition(".")[0]
            head = (run, "host", instance, workload, own.get("load", 1), 1, f"0:{cpu}", "", own.get("cap", ""),
                    own.get("weight", ""), own.get("mode", ""), own.get("rate", ""), "")  # fmt: skip
            outcomes = {"throughput": (solo, solo * ratio), **(further or {})}
            for outcome, (alone, together) in outcomes.items():
                unit = "req/s" if outcome == "throughput" else "ms"
                self.rows["colocations"].append((*head, outcome, alone, together, unit, repeat))
            name = f"solo:{label}:{cpu}"
            self._run(name, repeat, "solo", form, instance)
            self.rows["outcomes"].append((name, repeat, instance, workload, "throughput", solo, "req/s"))
            self._run(run, repeat, "group", form, instance, disturbed=disturbed, unsteady=unsteady)
            for at in range(windows):
                value = 100 * ratio * (1 + 0.1 * ((at * 7 + position) % 5 - 2))
                self.rows["series"].append((run, repeat, instance, "cpu", 0.5 * at, value))
        self.clock += timedelta(seconds=7)
        return run

    def _run(
        self, run: str, repeat: int, kind: str, form: str, instance: str, *, disturbed: bool = False,
        unsteady: bool = False,
    ) -> None:  # fmt: skip
        started = self.clock.isoformat()
        line = (run, repeat, kind, form, started, 5, 0, 0.5, int(disturbed), instance, "", "", "", "", "",
                int(unsteady), 1.0, started)  # fmt: skip
        if (run, repeat, instance) not in self.ran:
            self.ran.add((run, repeat, instance))
            self.rows["runs"].append(line)

    def write(self, directory: Path, *, only: Sequence[str] = ("colocations", "runs", "outcomes", "series")) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        headers = {"colocations": COLOCATIONS, "runs": RUNS, "outcomes": OUTCOMES, "series": SERIES}
        for name in only:
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows([headers[name], *self.rows[name]])
            if name == "series":
                (directory / "series.csv.gz").write_bytes(gzip.compress(out.getvalue().encode(), mtime=0))
            else:
                (directory / f"{name}.csv").write_text(out.getvalue(), encoding="utf-8")
        (directory / "dataset.yaml").write_text(
            "name: made-up\norigin: simulated\nmachine: none\nkernel: none\ndate: '2026-01-01'\n"
            "circumstances:\n  governor: performance\n  load_generators: {same: on CPU 1}\n",
            encoding="utf-8",
        )
        return directory


def large(rounds: int = 3, names: int = 12, *, triples: int = 40, windows: int = 12) -> Made:
    """As large as a whole campaign: all pairs in four forms, triples and quadruples, loads, caps, weights, tc modes."""
    draw = random.Random(3)
    known = ["web-1k", "web-10k", "web-100k", "web-1m", "cpu", "memory", "disk-read", "disk-write", "bulk-send",
             "keyvalue", "game", "stream-http"][:names]  # fmt: skip
    hurt = {pair: draw.uniform(0.35, 1.04) for pair in itertools.product(known, known)}
    places = {
        "same": ("0", "0", "0", "0"),
        "different": ("0", "1", "0", "1"),
        "set": ("0-1",) * 4,
        "driver": ("0",) * 4,
    }
    larger = list({tuple(draw.sample(known, draw.choice((3, 4)))): None for _ in range(triples)})
    made = Made()
    for repeat in range(1, rounds + 1):
        for form, cpus in places.items():
            for pair in itertools.combinations_with_replacement(known, 2):
                ratios = [hurt[pair] * draw.gauss(1, 0.02), hurt[pair[::-1]] * draw.gauss(1, 0.02)]
                noisy = draw.random() < 0.08
                made.add(
                    form, pair, ratios, repeat, cpus=cpus, disturbed=noisy, unsteady=draw.random() < 0.05,
                    windows=windows, further={"latency_p95_ms": (2.0, 2.0 / ratios[0])}, solo=draw.gauss(1000, 15),
                )  # fmt: skip
        for members in larger:
            ratios = [draw.gauss(0.6, 0.1) for _ in members]
            made.add("same", members, ratios, repeat, cpus=places["same"], windows=windows)
        _variants(made, draw, repeat)
    return made


def _variants(made: Made, draw: random.Random, repeat: int) -> None:
    for neighbour, load in itertools.product(("cpu", "disk-read", "web-1m"), (0.3, 0.6)):
        labels = (f"web-1k.load{load}", neighbour)
        made.add("same", labels, [1 - 0.5 * load * draw.random(), 0.9], repeat, settings=({"load": load}, {}))
    for cap in (25, 50, 75):
        made.add("same", ("web-1k", f"cpu.cap{cap}"), [1 - cap / 250, 0.95], repeat, settings=({}, {"cap": cap}))
    for weight in (64, 512, 1024):
        ratios = [256 / (256 + weight), weight / (256 + weight)]
        made.add("same", ("cpu", f"memory.weight{weight}"), ratios, repeat, settings=({}, {"weight": weight}))
    for mode in ("shared", "dedicated"):
        labels = (f"game.{mode}100", f"bulk-send.{mode}100")
        worse = 9.0 if mode == "shared" else 1.2
        further = {
            "latency_mean_ms": (1.0, worse), "latency_p95_ms": (2.0, 2 * worse * draw.gauss(1, 0.05)),
            "jitter_ms": (0.1, worse / 10), "timeouts_percent": (0.0, worse - 1),
        }  # fmt: skip
        both = {"mode": mode, "rate": 100}
        made.add("same", labels, [1 / worse, 0.95], repeat, settings=(both, both), further=further)
