"""CotenantWeigher: the hosts that Cotenant ranks first weigh most; without an answer all weigh the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from nova.scheduler import utils, weights

from cotenant_nova import request, settings

LOG = logging.getLogger(__name__)


class CotenantWeigher(weights.BaseHostWeigher):
    """One question per server; 0 for every host where it fails, because an exception here would fail the request."""

    # Without these Nova would stretch the scores of a request to 0..1, and a difference of 0.01 would look decisive.
    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self, host_state: Any) -> float:
        """As configured, or as the host's aggregates say."""
        own = settings.CONF[settings.GROUP].weight_multiplier
        return float(utils.get_weight_multiplier(host_state, "cotenant_weight_multiplier", own))

    def _weigh_object(self, host_state: Any, spec: Any) -> float:
        raise NotImplementedError("hosts are weighed together")

    def weigh_objects(self, weighed: Sequence[Any], spec: Any) -> list[float]:
        """A value for each host, in their order."""
        hosts = [host.obj.nodename for host in weighed]
        try:
            answer = request.ask(spec, hosts)
            if answer is not None:
                return answer.weights(hosts)
        except Exception:  # servers must be placed whatever happened here
            LOG.exception("weighed without Cotenant")
        return [0.0] * len(hosts)
