"""The history that Proxmox VE keeps of its guests, read through its REST API: windows of five minutes, and means.

| timeframe | version 8 (pve-cluster, PVE/RRD.pm) | version 9 |
|---|---|---|
| hour | 70 of a minute | 60 of a minute |
| day | 70 of half an hour | 1,440 of a minute |
| week | 70 of three hours | 336 of half an hour |
| month | 70 of twelve hours | 1,440 of half an hour |

Minutes become windows. Half hours are read as means. What is longer blurs the hours of a day, and is not asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from advisor.inventories.calls import CallError
from advisor.inventories.systems import GuestHistory
from cotenant_proxmox.calls import ProxmoxApi, account
from cotenant_proxmox.facts import Row, created_s, guest_id, node_name
from cotenant_proxmox.rrd import RrdRow, rows
from cotenant_proxmox.source import AT_ONCE, resources

WINDOW_S = 300
LONGEST_S = 3600.0  # of a mean that still says at which hour of the day
_DAY_S, _WEEK_S = 86_400.0, 7 * 86_400.0


class ProxmoxHistory:
    """The guests of one cluster under the ids that a sync gives them, and the history of each."""

    def __init__(
        self,
        cloud: str | None = None,
        ca_file: Path | None = None,
        fingerprint: str | None = None,
        *,
        open_api: Callable[[], ProxmoxApi] | None = None,
    ) -> None:
        self._prefix = f"{cloud}:" if cloud else ""
        self._open = open_api or (lambda: ProxmoxApi(account(cloud, ca_file, fingerprint)))

    @cached_property
    def _api(self) -> ProxmoxApi:
        return self._open()

    def guests(self) -> Mapping[str, Row]:
        """By id what the cluster lists of each guest; ValueError where the account, CallError where the call is
        wrong."""
        guests = {}
        for row in resources(self._api):
            if row.get("type") in {"qemu", "lxc"} and not row.get("template"):
                guests[f"{self._prefix}{str(row.get('vmid'))[:20]}"] = row
        return guests

    def histories(self, guests: Mapping[str, Row], since_s: float, now_s: float) -> Iterator[GuestHistory]:
        """The history of each, some at once, of the last `since_s` seconds; one that cannot be read says why."""
        read = partial(_read, self._api, since_s, now_s)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="proxmox") as pool:
            yield from pool.map(read, guests.items())


def _read(api: ProxmoxApi, since_s: float, now_s: float, guest: tuple[str, Row]) -> GuestHistory:
    name, row = guest
    try:
        kind, number = guest_id(row)
        path = f"/nodes/{node_name(row)}/{kind}/{number}"
        born_s = created_s(_answer(api, f"{path}/config", dict)) if kind == "qemu" else 0.0
        read = list(_rows(api, path, since_s))
    except (ValueError, CallError) as error:
        return GuestHistory(name, failed=f"guest {name}: {error}"[:300])
    begin_s = max(now_s - since_s, born_s)  # a file outlives its guest, and goes to the next one of its number
    within = [row for row in read if begin_s <= row.end_s - row.step_s and row.end_s <= now_s]
    return GuestHistory(name, _windows(within, now_s), _means(within))


def _rows(api: ProxmoxApi, path: str, since_s: float) -> Iterator[RrdRow]:
    """Minutes as far back as they reach, and half hours before them; which frame has them depends on the version."""
    day = list(_frame(api, path, "day"))
    yield from day
    if not any(step <= WINDOW_S for _, step, _ in day):
        yield from _frame(api, path, "hour")
    elif since_s > _DAY_S:
        yield from _frame(api, path, "week" if since_s <= _WEEK_S else "month")


def _frame(api: ProxmoxApi, path: str, timeframe: str) -> Iterator[RrdRow]:
    return rows(_answer(api, f"{path}/rrddata?timeframe={timeframe}&cf=AVERAGE", list))


def _answer(api: ProxmoxApi, path: str, kind: type) -> Any:
    answer = api.get(path)
    if not isinstance(answer, kind):
        raise CallError(f"{path}: no {kind.__name__}")
    return answer


def _windows(rows: Sequence[RrdRow], now_s: float) -> Mapping[str, Mapping[float, float]]:
    """Means of windows that are over, of which half at least is known."""
    sums: dict[tuple[str, float], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in {row.end_s: row for row in rows if row.step_s <= WINDOW_S}.values():
        window_s = -(-row.end_s // WINDOW_S) * WINDOW_S
        for name, value in row.values.items():
            total_and_seconds = sums[name, window_s]
            total_and_seconds[0] += value * row.step_s
            total_and_seconds[1] += row.step_s
    windows: dict[str, dict[float, float]] = defaultdict(dict)
    for (name, window_s), (total, seconds) in sorted(sums.items()):
        if WINDOW_S / 2 <= seconds <= WINDOW_S and window_s <= now_s:
            windows[name][window_s] = total / seconds
    return dict(windows)


def _means(rows: Sequence[RrdRow]) -> Mapping[str, Sequence[tuple[float, float, float]]]:
    means: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    by_end = {row.end_s: row for row in rows if WINDOW_S < row.step_s <= LONGEST_S and row.end_s % WINDOW_S == 0}
    for end_s in sorted(by_end):
        for name, value in by_end[end_s].values.items():
            means[name].append((end_s, by_end[end_s].step_s, value))
    return dict(means)
