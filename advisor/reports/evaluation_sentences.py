"""The meaning of an evaluation in sentences; plain text, escaped by the template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.reports.number_format import NBSP, edges, share
from advisor.reports.number_format import error as points

OURS = "cotenant"
CLAIMED = (0.87, 0.93)  # coverage that counts as the 90 % that the intervals claim
PROTOCOLS = {
    "random_row": "Random rows",
    "unseen_pair": "Unseen pairs",
    "unseen_workload": "Unseen workloads",
    "unseen_platform": "Unseen platforms",
    "unseen_setting": "Unseen settings",
    "pairs_to_n": "From pairs to more",
    "n_up_to_k": "From few to more",
}
JUDGED = {
    "unseen_pair": "unseen pairs",
    "unseen_workload": "unseen workloads",
    "unseen_platform": "unseen platforms",
    "unseen_setting": "unseen settings",
    "pairs_to_n": "runs of three and more",
    "n_up_to_k": "runs of more than were trained on",
}
MEANING = {
    "random_row": "Rows left out at random; repeats of what is judged were trained on. A warning of how good a leak "
    "looks, no figure to rely on.",
    "unseen_pair": "Workloads that were seen, in pairs that were not: all rows of a pair are left out together.",
    "unseen_workload": "Every run that contains the workload is left out of training.",
    "unseen_platform": "Everything measured on a platform is left out of training.",
    "unseen_setting": "A pinning, cap or network mode that was never trained on.",
    "pairs_to_n": "Trained on runs of up to two instances, judged on runs of three and more.",
    "n_up_to_k": "Trained on runs of up to k instances, judged on larger ones, for each k from three on.",
}


def title(protocol: str) -> str:
    """A protocol as a heading."""
    return PROTOCOLS.get(protocol, protocol)


def headline(datasets: Sequence[Mapping[str, Any]]) -> str:
    """The errors that matter, or how many datasets there are."""
    if len(datasets) > 1:
        return f"{len(datasets)} datasets, each evaluated by itself."
    errors = [
        f"{points(figures['models'][OURS]['mae'])} percentage points on {JUDGED.get(name, name)}"
        for name, figures in datasets[0]["protocols"].items()
        if OURS in figures["models"] and name != "random_row"
    ]
    if not errors:
        return f"{datasets[0]['dataset']}: no figure of the model itself."
    listed = errors[0] if len(errors) == 1 else f"{', '.join(errors[:-1])} and {errors[-1]}"
    return f"The mean error is {listed}."


def summary(protocol: str, figures: Mapping[str, Any]) -> list[str]:
    """What one protocol shows for the model; empty where it was not evaluated."""
    if "skipped" in figures:
        return [f"{title(protocol)}: skipped, {figures['skipped']}."]
    ours = figures["models"].get(OURS)
    return list(_sentences(protocol, figures, ours)) if ours else []


def _sentences(protocol: str, figures: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    between = f" (95{NBSP}% interval {edges(interval)})" if (interval := ours["intervals"]["mae"]) else ""
    yield (
        f"{title(protocol)}: off by {points(ours['mae'])} percentage points of the throughput alone on "
        f"average{between}, {share(ours['mape'])} of what was measured; nine in ten rows by less than "
        f"{points(ours['p90_abs_error'])}."
    )
    yield from _against(figures.get("difference"), "the best baseline")
    yield from _against(figures.get("difference_to_composition"), "the best composition of measured pairs")
    if ours["coverage"] is not None:
        verdict = "" if CLAIMED[0] <= ours["coverage"] <= CLAIMED[1] else ", not as claimed"
        yield f"Its 90{NBSP}% intervals held {share(ours['coverage'])} of the rows{verdict}."
    ratio = (ours["error_over_noise"] or {}).get("mae")
    if figures["noise"] and ratio is not None:
        yield (
            f"Repeats of one measurement lie so far apart that a perfect prediction would be off by "
            f"{points(figures['noise']['mae'])}; where there are repeats the error is {ratio:.2f} times that."
        )
    if (right := ours["pair_ranking_accuracy"]) is not None:
        yield (
            f"It ranks two neighbours by harm as measured in {share(right)} of the pairs that the measurement can rank."
        )


def _against(difference: Mapping[str, Any] | None, other: str) -> Iterator[str]:
    error = (difference or {}).get("mae")
    if not error:
        return
    value, interval = error["value"], error["interval"]
    if interval is None or interval[0] <= 0 <= interval[1]:
        verdict = "not significantly different"
    else:
        verdict = f"{'better' if value < 0 else 'worse'} by {points(abs(value))}"
    shown = f" (difference {edges(interval)})" if interval else ""
    yield f"Compared with {other}, {error['baseline']}, it is {verdict}{shown}."
