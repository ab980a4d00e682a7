"""One question per server, which filter and weigher share: they run one after the other in the same thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cotenant_nova import settings
from cotenant_nova.answer import Answer
from cotenant_nova.asking import NoAnswer
from cotenant_nova.question import question

LOG = logging.getLogger(__name__)
KEPT_S = 5.0  # longer than a request's other filters and weighers take, shorter than the time until a retry
_of_thread = threading.local()


@dataclass(frozen=True)
class _Kept:
    """The latest answer in this thread, and its question; `answer` None = there was none."""

    server: str
    hosts: frozenset[str]
    answer: Answer | None
    at: float

    def fits(self, server: str, hosts: Sequence[str]) -> bool:
        """Whether it also answers this question: the host that it holds must be among these."""
        if self.server != server or time.monotonic() - self.at > KEPT_S:
            return False
        return self.answer is None or (self.hosts.issuperset(hosts) and self.answer.first in {None, *hosts})


def ask(spec: Any, hosts: Sequence[str]) -> Answer | None:
    """The answer about these hosts (node names); None = there is none. Failures are logged, never raised."""
    server = spec.instance_uuid
    kept = getattr(_of_thread, "kept", None)
    if kept is None or not kept.fits(server, hosts):
        kept = _of_thread.kept = _Kept(server, frozenset(hosts), _ask_service(spec, hosts), time.monotonic())
    return kept.answer


def _ask_service(spec: Any, hosts: Sequence[str]) -> Answer | None:
    begin = time.monotonic()
    try:
        body = question(spec, hosts, settings.CONF[settings.GROUP].objective)
        answer = Answer.of(settings.service().ask(body))
    except (NoAnswer, ValueError) as error:
        LOG.warning("%s: placed without Cotenant after %.1f ms: %s", spec.instance_uuid, _ms(begin), error)
        return None
    LOG.info("%s: asked about %d hosts, %.1f ms, %s first", spec.instance_uuid, len(hosts), _ms(begin), answer.first)
    return answer


def _ms(begin: float) -> float:
    return 1000.0 * (time.monotonic() - begin)
