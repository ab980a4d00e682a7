"""Trace file formats, read in pieces with every cell validated; no file is held in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from advisor.domain import TRACE_FORMS, TraceForm
from advisor.errors import InvalidInput
from advisor.replay.grid import (
    MAX_CPU_SHARE,
    Cells,
    StepGrid,
    Trace,
    TraceRows,
    first_line,
    parquet_pieces,
    text_pieces,
    unreadable,
)
from profiler.names import instance_id
from profiler.observed import MAX_CPUS

MAX_TIME_S = 1e11
MAX_MEMORY_MB, MAX_RATE = 1e9, 1e9
PLANETLAB_STEP_S = 300.0
PLANETLAB_DAY = 288  # steps
PLANETLAB_MOST_BYTES = 1 << 16  # of the file of one VM
KIB_PER_MB = 1024.0
CPU_COLUMNS = ("cpu_percent", "cpu_mhz")
REQUIRED = ("instance", "time_s")
OPTIONAL = ("vcpus", "capacity_mhz", "memory_mb", "net_mbit", "disk_mb_s", "workload")
BITBRAINS = ("id", "timestamp", "duration", "cpu_usage")
META = ("id", "cpu_count", "cpu_capacity", "mem_capacity")


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace as a stream: `kinds` are its demands, cpu first; `unsaid` is what it lacks."""

    form: TraceForm
    kinds: tuple[str, ...]
    rows: Iterator[TraceRows]
    unsaid: tuple[str, ...] = ()


def open_trace(path: Path, form: TraceForm | None = None) -> TraceSource:
    """Open a trace; `form` None = detect it. InvalidInput names file, row, column and reason."""
    try:
        str(path).encode()  # what reads files takes no other names
    except UnicodeEncodeError as error:
        message = f"the name {path.name!a} is not UTF-8; give the trace another"
        raise InvalidInput(message, field="trace") from error
    if path.is_dir():
        if form not in {None, "planetlab"}:
            raise InvalidInput(f"{path.name} is a folder; only planetlab is read from one", field="trace")
        return _planetlab_folder(path)
    if not path.is_file():
        raise InvalidInput(f"there is no trace {path}; name a file, or a folder of PlanetLab's", field="trace")
    try:
        return FORMS[form or recognise(path)](path)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(path, error) from error


