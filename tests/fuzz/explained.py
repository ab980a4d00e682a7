"""Findings of schemathesis that are no fault of the service or of its description, each with the reason.

What a schema can say belongs into the schema. A row of which nothing is found any more makes a long search fail.
"""

from __future__ import annotations

from tests.fuzz.findings import Explained

ACCEPTED, REJECTED = "negative_data_rejection", "positive_data_acceptance"
BODIES = r"(PUT|POST) /v1/.*"

EXPLAINED = (
    Explained(
        r"GET /v1/\w+",
        REJECTED,
        "cursor was not handed out by this list",
        "A cursor is opaque: a schema says of which characters it is, not which ones were handed out.",
    ),
    Explained(
        BODIES,
        REJECTED,
        r"ceil_mbit \S+ is below rate_mbit|.*(driver|isolated|dedicated)_cpus name CPU|host \S+: cpu_ids name \d+ CPUs"
        r"|instance \S+: dedicated_vcpus \d+ is outside|give like or workload, not both"
        r"|instance .* is pinned to pCPU|.*pinning names"
        r"|instance .*: demand of \S+ CPUs is above its|demand for \w+: p50, p95 and p99 do not grow"
        r"|pinning: vCPUs are not numbered|.* is exclusive, and affinity|.* keep one of them"
        r"|probe \S+: there is no value .* to stand for it"
        r"|there are neither samples nor windows|windows\.\d+: row \d+ has \d+ values for",
        "JSON Schema does not compare one field with another.",
    ),
    Explained(
        r"(GET|PUT|POST) /v1/.*",
        REJECTED,
        ".* stands twice|a label can have one value only",
        "`uniqueItems` compares whole items, not their names.",
    ),
    Explained(
        BODIES,
        REJECTED,
        r"demand for \w+: (hours are not 24 or 168|seen_hours are not 24) numbers",
        "A list of one of two lengths would need two schemas of the same list, which clients cannot tell apart.",
    ),
    Explained(
        r"PUT /v1/.*",
        REJECTED,
        "the body says|mode replace without|If-Match and the field generation name different generations",
        "A schema of the body sees neither the path nor a header.",
    ),
    Explained(
        BODIES,
        REJECTED,
        r"(instance \S+: )?there is no host|there is no instance \S+ in the inventory, so its size"
        r"|every host is to be emptied|instance .* is not on|what_if needs at least"
        r"|there is no instance .* to be like|host \S+ is new and its \w+ could not be read"
        "|nothing in the profile is known",
        "A schema does not know what the service knows: its cloud, and which metrics it reads.",
    ),
    Explained(
        r"POST /v1/(placements|placements:batch|plans)",
        REJECTED,
        "this key was used for another question",
        "A schema does not know which keys were used.",
    ),
    Explained(
        r"PUT /v1/(workloads/.*|inventory)",
        REJECTED,
        "workload .* is not named with",
        "Which characters of Unicode can be printed is more than a portable pattern holds.",
    ),
    Explained(
        r"(GET|PUT|DELETE) /v1/.*",
        ACCEPTED,
        "Object with unexpected properties",
        "Header fields that are not known are let pass (RFC 9110, section 5.1). Schemathesis means to allow for it, "
        "and does not beside a header that is a number.",
    ),
    Explained(
        "POST /v1/announcements",
        ACCEPTED,
        "(host|instances)( ->|:) ",
        "A malformed field of the host and a malformed instance are left out with a note; the rest is taken.",
    ),
)
