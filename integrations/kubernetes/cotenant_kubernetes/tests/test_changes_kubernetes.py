"""Guests of KubeVirt move and nodes are cordoned by the ledger's executor, before a stand-in of the API."""

from __future__ import annotations

import pytest
from cotenant_kubernetes.calls import ClusterAccount
from cotenant_kubernetes.executor import Kubernetes
from cotenant_kubernetes.tests.kubernetes_server import TOKEN, ApiServer
from cotenant_kubernetes.tests.test_moves_kubernetes import N1, N2, POD, VM, _at_once, api, ends, movable

from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, Gone
from advisor.changes.migrations import Waiting
from advisor.domain import Change
from advisor.errors import InvalidInput

__all__ = ["_at_once", "api"]
THERE = {HOST: "n2"}


def executor(api: ApiServer) -> Kubernetes:
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    waiting = Waiting(30.0, clock=lambda: passed[0], sleep=sleep)
    return Kubernetes(waiting, lambda: ClusterAccount(api.url, TOKEN))


def move(made: Kubernetes) -> Change:
    understood = made.moving(VM, N1, N2)
    return Change(0, "n1", VM.id, understood.kind, "kubernetes", understood.target, understood.before, understood.after)


def test_a_guest_moves_to_the_named_node_and_comes_back(api: ApiServer) -> None:
    made = executor(api)
    change = move(made)
    assert made.read(change) == {HOST: "n1"}
    made.write(change, THERE)
    assert made.read(change) == THERE
    made.write(change, THERE)
    made.write(change, {HOST: "n1"})
    assert made.read(change) == {HOST: "n1"}


def test_a_migration_that_fails_says_why_and_the_guest_stays(api: ApiServer) -> None:
    api.made = lambda row: ends(api, row, "Failed", migrationState={"failureReason": "no CPU model fits"})
    made = executor(api)
    with pytest.raises(ChangeFailed, match="no CPU model fits"):
        made.write(move(made), THERE)
    assert made.read(move(made)) == {HOST: "n1"}


def test_a_guest_that_migrates_already_is_not_moved_again(api: ApiServer) -> None:
    api.put("guests", movable("g1", "n1", migrationState={"completed": False, "failed": False, "targetNode": "n2"}))
    made = executor(api)
    with pytest.raises(ChangeFailed, match="still moves"):
        made.read(move(made))
    with pytest.raises(ChangeFailed):
        made.write(move(made), THERE)


def test_a_guest_that_cannot_move_live_is_left_alone(api: ApiServer) -> None:
    api.put("guests", movable("g1", "n1", status="False"))
    made = executor(api)
    with pytest.raises(ChangeFailed, match="its disk is local"):
        made.write(move(made), THERE)


def test_a_guest_that_is_gone_is_gone_and_a_pod_is_not_moved(api: ApiServer) -> None:
    made = executor(api)
    change = move(made)
    api.objects["guests"].clear()
    with pytest.raises(Gone):
        made.read(change)
    with pytest.raises(InvalidInput, match="a pod does not move"):
        made.moving(POD, N1, N2)


def test_a_node_is_cordoned_and_uncordoned(api: ApiServer) -> None:
    made = executor(api)
    understood = made.closing(N1)
    change = Change(0, "n1", "", understood.kind, "kubernetes", understood.target, understood.before, understood.after)
    assert made.read(change) == {OPEN: YES}
    made.write(change, {OPEN: NO})
    assert made.read(change) == {OPEN: NO}
    made.write(change, {OPEN: YES})
    assert made.read(change) == {OPEN: YES}