def recognise(path: Path) -> TraceForm:
    """The format of a file, by its first bytes and columns."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PAR1":
        return "bitbrains" if set(BITBRAINS) <= set(parquet.read_schema(path).names) else "parquet"
    cells = first_line(path)
    if set(REQUIRED) & set(cells):
        return "csv"
    if len(cells) == 1 and re.fullmatch(r"[0-9.]+", cells[0].strip()):
        return "planetlab"  # one of its files
    if len(cells) > 2 and all(re.fullmatch(r"[0-9.]+", cell) for cell in cells[1:]):
        return "planetlab"
    raise InvalidInput(
        f"{path.name} looks like no trace: its first line has neither the columns {', '.join(REQUIRED)} nor a name "
        "followed by numbers",
        field="trace",
    )


def _own_csv(path: Path) -> TraceSource:
    return _own(path, "csv", first_line(path), text_pieces(path), first_row=2)


def _own_parquet(path: Path) -> TraceSource:
    file = parquet.ParquetFile(path)
    return _own(path, "parquet", file.schema_arrow.names, parquet_pieces(file), first_row=1)


def _own(
    path: Path, form: TraceForm, columns: Sequence[str], pieces: Iterator[pa.RecordBatch], first_row: int
) -> TraceSource:
    """The project's own format (docs/traces.md): one row per instance and time."""
    known = (*REQUIRED, *CPU_COLUMNS, *OPTIONAL)
    for name in columns:
        if name not in known:
            raise InvalidInput(f"{path.name}: column {name[:40]!r} is none of {', '.join(known)}", field="trace")
        if list(columns).count(name) > 1:
            raise InvalidInput(f"{path.name}: column {name} stands twice", field="trace")
    cpu = [name for name in CPU_COLUMNS if name in columns]
    missing = [name for name in REQUIRED if name not in columns]
    if cpu == ["cpu_mhz"] and "capacity_mhz" not in columns:
        missing.append("capacity_mhz (what cpu_mhz is a part of)")
    if missing or len(cpu) != 1:
        what = f"column {missing[0]} is missing" if missing else f"exactly one of {' and '.join(CPU_COLUMNS)} is needed"
        raise InvalidInput(f"{path.name}: {what}", field="trace")
    kinds = ("cpu", *(name for name in ("net_mbit", "disk_mb_s") if name in columns))

    def rows() -> Iterator[TraceRows]:
        for cells in _numbered(path, pieces, first_row):
            vcpus = cells.whole("vcpus", MAX_CPUS) if "vcpus" in columns else np.ones(len(cells))
            if cpu == ["cpu_percent"]:
                share = cells.numbers("cpu_percent", 100.0 * MAX_CPUS * MAX_CPU_SHARE) / (100 * vcpus)
            else:
                capacity = cells.numbers("capacity_mhz", MAX_RATE, above_zero=True)
                share = cells.numbers("cpu_mhz", MAX_RATE) / capacity
            cells.check_share(share, cpu[0])
            demands = [share, *(cells.numbers(name, MAX_RATE) for name in kinds[1:])]
            names, who = cells.names("instance")
            yield TraceRows(
                names=names,
                who=who,
                time_s=cells.numbers("time_s", MAX_TIME_S, least=-MAX_TIME_S),
                demands=np.column_stack(demands),
                vcpus=vcpus,
                memory_mb=cells.numbers("memory_mb", MAX_MEMORY_MB) if "memory_mb" in columns else np.zeros(len(cells)),
                workloads=cells.text("workload") if "workload" in columns else np.full(len(cells), "", dtype=object),
                numbers=cells.row_numbers(),
            )

    named = {"memory_mb": "memory", "net_mbit": "network", "disk_mb_s": "disk", "workload": "what the instances run"}
    return TraceSource(
        form, kinds, _readable_rows(path, rows()), tuple(text for name, text in named.items() if name not in columns)
    )


def _planetlab(path: Path) -> TraceSource:
    """PlanetLab as one row per VM: its name, then its CPU percent every five minutes; or one of its own files."""
    count = len(first_line(path)) - 1
    if count == 0 and re.fullmatch(r"[0-9.]+", first_line(path)[0].strip()):
        return _planetlab_source(_planetlab_files([(path, instance_id(path.name), 0)]))
    if count < 1:
        raise InvalidInput(f"{path.name}: row 1 has a name and no value", field="trace")

    def rows() -> Iterator[TraceRows]:
        for cells in _numbered(path, text_pieces(path, header=False)):
            values = [cells.numbers(str(at + 2), 100 * MAX_CPU_SHARE) for at in range(count)]
            names, who = cells.names("1")
            every = len(cells) * count
            yield TraceRows(
                names=names,
                who=np.repeat(who, count),
                time_s=np.tile(np.arange(count) * PLANETLAB_STEP_S, len(cells)),
                demands=np.column_stack(values).reshape(-1, 1) / 100,
                vcpus=np.ones(every),
                memory_mb=np.zeros(every),
                workloads=np.full(every, "", dtype=object),
                numbers=np.repeat(cells.row_numbers(), count),
            )

    return _planetlab_source(_readable_rows(path, rows()))


def _planetlab_folder(folder: Path) -> TraceSource:
    """PlanetLab as it is published: a folder of files, one for each VM, or a folder of such folders, one for each day.

    A file is the CPU percent every five minutes, a number on each line. Days follow each other in order of their names.
    A VM that is absent for a day is another one when it comes back.
    """
    entries = _entries(folder)
    days = [entry for entry in entries if entry.is_dir()]
    if days and len(days) < len(entries):
        raise InvalidInput(f"{folder.name} has files beside folders; a day is a folder of files", field="trace")
    files: list[tuple[Path, str, int]] = []
    yesterday: dict[str, str] = {}
    used: set[str] = set()
    for number, day in enumerate(days or [folder]):
        today: dict[str, str] = {}
        for file in _entries(day):
            name = instance_id(file.name)
            today[name] = yesterday.get(name) or (f"{name}.{instance_id(day.name)}" if name in used else name)
            files.append((file, today[name], number))
        used |= today.keys()
        yesterday = today
    return _planetlab_source(_planetlab_files(files))


