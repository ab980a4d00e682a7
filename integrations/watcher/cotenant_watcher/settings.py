"""The options of the group [cotenant] in watcher.conf, and the client that they make."""

import watcher.conf
from oslo_config import cfg

from cotenant_client import Client

GROUP = "cotenant"
OPTIONS = [
    cfg.StrOpt("url", default="http://127.0.0.1:8080", help="Base URL of the Cotenant service, http or https."),
    cfg.StrOpt("token_file", help="File with the bearer token; sent over https, or to loopback, only."),
    cfg.FloatOpt("timeout", default=30.0, min=0.1, help="Seconds that an answer may take beside the search itself."),
]
CONF = watcher.conf.CONF
CONF.register_opts(OPTIONS, group=GROUP)


def client() -> Client:
    """As watcher.conf says now. ValueError says what of it cannot be used."""
    told = CONF[GROUP]
    return Client(told.url, token_file=told.token_file, timeout_s=told.timeout, deadline_s=told.timeout)
