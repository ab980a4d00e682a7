"""Settings of an instance in words: pinning, cap, weight, network class and disk limit, at every front end."""

from __future__ import annotations

from profiler.observed import DEFAULT_WEIGHT, IsolationSettings, NetworkSettings

AS_IS = "as is"


def settings_named(settings: IsolationSettings | None) -> list[tuple[str, str]]:
    """Every setting to make, as name and value; empty = leave everything as it is."""
    if settings is None:
        return []
    weight = settings.weight
    named = (
        ("pin", "" if settings.pinning is None else str(settings.pinning)),
        ("cap", "" if settings.cap_percent is None else f"{settings.cap_percent:g} % of a CPU"),
        ("weight", "" if weight is None else f"{weight} ({weight / DEFAULT_WEIGHT:.3g} × default)"),
        ("network", _network(settings.network)),
        ("disk", "" if settings.disk_limit_mb_s is None else f"{settings.disk_limit_mb_s:g} MB/s"),
    )
    return [(name, value) for name, value in named if value]


def settings_in_words(settings: IsolationSettings | None) -> str:
    """All of them in one phrase; AS_IS where there is none."""
    return ", ".join(f"{name} {value}" for name, value in settings_named(settings)) or AS_IS


def _network(network: NetworkSettings | None) -> str:
    if network is None or network.mode == "none":
        return ""
    most = f" up to {network.ceil_mbit:g}" if network.mode == "shared" and network.ceil_mbit else ""
    return f"{network.mode} {network.rate_mbit:g}{most} Mbit/s"
