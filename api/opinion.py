"""How other schedulers are answered: in their own time, and with what opinion of each host."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor import deadline
from advisor.domain import HostRanking, Instance, PlacementRequest, asked_about
from advisor.domain.names import SAID
from advisor.errors import DeadlinePassed, InvalidInput
from advisor.service import InventoryService, PlacementService
from api.problems import Busy
from api.schemas.base import TEXT_PATTERN, as_input
from profiler.observed import MAX_CPUS

HostName = Annotated[str, Field(pattern=TEXT_PATTERN, min_length=1, max_length=255)]
MOST_HOSTS = 10_000


class Incoming(BaseModel):
    """Base of what other schedulers send: unknown fields pass, numbers are finite, values do not change."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


# How long kube-scheduler may wait for us: it schedules one pod after another, so a late answer delays all of them.

T = TypeVar("T")
REST_S = 5.0  # after a late answer questions are refused at once for so long
_PODS = 256  # pods whose first question is remembered


class Patience:
    """Limits the time of all questions about a pod together.

    After a late answer every question is refused at once for a while; then one question is tried. kube-scheduler takes
    a refusal for an error, and goes on without us where the extender is `ignorable`.
    """

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.within_s = within_s
        self._clock = clock
        self._rests_until = 0.0
        # By the uid of a pod: when an attempt to schedule it began, and the verbs that were asked since.
        self._begun: OrderedDict[str, tuple[float, set[str]]] = OrderedDict()

    def wrap(self, endpoint: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """The endpoint with this limit; its `body` is about a pod. Busy or DeadlinePassed once the time is over."""

        @wraps(endpoint)
        async def in_time(*args: Any, **kwargs: Any) -> T:
            now = self._clock()
            if now < self._rests_until:
                raise Busy(f"an answer took over {self.within_s:g} s; pods are not advised on for up to {REST_S:g} s")
            trial = self._rests_until > 0
            if trial:  # refuse all others meanwhile
                self._rests_until = now + self.within_s
            left_s = self._left_s(kwargs["body"].pod.metadata.uid, endpoint.__name__, now)
            try:
                with deadline.within(min(left_s, deadline.left_s())):
                    answer = await endpoint(*args, **kwargs)
            except DeadlinePassed:
                if self._clock() >= now + left_s:  # else it was the caller's own, shorter deadline
                    self._rests_until = self._clock() + REST_S
                raise
            if trial:
                self._rests_until = 0.0
            return answer

        return in_time

    def _left_s(self, uid: str, verb: str, now: float) -> float:
        """The time that this attempt to schedule the pod has left. A verb that is asked again begins a new attempt."""
        begun, asked = self._begun.get(uid, (now, set()))
        if not uid or verb in asked or now - begun >= self.within_s:
            begun, asked = now, set()
        self._begun[uid] = begun, asked | {verb}
        self._begun.move_to_end(uid)
        while len(self._begun) > _PODS:
            self._begun.popitem(last=False)
        return begun + self.within_s - now


_patience: ContextVar[Patience] = ContextVar("patience")


class WithPatience:
    """Sets the Patience of this application for a request: routes are shared by all applications of a process."""

    def __init__(self, app: ASGIApp, patience: Patience) -> None:
        self.app = app
        self.patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        token = _patience.set(self.patience)
        try:
            await self.app(scope, receive, send)
        finally:
            _patience.reset(token)


def patient(endpoint: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The endpoint, wrapped by the Patience of the application that is asked."""

    @wraps(endpoint)
    async def run(*args: Any, **kwargs: Any) -> T:
        return await _patience.get().wrap(endpoint)(*args, **kwargs)

    return run


# Hosts with a score of their own; those behind get half of the lowest score. The work grows with this number.
MOST_SCORED = 100
UNSURE = frozenset({"host.unknown", "host.no_data"})  # rejections for lack of data
# Rejections that stay whoever leaves the host.
LASTING = frozenset({"host.disabled", "constraint.kind", "constraint.label", "constraint.exclude", "capacity.pinning"})


@dataclass(frozen=True, slots=True)
class HostScores:
    """Scores and refusals of the hosts that a scheduler named.

    Each host is in exactly one of `scores`, best first; `behind`, worse than those and in the order of naming;
    `refused`, with a sentence each; and `unknown`, in the order of naming. `lasting` are those of `refused` that would
    be refused whoever left; `silent` are those of `unknown` that the inventory has without fresh data. `per_host` = the
    scores depend on no other host that was named.
    """

    scores: Mapping[str, float]
    behind: tuple[str, ...]
    refused: Mapping[str, str]
    unknown: tuple[str, ...]
    lasting: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    per_host: bool = True

    def points(self, most: int, held: str | None) -> dict[str, int]:
        """What each host that can take the instance is worth, 0 to `most`.

        It is `most` where no instance is harmed, and half where the harm is as if one instance stood still. No other
        host gets as many points as the one that is held, so that a scheduler which goes by points takes that one.
        """
        scaled = {name: round(most / (1 + max(1 - score, 0.0))) for name, score in self.scores.items()}
        # The worst hosts are among those behind: a scheduler that looks at a few hosts only must not prefer them.
        scaled |= dict.fromkeys(self.behind, min(scaled.values(), default=0) // 2)
        if held is None:
            return scaled
        best = scaled[held]
        return {name: value if name == held else max(0, min(value, best - 1)) for name, value in scaled.items()}

    @classmethod
    def of(cls, ranking: HostRanking, named: Sequence[str]) -> HostScores:
        scores, rejected = ranking.scores, ranking.answer.rejected
        refused = {host.host: host.reason for host in rejected if host.code not in UNSURE}
        unknown = {host.host for host in rejected if host.code in UNSURE}
        others = [name for name in dict.fromkeys(named) if name not in scores and name not in refused]
        return cls(
            scores=scores,
            behind=tuple(name for name in others if name not in unknown),
            refused=refused,
            unknown=tuple(name for name in others if name in unknown),
            lasting=frozenset(host.host for host in rejected if host.code in LASTING),
            silent=frozenset(host.host for host in rejected if host.code == "host.no_data"),
            per_host=ranking.per_host,
        )


def ask(
    placements: PlacementService,
    instance: Instance,
    hosts: Sequence[str],
    *,
    most: int = MOST_SCORED,
    holds_next: bool = False,
    without: Collection[str] = (),
) -> HostScores:
    """Scores of these hosts; only the audit log keeps the answer (`holds_next`, `without`: see PlacementService)."""
    ranking = placements.scores(question(instance, hosts, most), hold=False, holds_next=holds_next, without=without)
    return HostScores.of(ranking, hosts)


def ask_and_hold(
    placements: PlacementService, instance: Instance, hosts: Sequence[str]
) -> tuple[HostScores, str | None]:
    """Scores of these hosts, and the best one, held until the inventory shows the instance; None = there is none.

    One entry in the audit log either way.
    """
    ranking = placements.scores(question(instance, hosts, MOST_SCORED), hold=True)
    return HostScores.of(ranking, hosts), next(iter(ranking.scores), None)


def hold(placements: PlacementService, instance: Instance, scores: HostScores) -> str | None:
    """Hold the best of the hosts that can take it; None = none can any more. One entry in the audit log."""
    (answer,) = placements.in_turn([question(instance, tuple(scores.scores), 1)], hold=True)
    return answer.candidates[0].host if answer.candidates else None


def question(instance: Instance, hosts: Sequence[str], most: int = 1) -> PlacementRequest:
    """A scheduler's question: no explanation, no commands, these hosts only."""
    return PlacementRequest(instance, hosts=tuple(dict.fromkeys(hosts)), limit=most, explain=False)


def asked(inventory: InventoryService, name: str, given: Mapping[str, Any], *, vcpus: int | None = None) -> Instance:
    """The instance as the scheduler describes it, by the rule of `asked_about`; InvalidInput where that is no name."""
    _named(name)  # before the database is asked for it
    return asked_about(name, given, inventory.instance, vcpus=vcpus)


@as_input
def _named(name: str) -> Instance:
    return Instance(name)


@as_input
def _one_of(name: str, value: object) -> Instance:
    fields: dict[str, Any] = {name: value}
    return Instance("one", vcpus=MAX_CPUS, **fields)


def described(texts: Mapping[str, str], key_of: Callable[[str], str], **sizes: float | None) -> dict[str, Any]:
    """What a scheduler says of an instance, as fields of it, which overrule the inventory.

    `texts` may hold `workload`, `service`, `load`, `min_throughput_ratio`, `max_latency_ratio` and `max_time_short`,
    each under the key that `key_of` makes of its name; `sizes` are `vcpus`, `memory_mb` and `disk_gb`, None = not
    given. InvalidInput names the key that is wrong.
    """
    fields: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    for name, read in SAID.items():
        key = key_of(name)
        if key not in texts:
            continue
        try:
            fields[name] = read(texts[key])
            _one_of(name, fields[name])  # checks the type's own rule here, so the error names the key
        except (ValueError, InvalidInput) as error:
            raise InvalidInput(f"{key} {texts[key][:60]!r}: {error}", field=key) from error
    return fields
