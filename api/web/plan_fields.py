"""The fields of the forms for plans: which each kind of question has, with their defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.domain import PlanKind

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
    "keep_ratio": FormField(
        "Ratio that everybody keeps", "number", "0.8", 0.01, 1, help="unless it has a limit of its own; 1 = as alone"
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
    "max_moves": FormField("Most moves", "whole", "", 0, 100_000, help="empty = as many as pay"),
    "move_gain": FormField(
        "A move must gain", "number", "0.02", 0, 1, help="what the worst-off gains, and 0.3 of what the others gain"
    ),
    "at_once": FormField("Moves at once", "whole", "8", 1, 1000),
    "at_once_per_host": FormField("Moves at once per host", "whole", "4", 1, 8, help="to or from it"),
    "at_once_per_rack": FormField(
        "Moves at once per rack", "whole", "", 1, 1000, help="empty = any number; a rack is a host's label rack"
    ),
    "migration_mbit": FormField(
        "Network of a host for moves, Mbit/s", "number", "", 1, 1e9, help="empty = its label migration_mbit, else all"
    ),
    "per_month": FormField("New instances a month", "number", "", 0, 1e6),
    "load_percent": FormField("More load a month, %", "number", "", 0, 1000),
    "months": FormField("Months to look ahead", "whole", "24", 1, 240),
    "uncertain_percent": FormField("Growth is uncertain by, %", "number", "0", 0, 100, help="of itself"),
    "spare_hosts": FormField("Hosts that may fail together", "whole", "0", 0, 100, help="everybody still has a host"),
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
    "time_limit_s": FormField("Time, s", "number", "10", 0.1, 600, help="then the best so far is answered"),
    "seed": FormField("Seed", "whole", "1", 0, 2**31 - 1),
    "commands": FormField("With commands for each step", "check", "yes"),
}

# Of each kind its title, its question, and its fields under their headings.
Sections = tuple[tuple[str, tuple[str, ...]], ...]
_TOGETHER = ("at_once", "at_once_per_host", "at_once_per_rack", "migration_mbit")
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
}  # fmt: skip
