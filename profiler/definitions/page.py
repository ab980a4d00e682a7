"""Renders the table metric × hypervisor and its documentation page as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler.definitions.definition import Definition
from profiler.definitions.hypervisors import DEFINITIONS, TITLES
from profiler.metrics import EIGHT

_INTRO = """\
# The eight metrics, formula by formula

<!-- Made by `python -m profiler.definitions`; change the files in profiler/definitions, not this page. -->

Cotenant describes what runs on a host with the eight system-level metrics of the NEIGHBOR paper (section 3.4), which
measured them on Xen. This page says where each comes from on each hypervisor, with which formula, how far that is
from the paper's definition, and how it was verified. `cotenant-profiler check` says which of them a host gives now.

- **Rates** are differences of cumulative counters between two readings, divided by the seconds between them on the
  monotonic clock. After a counter ran backwards, an instance came or went, or the clock stood, there is no sample.
- **Percentages** are of one CPU: 100 = one whole CPU, and cpu + waiting + block = 100 · vCPUs.
- **A page** is 4096 bytes, the grant-table page of Xen, whatever this host's pages are.
- **A metric that a host cannot give is absent, with a reason, and never zero.**
- **The driver domain** is Dom0 on Xen; on Linux hosts it is the part of the kernel and of the emulators that works for
  the instances' I/O. Its CPU time is charged to instances by the pages they exchanged, as by Cherkasova and Gardner
  (USENIX ATC 2005): where N pages were exchanged in all, an instance that exchanged n is charged n / N of it.

## What they are
"""

_NOT_THE_PAPERS = """\
## Which are not the paper's

A figure of these is no figure of the paper's, and the two are not compared but in order or direction:

- **`event` off Xen** is something else. A web server alone in a container of the lab (`datasets/lab-neighbor-loads`)
  had 3 to 5 times fewer a second than the paper's Table 3 prints for files up to 10 KB, and 13 to 29 times fewer from
  30 KB on, while it answered 9 to 17 times as many requests: 44 to 303 times fewer per request. Small files have most
  events here and fewest in the paper.
- **`event` on Xen** by interrupts misses what Dom0 sends, and joins what comes together. The paper does not say how it
  counted.
- **`pages_exchanged` on Xen** counts slots of both rings. The paper says of sending that no explicit memory page
  exchange is involved, for only the ownership of a page is transferred (section 3.1). Read so, slots of packets that
  guests send are no pages exchanged. It does not say what its own tool counted.
- **`pages_exchanged` off Xen** is bytes / 4096. A packet of 60 bytes is 0.015 pages here, and one there.
- **`pages_per_execution`** has both distances in it. The paper prints one value for a host, here each instance has its
  own.
- **`switch`, `execution` and `waiting` of containers** are of tasks, not of virtual CPUs.
- **`cpu` and `block` of a driver domain off Xen** are of the kernel's own work, which is done before programs and
  hardly waits.

As in the paper, so far as its words go: `cpu`, `waiting` and `block` of guests on Xen and under KVM, `execution` and
`switch` on Xen.
"""


def page_markdown() -> str:
    """The whole page docs/metrics.md."""
    meanings = [
        (f"`{metric.name}`", metric.unit, ", ".join(scope.replace("_", " ") for scope in metric.scopes), metric.help)
        for metric in EIGHT
    ]
    rows = [(metric, title, cell.source, cell.formula, cell.verified) for metric, title, cell in _cells()]
    distances = [(metric, title, cell.distance) for metric, title, cell in _cells()]
    parts = (
        _INTRO,
        _table([("metric", "unit", "of", "is"), *meanings]),
        "## Where they come from\n",
        _table([("metric", "hypervisor", "source", "formula", "verified how"), *rows]),
        _NOT_THE_PAPERS,
        "## How far they are from the paper\n",
        _table([("metric", "hypervisor", "distance from the paper's definition"), *distances]),
    )
    return "\n".join(parts).rstrip("\n") + "\n"


def _cells() -> Iterator[tuple[str, str, Definition]]:
    """Metric, name of the hypervisor and definition, metric by metric."""
    for metric in EIGHT:
        for key, title in TITLES.items():
            yield from ((f"`{metric.name}`", title, cell) for cell in DEFINITIONS[key] if cell.metric == metric.name)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    ruled = [rows[0], tuple("---" for _ in rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(_cell(text) for text in row)} |\n" for row in ruled)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
