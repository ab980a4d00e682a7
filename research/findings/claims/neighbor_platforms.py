"""who-is-your-neighbor-2012, Platforms II and III: one CPU with a larger cache, and where Xen's domains run.

Platform II is a host of one CPU behind 1 Gbit/s. Here: the pairs of Platform I's form `same`, whose CPU has a larger
cache and whose line has that rate, with the 1 MB server, which fills the line there and here. A metric over host CPU is
that of CPU 0, which servers and the kernel's work for them have to themselves.

Platform III is Xen in nine configurations of CPUs (Table 4). Here: the same configurations of an emulated Xen, of which
only ratios within one campaign say anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import fsum
from statistics import fmean

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, against, change, gain, less, over, percent
from research.findings.claims.neighbor import (
    kilobytes,
    loss,
    mean_reached,
    of_guests,
    of_known,
    of_rounds,
    pair,
    ratio,
    reached,
    show,
)
from research.findings.lab_runs import LabRun, LabRuns
from research.findings.verdicts import Region

BESIDE_1M, TWO_1K, TWO_1M = "1k+1m", "1k+1k", "1m+1m"
II_PAIRS = (TWO_1K, BESIDE_1M, TWO_1M)
Read = Callable[[LabRun], float | None]


def driver(metric: str) -> Read:
    return lambda run: run.metric("driver_domain", metric)


def guests(metric: str) -> Read:
    return lambda run: of_guests(run, metric)


def busy(run: LabRun) -> float | None:
    """CPU time of driver domain and guests together, in percent of one CPU; a trace that saw none of them run while
    they answered saw nothing."""
    own = [run.metric("instance", "cpu", member.instance) for member in run.members]
    return of_known(fsum, [driver("cpu")(run), *own]) or None


def one_cpu(statement: str, of: str, value: Read, finding: str = "N8") -> None:
    """Register a value of a pair at full load on one CPU."""
    number(finding, statement)(lambda lab: over(pair(lab, of), value))


def of_pairs(statement: str, how: Callable[[Mapping[str, LabRun]], float | None]) -> None:
    """Register a value of the rounds in which all of Platform II's pairs ran."""
    number("N8", statement)(lambda lab: of_rounds({name: pair(lab, name) for name in II_PAIRS}, how))


one_cpu("1k-loss-with-1m", BESIDE_1M, loss)
one_cpu("1k-loss-with-1k", TWO_1K, loss)
one_cpu("1m-of-solo", BESIDE_1M, lambda run: percent(ratio(run, 1)))
one_cpu("1m-1m-saturation-load", TWO_1M, lambda run: percent(ratio(run)))
one_cpu("1k-1k-pages-per-execution", TWO_1K, guests("pages_per_execution"))
one_cpu("1k-1k-dom0-cpu", TWO_1K, driver("cpu"))
one_cpu("1m-1m-dom0-cpu", TWO_1M, driver("cpu"))
one_cpu("other-pairs-dom0-cpu", BESIDE_1M, driver("cpu"))
one_cpu("1k-1k-dom0-block", TWO_1K, driver("block"))
one_cpu("1k-1k-dom0-waiting", TWO_1K, driver("waiting"))
one_cpu("1k-1k-guest-block", TWO_1K, guests("block"))
one_cpu("1k-1k-guest-waiting", TWO_1K, guests("waiting"))
one_cpu("1m-1m-guest-block", TWO_1M, guests("block"))
one_cpu("1m-1m-guest-waiting", TWO_1M, guests("waiting"))
one_cpu("1k-1m-net-io", BESIDE_1M, lambda run: kilobytes(reached(run, 1), 1024))
one_cpu("1m-1m-net-io", TWO_1M, lambda run: kilobytes(mean_reached(run), 1024))
of_pairs(
    "1k-with-1m-over-1k-1k",
    lambda runs: percent(change(reached(runs[BESIDE_1M]), mean_reached(runs[TWO_1K]))),
)
of_pairs(
    "1m-over-1m-1m",
    lambda runs: percent(change(reached(runs[BESIDE_1M], 1), mean_reached(runs[TWO_1M]))),
)
of_pairs("all-pairs-guest-block", lambda runs: of_known(min, [of_guests(run, "block") for run in runs.values()]))


for _name, _of, _at in (
    ("1k-1m: web-1k", BESIDE_1M, 0),
    ("1k-1m: web-1m", BESIDE_1M, 1),
    ("1k-1k: web-1k", TWO_1K, 0),
    ("1m-1m: web-1m", TWO_1M, 0),
):
    show("N8", f"neighbor-2-{_name}", of=_of, value=partial(ratio, at=_at), unit="ratio")


@order("N8", "1k-1k-pages-per-execution-lowest")
def pages_per_execution(lab: LabRuns) -> dict[str, Values | None]:
    return {name: over(pair(lab, name), guests("pages_per_execution")) for name in II_PAIRS}


# Platform III. A configuration is named by the CPUs of Dom0 and of each guest; shared-n: all domains share n CPUs.
CONFIGURATIONS = ("1-1-1", "1-2-2", "1-3-3", "2-2-2", "2-1-1", "3-1-1")
SHARED = {1: "shared-1", 3: "shared-3", 4: "shared-4"}


def on_xen(lab: LabRuns, form: str, name: str = TWO_1K) -> list[LabRun]:
    """Runs of a pair on the lab's Xen in one configuration."""

    def fits(run: LabRun) -> bool:
        return run.form == form and run.platform.startswith("xen") and all(member.plain for member in run.members)

    return lab.runs(*(f"web-{size}" for size in name.split("+")), where=fits)


def xen(finding: str, statement: str, form: str, value: Read, name: str = TWO_1K) -> None:
    number(finding, statement)(lambda lab: over(on_xen(lab, form, name), value))


