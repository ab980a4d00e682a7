"""The fields of the forms for plans: which each kind of question has, with their defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.domain import PLAN_LIMITS, Growth, PlanKind, PlanRequest

Shape = Literal["number", "whole", "names", "choice", "text", "check"]


@dataclass(frozen=True, slots=True)
class FormField:
    """One field: its label, what may be typed and its default; `must` = it may not be empty.

    Numbers lie from `low` to `high`; `names` are ids, separated by blanks or commas; `choices` are values with texts.
    """

    label: str
    shape: Shape
    default: str = ""
    low: float = 0
    high: float = 1e9
    choices: tuple[tuple[str, str], ...] = ()
    help: str = ""
    must: bool = False
    listed: str = ""  # the kind of names that the browser offers a list of


STANDARD = PlanRequest()


def _of(name: str, label: str, shape: Shape, *, help: str = "") -> FormField:  # noqa: A002 - as the field's
    """A number of the question, with the limits and the default that it has at every door."""
    asked, _, part = name.rpartition(".")
    least, most = PLAN_LIMITS[name]
    default = getattr(Growth() if asked else STANDARD, part)
    return FormField(label, shape, "" if default is None else f"{default:.15g}", least, most, help=help)


MIX_ROWS = 3
_MIX: Mapping[str, FormField] = {
    f"{name}_{row}": field
    for row in range(1, MIX_ROWS + 1)
    for name, field in {
        "count": FormField("How many", "whole", "1" if row == 1 else "", 0, 1000),
        "workload": FormField("Workload", "text", listed="workloads"),
        "vcpus": FormField("vCPUs", "whole", "2", 1, 4096),
        "memory_mb": FormField("Memory, MB", "number", "2048", 0, 1e9),
        "ratio": FormField("Must keep at least", "number", "", 0.01, 1),
    }.items()
}
FIELDS: Mapping[str, FormField] = {
    **_MIX,
    "prefix": FormField("Their names begin with", "text", "new"),
    "objective": FormField(
        "Objective",
        "choice",
        "worst",
        choices=(("worst", "best for the worst-off"), ("total", "best in sum"), ("pack", "fewest hosts")),
    ),
    "keep_ratio": _of(
        "keep_ratio", "Ratio that everybody keeps", "number", help="unless it has a limit of its own; 1 = as alone"
    ),
    "plan_for": FormField(
        "Demand that counts",
        "choice",
        "hours",
        choices=(
            ("hours", "as it varies over the hours"),
            ("mean", "the mean of each"),
            ("p50", "p50 of each, all at once"),
            ("p95", "p95 of each, all at once"),
            ("p99", "p99 of each, all at once"),
        ),
    ),
    "empty": FormField("Hosts to empty", "names", must=True, listed="hosts"),
    "hosts": FormField("Hosts that may be used", "names", help="empty = all", listed="hosts"),
    "movable": FormField("Who may move", "names", help="empty = all but pinned instances", listed="instances"),
    "max_moves": _of("max_moves", "Most moves", "whole", help="empty = as many as pay"),
    "move_gain": _of(
        "move_gain", "A move must gain", "number", help="what the worst-off gains, and 0.3 of what the others gain"
    ),
    "at_once": _of("at_once", "Moves at once", "whole"),
    "at_once_per_host": _of("at_once_per_host", "Moves at once per host", "whole", help="to or from it"),
    "at_once_per_rack": _of("at_once_per_rack", "Moves at once per rack", "whole", help="empty = any number"),
    "rack_label": FormField("Label that names a host's rack", "text", STANDARD.rack_label),
    "migration_mbit": _of(
        "migration_mbit",
        "Network of a host for moves, Mbit/s",
        "number",
        help="empty = its label migration_mbit, else all",
    ),
    "rack_mbit": _of("rack_mbit", "Network of a rack for moves, Mbit/s", "number", help="empty = not limited"),
    "per_month": _of("growth.instances_per_month", "New instances a month", "number"),
    "load_percent": _of("growth.load_percent_per_month", "More load a month, %", "number"),
    "months": _of("growth.months", "Months to look ahead", "whole"),
    "uncertain_percent": _of("growth.uncertain_percent", "Growth is uncertain by, %", "number", help="of itself"),
    "spare_hosts": _of("spare_hosts", "Hosts that may fail together", "whole", help="every instance still has a host"),
    "spare_label": FormField("Or groups of hosts by label", "text", help="such as rack; empty = single hosts"),
    "like": FormField("Add hosts like", "text", listed="hosts"),
    "add": FormField("How many hosts", "whole", "1", 0, 1000),
    "remove": FormField("Hosts that go", "names", listed="hosts"),
    "change": FormField("Hosts that change", "names", listed="hosts"),
    "pcpus": FormField("Their pCPUs then", "whole", "", 1, 4096),
    "host_memory_mb": FormField("Their memory then, MB", "number", "", 1, 1e9),
    "cpu_overcommit": FormField("CPU overcommit", "number", "", 0.01, 1000, help="empty = each host's own"),
    "memory_overcommit": FormField("Memory overcommit", "number", "", 0.01, 1000, help="empty = each host's own"),
    "pinning": FormField(
        "Pinning",
        "choice",
        "as_it_is",
        choices=(("as_it_is", "as it is"), ("unpinned", "nobody is pinned"), ("own", "pCPUs of their own")),
    ),
    "model": FormField("Model that is asked", "text", help="empty = the one that answers", listed="models"),
    "then": FormField(
        "Then ask there",
        "choice",
        "",
        choices=(
            ("", "only what happens to everybody"),
            ("capacity", "how much more fits"),
            ("admit", "can these be placed"),
            ("rebalance", "who should move"),
            ("consolidate", "how few hosts would do"),
        ),
    ),
    "time_limit_s": _of("time_limit_s", "Time, s", "number", help="then the best so far is answered"),
    "seed": _of("seed", "Seed", "whole"),
    "commands": FormField("With commands for each step", "check", "yes"),
}

# Of each kind its title, its question, and its fields under their headings.
Sections = tuple[tuple[str, tuple[str, ...]], ...]
_TOGETHER = ("at_once", "at_once_per_host", "at_once_per_rack", "rack_label", "migration_mbit", "rack_mbit")
_SEARCH = ("The search", ("time_limit_s", "seed", "commands"))
KINDS: Mapping[PlanKind, tuple[str, str, Sections]] = {
    "admit": (
        "Admit",
        "Can these instances be placed, and where?",
        (("What comes", (*_MIX, "prefix")), ("How", ("objective", "keep_ratio", "plan_for", "hosts")), _SEARCH),
    ),
    "rebalance": (
        "Rebalance",
        "Which few moves bring everybody within their limits?",
        (
            ("Limits", ("keep_ratio", "plan_for", "move_gain")),
            ("Moves", ("max_moves", *_TOGETHER, "movable", "hosts")),
            _SEARCH,
        ),
    ),
    "evacuate": (
        "Evacuate",
        "How are these hosts emptied without harm?",
        (
            ("Hosts", ("empty", "hosts")),
            ("Moves", ("keep_ratio", "plan_for", "max_moves", *_TOGETHER, "movable")),
            _SEARCH,
        ),
    ),
    "consolidate": (
        "Consolidate",
        "How few hosts would do, with every ratio kept?",
        (("Limits", ("keep_ratio", "plan_for")), ("Moves", ("max_moves", *_TOGETHER, "movable", "hosts")), _SEARCH),
    ),
    "capacity": (
        "Capacity",
        "How many more of this mix fit, and when is the cloud full?",
        (
            ("The mix", tuple(_MIX)),
            ("Growth", ("per_month", "load_percent", "months", "uncertain_percent")),
            ("Failover reserve", ("spare_hosts", "spare_label")),
            ("How", ("keep_ratio", "plan_for", "hosts")),
            _SEARCH,
        ),
    ),
    "what_if": (
        "What if",
        "What would another cloud do to everybody?",
        (
            (
                "What is otherwise",
                (
                    "like", "add", "remove", "change", "pcpus", "host_memory_mb",
                    "cpu_overcommit", "memory_overcommit", "pinning", "model",
                ),
            ),
            ("And then", ("then", "keep_ratio", "plan_for")),
            ("Instances, where they are asked about", tuple(_MIX)),
            _SEARCH,
        ),
    ),
    "right_size": (
        "Right-size",
        "Who has more or less CPU than it uses?",
        (("Limits", ("keep_ratio",)), _SEARCH),
    ),
    "tune": (
        "Tune",
        "Which settings suit all instances of a host as it stands?",
        (("Hosts", ("hosts",)), ("How", ("objective", "plan_for")), _SEARCH),
    ),
}  # fmt: skip
