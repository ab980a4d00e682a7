"""The options of the group [cotenant] in nova.conf, and the service that they name."""

import nova.conf
from oslo_config import cfg

from cotenant_nova.asking import Service

GROUP = "cotenant"
OPTIONS = [
    cfg.StrOpt("url", default="http://127.0.0.1:8080", help="Base URL of the Cotenant service, http or https."),
    cfg.StrOpt("token_file", help="File with the bearer token; sent over https, or to loopback, only."),
    cfg.StrOpt("ca_file", help="Certificates that vouch for the service; by default the system's."),
    cfg.FloatOpt("timeout", default=2.0, min=0.01, help="Seconds that one question may take in all."),
    cfg.StrOpt(
        "objective", default="worst", choices=["worst", "total", "limits", "pack"], help="What hosts are ranked by."
    ),
    cfg.FloatOpt(
        "weight_multiplier",
        default=1000.0,
        help="Weight beside Nova's own weighers, which add up to 2 or 3; the default lets Cotenant decide, but not "
        "over failed builds and other cells (1e6). Aggregates override it by cotenant_weight_multiplier.",
    ),
]
CONF = nova.conf.CONF
CONF.register_opts(OPTIONS, group=GROUP)


def service() -> Service:
    """The service as nova.conf names it now."""
    options = CONF[GROUP]
    return Service(options.url, options.token_file, options.ca_file, options.timeout)
