"""CotenantFilter: leaves out hosts where a limit would break; without an answer every host passes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from nova.scheduler import filters, utils

from cotenant_nova import request

LOG = logging.getLogger(__name__)


class CotenantFilter(filters.BaseHostFilter):
    """One question per server, about all hosts that passed the filters before this one; list it last."""

    RUN_ON_REBUILD = False

    def filter_all(self, hosts: Iterable[Any], spec: Any) -> list[Any]:
        """The hosts that may take the server."""
        hosts = list(hosts)
        try:
            if utils.request_is_rebuild(spec):
                return hosts
            names = [host.nodename for host in hosts]
            answer = request.ask(spec, names)
            if answer is not None:
                passing = set(answer.passes(names))
                return [host for host in hosts if host.nodename in passing]
        except Exception:  # servers must be placed whatever happened here
            LOG.exception("filtered without Cotenant")
        return hosts
