"""Documents name the actor and say what it does: these words hide both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(r"\b(?:told|whom|nobody|everybody|somebody|what\s+there\s+is)\b", re.IGNORECASE)
ARCHIVE = ROOT / "docs" / "decisions" / "archive"
FOLDERS = (ROOT / "docs", ROOT / "integrations")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
    if ARCHIVE not in page.parents
)
# Pages that still wait to be rewritten.
WAITING: frozenset[str] = frozenset(
    {
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        "docs/access.md",
        "docs/answers.md",
        "docs/client.md",
        "docs/decisions/0008-scores-compare-with-before.md",
        "docs/decisions/0014-a-newcomer-may-help.md",
        "docs/decisions/0035-trees-are-checked.md",
        "docs/decisions/0038-mildest-setting-by-search.md",
        "docs/decisions/0039-counterfactuals-are-predicted.md",
        "docs/decisions/0040-residents-first.md",
        "docs/decisions/0041-tc-and-caps-in-one-module.md",
        "docs/decisions/0042-measured-tests-have-a-marker.md",
        "docs/decisions/0047-audit-in-the-transaction.md",
        "docs/decisions/0049-requests-run-in-lanes.md",
        "docs/decisions/0050-window-means-from-prometheus.md",
        "docs/decisions/0052-schedulers-get-hosts-as-they-are.md",
        "docs/decisions/0053-answers-are-remembered.md",
        "docs/decisions/0056-model-changes-are-confirmed.md",
        "docs/decisions/0057-a-report-is-data-first.md",
        "docs/decisions/0058-a-replay-predicts.md",
        "docs/decisions/0059-outcomes-by-the-told-interval.md",
        "docs/decisions/0061-keep-ratio-respects-own-limits.md",
        "docs/decisions/0062-garbage-collector-is-tamed.md",
        "docs/decisions/0070-contention-over-moments.md",
        "docs/decisions/0071-headroom.md",
        "docs/decisions/0072-demand-from-windows.md",
        "docs/decisions/0073-many-hosts-are-screened.md",
        "docs/decisions/0076-a-host-that-was-written-down-does-not-go-stale.md",
        "docs/decisions/0077-answers-do-not-wait-for-the-disk.md",
        "docs/decisions/0078-agents-announce.md",
        "docs/decisions/0079-classes-of-the-own-cloud.md",
        "docs/decisions/0080-the-day-of-a-class.md",
        "docs/decisions/0081-what-an-instance-wants.md",
        "docs/decisions/0083-half-hours-take-shapes-that-were-seen.md",
        "docs/decisions/0085-hours-are-in-the-moments.md",
        "docs/decisions/0086-waits-are-read-at-the-switch.md",
        "docs/decisions/0087-windows-are-outcomes.md",
        "docs/decisions/0088-shares-are-learned-from-windows.md",
        "docs/decisions/0089-contradictions-are-alarms.md",
        "docs/decisions/0090-who-presses-whom-by-windows.md",
        "docs/decisions/0092-cpu-is-the-feature-of-the-eight.md",
        "docs/decisions/0093-advice-is-judged-beside-others-alike.md",
        "docs/decisions/0094-bursts-are-counted.md",
        "docs/decisions/0096-learned-means-better.md",
        "docs/decisions/0097-what-earns-its-place-in-learning.md",
        "docs/decisions/0098-last-places-have-a-price.md",
        "docs/decisions/0100-fitted-predictions-say-so.md",
        "docs/decisions/0101-on-off-within-a-run.md",
        "docs/decisions/0104-stored-probe-results-are-inputs.md",
        "docs/decisions/0106-how-long-kube-scheduler-waits.md",
        "docs/decisions/0107-one-question-for-each-pod.md",
        "docs/decisions/0110-idle-cpus-are-filled.md",
        "docs/decisions/0112-moves-are-carried-out-in-kubernetes.md",
        "docs/decisions/0114-events-are-read-from-the-audit-log.md",
        "docs/decisions/0115-settings-that-training-never-had.md",
        "docs/decisions/0117-one-model-for-each-question.md",
        "docs/decisions/0118-the-same-doubt-before-and-after.md",
        "docs/decisions/0119-questions-by-the-dozen-are-placed-in-turn.md",
        "docs/decisions/0120-watcher-gets-a-planner-too.md",
        "docs/decisions/0121-settled-studies-leave.md",
        "docs/decisions/0123-pods-alike-share-an-answer.md",
        "docs/decisions/0124-go-clients-of-one-operation.md",
        "docs/decisions/0125-what-nobody-would-miss.md",
        "docs/decisions/0126-what-the-service-offers-has-a-user.md",
        "docs/decisions/0127-the-ten-changes-counted.md",
        "docs/decisions/0128-each-figure-has-its-objective.md",
        "docs/decisions/0129-load-generator-and-yaml-reader-stay.md",
        "docs/decisions/0130-trees-stay-coarse.md",
        "docs/decisions/0132-the-lab-report-shows-what-tables-cannot.md",
        "docs/decisions/0133-more-settled-studies-leave.md",
        "docs/decisions/0134-anti-affinity-groups-are-a-label.md",
        "docs/decisions/0136-left-out-platforms-choose-what-carries-over.md",
        "docs/decisions/0137-what-learners-are-worth.md",
        "docs/decisions/0138-victims-are-counted-with-total.md",
        "docs/decisions/0139-a-volume-of-the-lab-is-a-limited-network-disk.md",
        "docs/decisions/0140-forest-and-columns-stay.md",
        "docs/decisions/0141-no-cluster-for-training.md",
        "docs/decisions/0142-the-gate-tries-a-third.md",
        "docs/decisions/0143-how-large-it-is.md",
        "docs/decisions/0165-alone-means-on-the-whole-host.md",
        "docs/decisions/0170-a-disk-serves-requests.md",
        "docs/decisions/0172-a-correction-carries-over-within-a-kind.md",
        "docs/decisions/0188-a-tuning-is-a-plan.md",
        "docs/decisions/index.md",
        "docs/index.md",
        "docs/infrastructure-as-code.md",
        "docs/kubernetes-scheduler.md",
        "docs/kubernetes.md",
        "docs/lab.md",
        "docs/limits.md",
        "docs/models.md",
        "docs/monitoring.md",
        "docs/openstack.md",
        "docs/operations.md",
        "docs/planning.md",
        "docs/profiler.md",
        "docs/reference/commands.md",
        "docs/reference/errors.md",
        "docs/reference/rest.md",
        "docs/reports.md",
        "docs/results.md",
        "docs/schedulers.md",
        "docs/settings.md",
        "docs/storage.md",
        "docs/tour.md",
        "docs/your-cloud.md",
    }
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def forbidden_in(text: str) -> list[str]:
    """Each forbidden word with its line: `line 3: told`."""
    found = FORBIDDEN.finditer(text)
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0].lower()}" for match in found]


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in WAITING], ids=name_of)
def test_a_document_says_who_does_what(page: Path) -> None:
    assert forbidden_in(page.read_text(encoding="utf-8")) == []


def test_forbidden_words_are_found_whole_in_any_case_and_across_lines() -> None:
    text = "Nobody was\ntold what there\nis.\nA toldest untold body."
    assert forbidden_in(text) == ["line 1: nobody", "line 2: told", "line 2: what there\nis"]