def _entries(folder: Path) -> list[Path]:
    """Files and folders in it, hidden ones left out."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _planetlab_files(files: Sequence[tuple[Path, str, int]]) -> Iterator[TraceRows]:
    """The rows of files of one VM each, with its id and the number of the day."""
    for file, name, day in files:
        values = _planetlab_day(file)
        count = len(values)
        yield TraceRows(
            names=(name,),
            who=np.zeros(count, dtype=np.int64),
            time_s=np.arange(day * PLANETLAB_DAY, day * PLANETLAB_DAY + count, dtype=np.float64) * PLANETLAB_STEP_S,
            demands=np.array(values).reshape(-1, 1) / 100,
            vcpus=np.ones(count),
            memory_mb=np.zeros(count),
            workloads=np.full(count, "", dtype=object),
            numbers=np.arange(1, count + 1),
        )


def _planetlab_day(file: Path) -> list[float]:
    """CPU percent of each line; InvalidInput names the file, the line and the reason."""
    where = f"{file.parent.name}/{file.name}"
    if not file.is_file() or file.stat().st_size > PLANETLAB_MOST_BYTES:
        raise InvalidInput(f"{where} is no file of at most {PLANETLAB_MOST_BYTES >> 10} KiB", field="trace")
    lines = file.read_text(encoding="ascii", errors="replace").rstrip().splitlines()
    if not 1 <= len(lines) <= PLANETLAB_DAY:
        raise InvalidInput(f"{where} has {len(lines)} lines; a day has 1-{PLANETLAB_DAY}", field="trace")
    values = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        value = float(text) if re.fullmatch(r"[0-9]{1,3}(?:[.][0-9]{1,9})?", text) else np.inf
        if value > 100 * MAX_CPU_SHARE:
            message = f"{where}: row {number}: {text[:40]!a} is not a CPU percent of 0-{100 * MAX_CPU_SHARE:g}"
            raise InvalidInput(message, field="trace")
        values.append(value)
    return values


def _planetlab_source(rows: Iterator[TraceRows]) -> TraceSource:
    unsaid = ("size (one vCPU is taken)", "memory", "network", "disk", "what the instances run")
    return TraceSource("planetlab", ("cpu",), rows, unsaid)


def _bitbrains(path: Path) -> TraceSource:
    """Bitbrains' GWA-T-12 as OpenDC stores it.

    A row is the mean over `duration` ms until `timestamp`; sizes are in the meta file beside it, memory in KiB.
    """
    file = parquet.ParquetFile(path)
    for name in BITBRAINS:
        if name not in file.schema_arrow.names:
            raise InvalidInput(f"{path.name}: column {name} is missing", field="trace")
    sizes = _meta(path)

    def rows() -> Iterator[TraceRows]:
        for cells in _numbered(path, parquet_pieces(file, BITBRAINS)):
            names, who = cells.names("id")
            for at, name in enumerate(names):
                if name not in sizes:
                    cells.fail(int((who == at).argmax()), "id", f"instance {name} is not in the meta file")
            vcpus, capacity, memory = np.array([sizes[name] for name in names]).T[:, who]
            share = cells.numbers("cpu_usage", MAX_RATE) / capacity
            cells.check_share(share, "cpu_usage")
            lasts = cells.numbers("duration", 1e3 * MAX_TIME_S, above_zero=True) / 1000
            yield TraceRows(
                names=names,
                who=who,
                time_s=cells.numbers("timestamp", MAX_TIME_S, least=-MAX_TIME_S) - lasts,
                demands=share[:, None],
                vcpus=vcpus,
                memory_mb=memory / KIB_PER_MB,
                workloads=np.full(len(cells), "", dtype=object),
                numbers=cells.row_numbers(),
            )

    return TraceSource(
        "bitbrains", ("cpu",), _readable_rows(path, rows()), ("network", "disk", "what the instances run")
    )


def _meta(path: Path) -> Mapping[str, tuple[float, float, float]]:
    """vCPUs, total MHz and memory in KiB by instance, from the meta file."""
    beside = path.with_name(path.name.replace("trace", "meta"))
    if beside == path or not beside.is_file():
        raise InvalidInput(
            f"{path.name}: the sizes of its instances should be beside it in {beside.name}", field="trace"
        )
    try:
        table = parquet.read_table(beside, columns=list(META))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(beside, error) from error
    sizes: dict[str, tuple[float, float, float]] = {}
    for cells in _numbered(beside, table.to_batches()):
        vcpus, memory = cells.whole("cpu_count", MAX_CPUS), cells.numbers("mem_capacity", KIB_PER_MB * MAX_MEMORY_MB)
        mhz = cells.numbers("cpu_capacity", MAX_RATE, above_zero=True)
        names, who = cells.names("id")
        for at, name in enumerate(names[code] for code in who.tolist()):
            if name in sizes:
                cells.fail(at, "id", f"instance {name} stands twice")
            sizes[name] = (float(vcpus[at]), float(mhz[at]), float(memory[at]))
    return sizes


FORMS: Mapping[TraceForm, Callable[[Path], TraceSource]] = {
    "bitbrains": _bitbrains,
    "planetlab": _planetlab,
    "csv": _own_csv,
    "parquet": _own_parquet,
}


def _numbered(path: Path, pieces: Iterable[pa.RecordBatch], row: int = 1) -> Iterator[Cells]:
    """The cells of a file's pieces, of which the first one begins in this row."""
    for piece in pieces:
        cells = Cells(path.name, piece, row)
        yield cells
        row += len(cells)


