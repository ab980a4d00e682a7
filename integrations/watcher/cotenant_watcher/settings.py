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
    """The client as watcher.conf describes it now; ValueError says which option cannot be used."""
    options = CONF[GROUP]
    return Client(options.url, token_file=options.token_file, timeout_s=options.timeout, deadline_s=options.timeout)