def xen_order(statement: str, forms: tuple[str, ...]) -> None:
    """Register an order of the 1 KB servers' rates by configuration."""
    order("N11", statement)(lambda lab: {f"pin-{form}": over(on_xen(lab, form), mean_reached) for form in forms})


for _form in ("1-1-1", "3-1-1"):
    xen("N11", f"1k-1k-{_form}", _form, mean_reached)
    xen("N11", f"1k-1m-{_form}", _form, reached, BESIDE_1M)
xen_order("1k-best-and-worst", CONFIGURATIONS)
xen_order("guest-cpus-order-dom0-1", CONFIGURATIONS[:3])
xen_order("guest-cpus-order-dom0-2", ("2-1-1", "2-2-2"))


@number("N11", "1k-1k-loss-3-1-1")
def loss_with_three_cpus_of_dom0(lab: LabRuns) -> Values | None:
    def lost(run: LabRun, base: LabRun) -> float | None:
        return percent(less(1.0, gain(mean_reached(run), mean_reached(base))))

    return against(on_xen(lab, "3-1-1"), on_xen(lab, "1-1-1"), lost)


def in_all(lab: LabRuns, name: str) -> list[LabRun]:
    """Runs of a pair in every configuration with CPUs of Dom0's own, of which a round gives one value: their mean."""
    return [run for form in CONFIGURATIONS for run in on_xen(lab, form, name)]


number("N11", "1m-with-1k")(lambda lab: over(in_all(lab, BESIDE_1M), lambda run: reached(run, 1)))
number("N11", "1m-with-1m")(lambda lab: over(in_all(lab, TWO_1M), mean_reached))

for _cores, _form in SHARED.items():
    xen("N9", f"1k-1k-load-{_cores}-core{'' if _cores == 1 else 's'}", _form, lambda run: percent(ratio(run)))
for _cores in (3, 4):
    xen("N9", f"1k-1m-1k-loss-{_cores}-cores", SHARED[_cores], loss, BESIDE_1M)
xen("N9", "1k-1m-1m-load", SHARED[3], lambda run: percent(ratio(run, 1)), BESIDE_1M)
xen("N9", "1k-pairs-host-cpu-1-core", SHARED[1], busy)


@number("N9", "1k-1k-host-cpu-3-4-cores")
def host_cpu_of_several_cores(lab: LabRuns) -> Values | None:
    """The higher of three and four CPUs, in percent of all of them."""

    def highest(runs: Mapping[int, LabRun]) -> float | None:
        return of_known(max, [gain(busy(run), cores) for cores, run in runs.items()])

    return of_rounds({cores: on_xen(lab, SHARED[cores]) for cores in (3, 4)}, highest)


# N13: what guests that serve 1 KB hold of tables of fixed size, at work, with three CPUs that all domains share. The
# lab's guests run a later Linux and Xen: numbers of entries and objects are shown, and what is judged is whether they
# grow as printed, and whether the table is full.
NEARLY_FULL = 0.95


def at_work(metric: str) -> Read:
    return lambda run: of_guests(run, metric)


def at_rest(metric: str) -> Read:
    return lambda run: of_guests(run, f"{metric}_at_rest")


def pinned(lab: LabRuns) -> list[LabRun]:
    """Two 1 KB servers with CPUs of Dom0's own, or one beside a 1 MB server, where tables were read."""
    return [run for name in (TWO_1K, BESIDE_1M) for run in in_all(lab, name) if of_1k("grant_entries")(run) is not None]


def of_1k(metric: str) -> Read:
    """A metric of the servers of 1 KB, their mean."""

    def read(run: LabRun) -> float | None:
        names = [member.instance for member in run.members if member.workload == "web-1k"]
        return of_known(fmean, [run.metric("instance", metric, name) for name in names])

    return read


def filled(run: LabRun) -> float | None:
    return gain(of_1k("grant_entries")(run), of_1k("grant_entries_most")(run))


xen("N13", "slab-before", SHARED[3], at_rest("slab_objects"))
xen("N13", "slab-peak", SHARED[3], at_work("slab_objects"))
xen(
    "N13",
    "slab-gain-as-printed",
    SHARED[3],
    lambda run: gain(at_work("slab_objects")(run), at_rest("slab_objects")(run)),
)
xen("N13", "grant-entries-held", SHARED[3], at_work("grant_entries"))
xen("N13", "grant-entries-limit", SHARED[3], at_work("grant_entries_most"))
number("N13", "grant-entries-pinned")(lambda lab: over(pinned(lab), of_1k("grant_entries")))
number("N13", "every-1k-case", unit="of the limit", agree=Region(low=NEARLY_FULL))(
    lambda lab: over([*on_xen(lab, SHARED[3]), *pinned(lab)], filled, min)
)
number("N15", "grant-table", unit="of the limit", agree=Region(low=NEARLY_FULL))(
    lambda lab: over([*on_xen(lab, SHARED[3]), *pinned(lab)], filled, max)
)


# N10: four CPUs that all domains share against one
def with_cores(statement: str, one: Read, four: Read | None = None) -> None:
    """Register the relative change of a value of two 1 KB servers."""

    @number("N10", statement, unit="relative change")
    def moved(lab: LabRuns) -> Values | None:
        return against(
            on_xen(lab, SHARED[4]), on_xen(lab, SHARED[1]), lambda run, base: change((four or one)(run), one(base))
        )


# of all CPUs, as the paper's total is
with_cores("dom0-cpu-with-cores", driver("cpu"), lambda run: gain(driver("cpu")(run), 4))
with_cores("dom0-block-with-cores", driver("block"))
with_cores("1k-guest-cpu-with-cores", guests("cpu"))