def _readable_rows(path: Path, rows: Iterator[TraceRows]) -> Iterator[TraceRows]:
    """The same rows; errors of the library become InvalidInput."""
    try:
        yield from rows
    except (pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(path, error) from error


# Reads a trace file as a Trace over equal steps.

MIN_STEP_S, MAX_STEP_S = 1.0, 30 * 86400.0  # of a step


def load_trace(
    path: Path, *, form: str | None = None, interval_s: float = 300.0, most_instances: int | None = None
) -> tuple[Trace, tuple[str, ...]]:
    """Read a trace, and what it lacks; `form` None = detect it.

    Every value is the mean over a step of `interval_s` seconds; only the first `most_instances` are read. InvalidInput
    names file, row, column and reason.
    """
    if not MIN_STEP_S <= interval_s <= MAX_STEP_S:
        raise InvalidInput(f"interval {interval_s:g} s is outside {MIN_STEP_S:g} to {MAX_STEP_S:g}", field="interval")
    source = open_trace(path, _form(form))
    grid = StepGrid(path.name, interval_s, len(source.kinds), most_instances)
    for rows in source.rows:
        grid.add(rows)
    return _trace(path.name, source, grid, interval_s), source.unsaid


def _trace(name: str, source: TraceSource, grid: StepGrid, interval_s: float) -> Trace:
    means = dict(zip(source.kinds, grid.finish(), strict=True))
    return Trace(
        name=name,
        form=source.form,
        interval_s=interval_s,
        ids=tuple(grid.ids),
        vcpus=grid.vcpus.astype(np.int64),
        memory_mb=grid.memory_mb,
        workloads=tuple(str(workload) or None for workload in grid.workloads),
        cpu=means["cpu"],
        net_mbit=means.get("net_mbit"),
        disk_mb_s=means.get("disk_mb_s"),
    )


def _form(form: str | None) -> TraceForm | None:
    for known in TRACE_FORMS:
        if form == known:
            return known
    if form is None:
        return None
    raise InvalidInput(f"form {form!r} is none of {', '.join(TRACE_FORMS)}", field="form")
