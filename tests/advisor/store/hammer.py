"""Writes to a database until it is killed, and says on standard output what was acknowledged: `hammer.py URL NAME`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from advisor.inventories.writes import put_host
from advisor.store.engine import Database
from advisor.telemetry.ingest import ingest
from profiler.observed import Host, MetricSample

url, name = sys.argv[1:]
database = Database(url)
now = datetime.now(UTC)
start_s = now.timestamp() - 1e6
number = 0
while True:
    number += 1
    host = f"{name}-{number}"
    with database.write() as connection:
        put_host(connection, Host(host, "kvm", 4, 1024), now)
    print(f"host {host}", flush=True)
    batch = [MetricSample(host, None, "host", "event", float(step), start_s + step) for step in range(50)]
    with database.write() as connection:
        ingest(connection, batch, now=now, fresh_s=3600)
    print(f"samples {host}", flush=True)
