"""Kubernetes as a source: read once, or watched by a thread for each kind of object."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from advisor.inventories.calls import CallError
from advisor.inventories.reading import Part, Reading
from cotenant_kubernetes.calls import GONE, NOT_FOUND, ClusterAccount, KubernetesApi, account
from cotenant_kubernetes.cluster import KINDS, NAME, Change, Kind, WatchedCluster, change

PATHS: Mapping[Kind, str] = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "guests": "/apis/kubevirt.io/v1/virtualmachineinstances",
}
# Of pods that are not bound only the deletion counts: it ends a hold. Those that are over leave the watch as deleted.
SELECTORS: Mapping[Kind, str] = {"pods": "status.phase!=Succeeded,status.phase!=Failed"}
HEARTBEAT_S = 60.0
FIRST_S = 5.0  # after which the log says what keeps the first reading from coming
GATHER_S = 0.1  # for which changes are taken together
REST_S = (0.2, 10.0)  # after the first and after many failures
ABSENT_S = 60.0  # between two looks for what is not installed or not allowed


@dataclass(slots=True)
class _Watched:
    """The state of one kind: its part of a reading, and whether changes come at once."""

    part: Part | None = None
    open: bool = False


@dataclass(frozen=True, slots=True)
class _Message:
    """What a thread sends: the state of its kind, and a whole list or one change."""

    kind: Kind
    part: Part | None = None
    open: bool | None = None
    everything: tuple[Change, ...] | None = None
    change: Change | None = None


class Kubernetes:
    """Reads nodes, pods and KubeVirt's guests of a cluster; a cluster without KubeVirt has no guests."""

    def __init__(self, context: str | None = None, *, asking: Callable[[], ClusterAccount] | None = None) -> None:
        self._account = asking or cache(lambda: account(context))
        self._whole_next = False

    def read(self) -> Reading:
        """Read everything once; what cannot be read is a part that failed, and stays as it is."""
        cluster, parts = WatchedCluster(), []
        for kind in KINDS:
            try:
                changes, _ = _listed(KubernetesApi(self._account()), kind)
                cluster.replace(kind, changes)
                parts.append(Part(kind, "read", len(changes)))
            except (CallError, ValueError) as error:
                parts.append(_trouble(kind, error))
        return cluster.whole(tuple(parts))

    def again(self) -> None:
        """The last reading of a watch was not written: the next one is whole."""
        self._whole_next = True

    def watch(self, stop: threading.Event) -> Iterator[Reading]:
        """A whole reading, then what changes as it changes, and every HEARTBEAT_S that the nodes are there, until
        `stop` is set. Where nothing is known of nodes or pods yet, the parts say why."""
        messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        for kind in KINDS:
            threading.Thread(target=_follow, args=(self._account, kind, messages, stop), daemon=True, name=kind).start()
        yield from self._readings(messages, stop)

    def _readings(self, messages: queue.SimpleQueue[_Message], stop: threading.Event) -> Iterator[Reading]:
        cluster, watched = WatchedCluster(), {kind: _Watched() for kind in KINDS}
        self._whole_next, beats_at = True, time.monotonic() + FIRST_S
        while not stop.is_set():
            for message in _gathered(messages, stop, beats_at):
                _take(cluster, watched[message.kind], message)
            due = time.monotonic() >= beats_at
            reading = self._reading(cluster, watched, due=due)
            if reading is not None:
                yield reading
            if due or (reading is not None and not reading.partial):
                beats_at = time.monotonic() + HEARTBEAT_S

    def _reading(self, cluster: WatchedCluster, watched: Mapping[Kind, _Watched], *, due: bool) -> Reading | None:
        parts = tuple(
            standing.part or Part(kind, "failed", reason="no answer yet") for kind, standing in watched.items()
        )
        if self._whole_next:
            unanswered = any(standing.part is None for standing in watched.values())
            if unanswered or any(part.state != "read" for part in parts[:2]):
                return Reading(NAME, parts) if due else None
            self._whole_next = False
            return cluster.whole(parts)
        if due or cluster.has_news:
            return cluster.news(parts, heard=due and watched["nodes"].open and watched["pods"].open)
        return None


def _take(cluster: WatchedCluster, watched: _Watched, message: _Message) -> None:
    watched.part = message.part or watched.part
    watched.open = watched.open if message.open is None else message.open
    if message.everything is not None:
        cluster.replace(message.kind, message.everything)
    if message.change is not None:
        cluster.apply(message.change)


def _gathered(messages: queue.SimpleQueue[_Message], stop: threading.Event, until: float) -> list[_Message]:
    """The first word and what comes within GATHER_S after it; none when `until` is over or `stop` is set."""
    gathered: list[_Message] = []
    ends = until
    while not stop.is_set() and (left := ends - time.monotonic()) > 0:
        try:
            gathered.append(messages.get(timeout=min(left, 0.2)))
        except queue.Empty:
            continue
        if len(gathered) == 1:
            ends = min(until, time.monotonic() + GATHER_S)
    return gathered


def _follow(
    asking: Callable[[], ClusterAccount], kind: Kind, messages: queue.SimpleQueue[_Message], stop: threading.Event
) -> None:
    """In a thread: list, and watch from there; list again where the server has forgotten that version."""
    version, rows, rest_s = "", 0, REST_S[0]
    while not stop.is_set():
        try:
            api = KubernetesApi(asking())
            if not version:
                changes, version = _listed(api, kind)
                rows = len(changes)
                messages.put(_Message(kind, Part(kind, "read", rows), everything=tuple(changes)))
            for event, row in api.events(PATHS[kind], version, SELECTORS.get(kind, "")):
                if stop.is_set():
                    return
                rest_s = REST_S[0]
                version = str((row.get("metadata") or {}).get("resourceVersion") or version)
                if event == "OPEN":
                    messages.put(_Message(kind, Part(kind, "read", rows), open=True))
                elif event != "BOOKMARK":
                    messages.put(_Message(kind, change=change(kind, row, deleted=event == "DELETED")))
        except (CallError, ValueError) as error:
            if isinstance(error, CallError) and error.status == GONE:
                version = ""
                messages.put(_Message(kind, open=False))
                stop.wait(rest_s)
            else:
                part = _trouble(kind, error)
                messages.put(_Message(kind, part, open=False))
                # A server that has just started refuses every client until it has read its roles.
                soon = part.state == "failed" or (part.state == "refused" and version != "")
                version = version if soon else ""
                stop.wait(rest_s if soon else ABSENT_S)
            rest_s = min(2 * rest_s, REST_S[1])


def _listed(api: KubernetesApi, kind: Kind) -> tuple[list[Change], str]:
    """All objects as changes, which are much smaller than what comes, and the version to watch from."""
    changes: list[Change] = []
    version = ""
    for at, rows in api.pages(PATHS[kind], SELECTORS.get(kind, "")):
        changes += (change(kind, row) for row in rows)
        version = at
    return changes, version


def _trouble(kind: Kind, error: Exception) -> Part:
    if isinstance(error, CallError):
        if kind == "guests" and error.status == NOT_FOUND:
            return Part(kind, "read", 0)
        if error.refused:
            reason = f"{error}; the role needs list and watch of {PATHS[kind].rpartition('/')[2]}"
            return Part(kind, "refused", reason=reason)
    return Part(kind, "failed", reason=str(error)[:300])
