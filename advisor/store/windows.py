"""Windows of instances as measured, bounded by host, and alarms that measurements raised; the only SQL on both.

Beyond MOST_KEPT the oldest go of that level of contention of which there are most: nine windows in ten are calm, and
would push out those that teach.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from advisor.domain import codec
from advisor.store.schema import ID, VALUE, metadata, upsert
from models.data.window_dataset import CALM_LEVEL, SharedWindow, contention_level
from profiler.demand import Demand
from profiler.observed import Host, Instance

KEEP_S = 90 * 86_400.0
MOST_KEPT = 10_000  # of all hosts
_DAY_S = 86_400.0
_AT_ONCE = 200  # rows that are read at a time
_OF_ANY_HOST = ("id", "kind", "pcpus", "memory_mb")  # a host has no default of these
_USUAL = codec.encode(Demand(0.0))

windows = sa.Table(
    "windows",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("company", sa.String(64), primary_key=True),  # digest of the day, who was there and the load
    sa.Column("ends_s", sa.Double, nullable=False, index=True),
    sa.Column("observed", VALUE, nullable=False),  # the window without what is a default
    sa.Column("level", sa.Integer, nullable=False, server_default=str(CALM_LEVEL), index=True),  # of contention
)


def keep(connection: sa.Connection, window: SharedWindow) -> None:
    """Store a window in place of the one of that day with the same instances at the same load of the host: what they
    get may have changed since, as where CPUs became slow."""
    day = int(window.ends_s // _DAY_S)
    company = hashlib.sha256(f"{day} {window.load} {window.company}".encode()).hexdigest()
    row = {
        "host": window.host.id,
        "company": company,
        "ends_s": window.ends_s,
        "observed": _plain(window),
        "level": contention_level(window.shares.values()),
    }
    upsert(connection, windows, [row])
    connection.execute(sa.delete(windows).where(windows.c.ends_s < window.ends_s - KEEP_S))
    surplus = (connection.scalar(sa.select(sa.func.count()).select_from(windows)) or 0) - MOST_KEPT
    if surplus > 0:
        count = sa.func.count()
        fullest = sa.select(windows.c.level).group_by(windows.c.level).order_by(count.desc(), windows.c.level.desc())
        here = windows.c.level == connection.scalar(fullest.limit(1))
        oldest = sa.select(windows.c.ends_s).where(here).order_by(windows.c.ends_s).offset(surplus - 1).limit(1)
        connection.execute(sa.delete(windows).where(here, windows.c.ends_s <= connection.scalar(oldest)))


def since(connection: sa.Connection, begin_s: float) -> Iterator[SharedWindow]:
    """Those that ended after a time, the oldest first, one by one: all of them together may be a gigabyte."""
    query = sa.select(windows.c.ends_s, windows.c.observed).where(windows.c.ends_s > begin_s)
    in_order = query.order_by(windows.c.ends_s, windows.c.host).execution_options(yield_per=_AT_ONCE)
    for ends_s, stored in connection.execute(in_order):
        yield SharedWindow(
            host=codec.decode(Host, stored["host"]),
            instances=tuple(codec.decode(Instance, instance) for instance in stored["instances"]),
            shares=stored["shares"],
            ends_s=ends_s,
        )


def _plain(window: SharedWindow) -> dict[str, Any]:
    """As plain values; what `codec.decode` takes for granted is left out, which is nine tenths."""
    any_host, any_instance = (codec.encode(default) for default in (Host("-", "kvm", 1, 1.0), Instance("-")))
    usual_host = {name: value for name, value in any_host.items() if name not in _OF_ANY_HOST}
    instances = []
    for instance in window.instances:
        size = {name: codec.encode(getattr(instance, name)) for name in ("vcpus", "settings")}
        demand = {
            name: {**_differing(codec.encode(known), _USUAL), "mean": known.mean}
            for name, known in instance.demand.items()
        }
        instances.append({"id": instance.id, **_differing(size, any_instance), "demand": demand})
    return {
        "host": _differing(codec.encode(window.host), usual_host),
        "instances": instances,
        "shares": {name: round(share, 5) for name, share in window.shares.items()},
    }


def _differing(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What is known and differs from the usual values, at every depth."""
    differing = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = _differing(value, usual.get(name) or {})  # noqa: PLW2901 - of the same name
        if value not in (usual.get(name), None, {}, []):
            differing[name] = value
    return differing


# Alarms: the state of each host whose measured shares lie below the predicted ones; the only SQL on it.
#
# One row per host, deleted once measurements agree again, so the table is no longer than the list of hosts.

alarms = sa.Table(
    "alarms",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("last_s", sa.Double, nullable=False),  # when the last window ended that was looked at
    sa.Column("state", VALUE, nullable=False),
)


def get_alarm(connection: sa.Connection, host: str) -> Mapping[str, Any] | None:
    """The state of a host; None = there is none."""
    state: Mapping[str, Any] | None = connection.scalar(sa.select(alarms.c.state).where(alarms.c.host == host))
    return state


def put_alarm(connection: sa.Connection, host: str, last_s: float, state: Mapping[str, Any]) -> None:
    """Insert or replace the state of a host."""
    upsert(connection, alarms, [{"host": host, "last_s": last_s, "state": dict(state)}])


def delete_alarm(connection: sa.Connection, host: str) -> None:
    """Delete the state of a host."""
    connection.execute(sa.delete(alarms).where(alarms.c.host == host))


def load_alarms(connection: sa.Connection) -> dict[str, Mapping[str, Any]]:
    """Every state by host, in the order of hosts."""
    query = sa.select(alarms.c.host, alarms.c.state).order_by(alarms.c.host)
    return {row.host: row.state for row in connection.execute(query)}


def silent_alarms(connection: sa.Connection, before_s: float) -> dict[str, Mapping[str, Any]]:
    """The states of hosts of which no window was looked at since then."""
    query = sa.select(alarms.c.host, alarms.c.state).where(alarms.c.last_s < before_s)
    return {row.host: row.state for row in connection.execute(query)}
