"""Settings of the server side, from the environment (`COTENANT_*`) or command-line options, and from nowhere else."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

DATABASE = "sqlite:///var/cotenant.sqlite3"  # unless configured otherwise; its folder is made
CLOCK_SKEW = timedelta(minutes=5)  # how far ahead of ours another clock may run; what is noted of later is not believed


class Settings(BaseSettings):
    """Every setting with its default and meaning; docs/reference/settings.md is made of these texts."""

    model_config = SettingsConfigDict(env_prefix="COTENANT_", extra="forbid", frozen=True)

    database: str = Field(
        DATABASE,
        description="database URL: SQLite or PostgreSQL. The folder of a SQLite file must exist; "
        "only that of the default is made",
    )
    state_dir: Path = Field(
        Path("var"), description="folder for model artifacts and other files that the service writes"
    )
    datasets_dir: Path = Field(
        Path("datasets"), description="folder of the datasets that training and `cotenant-research findings` read"
    )
    listen: str = Field("127.0.0.1:8080", description="address and port of the REST service")
    fresh_s: float = Field(
        3600.0, gt=0, description="seconds after which a host that an agent or a sync reports counts as without data"
    )
    score_alarm: float = Field(
        60.0,
        ge=0,
        le=100,
        description="a VM whose measured score is below this one in three windows of five minutes is an alarm; "
        "0 = never",
    )
    memory_stall_percent: float = Field(
        15.0,
        gt=0,
        le=100,
        description="part of the time, in %, in which tasks of a host stall for memory (PSI), from which it takes no "
        "new VM; 100 = as good as never",
    )
    reserve_s: float = Field(
        60.0, ge=0, description="seconds for which an answer counts as placed on its host; 0 = off"
    )
    max_body_mb: float = Field(16.0, gt=0, description="largest request body in MiB")
    max_request_s: float = Field(
        60.0, gt=0, description="most seconds that a request may take; it may ask for fewer by X-Request-Timeout"
    )
    max_wait_s: float = Field(
        2.0,
        gt=0,
        description="most seconds that a question or page waits for a thread, five times as many where the database is "
        "waited for: one whose turn is expected later is refused at once with 503 and Retry-After",
    )
    extender_s: float = Field(
        0.25,
        gt=0,
        description="most seconds for all questions of Kubernetes' scheduler about a pod, a little less than the "
        "extender's `httpTimeout`; for 5 s after a late answer pods are refused at once",
    )
    max_connections: int = Field(
        10_000,
        ge=16,
        description="most open connections of a worker; beyond, the one that is idle longest is closed. "
        "The process's limit of open files, less 128, wins",
    )
    drain_s: float = Field(
        0.0, ge=0, le=3600, description="seconds for which a stopping service still answers, while /readyz says 503"
    )
    max_batch: int = Field(10_000, gt=0, description="most items in one bulk call")
    keep_samples_days: float = Field(
        7.0, ge=1, le=36500, description="days after which samples become five-minute means"
    )
    keep_rollups_days: float = Field(
        90.0, ge=0, le=36500, description="days that five-minute means are kept after that"
    )
    keep_recommendations_days: float = Field(
        30.0,
        ge=1,
        le=36500,
        description="days that answers are kept; one with an outcome stays as long as the rows observed of it",
    )
    keep_plans_days: float = Field(90.0, ge=1, le=36500, description="days that plans are kept")
    keep_observed: int = Field(
        20_000, gt=0, description="observed ratios with their predictions that are kept per platform"
    )
    quality_window: int = Field(
        200,
        ge=20,
        le=10_000,
        description="newest observed rows by which a model is judged, in all, per platform and per workload",
    )
    adapt_intervals: bool = Field(
        True, description="widen throughput intervals on platforms where too many observed outcomes fall outside them"
    )
    rate_limit: float = Field(0.0, ge=0, description="requests per second of one caller, in each worker; 0 = no limit")
    rate_burst: int = Field(100, ge=1, description="requests that a caller may send at once before the limit holds")
    trusted_proxies: str = Field(
        "",
        description="addresses or networks (a,b/24) of proxies whose X-Forwarded-For and "
        "X-Forwarded-Proto are believed",
    )
    keep_audit_days: float = Field(30.0, gt=0, le=36500, description="days that entries of the audit log are kept")
    apply_mode: Literal["advise", "ask", "act"] = Field(
        "advise",
        description="whether changes are carried out: advise = never, ask = after an approval of each rollout, act = "
        "without one where `apply_kinds` and `apply_hosts` allow it",
    )
    apply_kinds: str = Field(
        "weight,cap", description="kinds of changes that mode act allows: weight, cap, pin, tc, disk, move"
    )
    apply_hosts: str = Field(
        "", description="hosts that mode act allows, by id or with wildcards: `kvm01,edge-*`; empty = none"
    )
    apply_per_hour: int = Field(20, ge=1, le=10_000, description="most changes that are applied in an hour")
    apply_per_day: int = Field(100, ge=1, le=100_000, description="most changes that are applied in a day")
    apply_at_once: int = Field(
        1, ge=1, le=1_000, description="most rollouts that are under way or not measured yet at the same time"
    )
    apply_cooldown_s: float = Field(
        3600.0, ge=0, le=30 * 86_400, description="seconds for which an instance that was changed is left alone"
    )
    apply_windows: str = Field(
        "",
        description="maintenance windows in UTC in which changes may be applied, such as "
        "`mon-fri 22:00-04:00,sat 08:00-18:00`; empty = always",
    )
    apply_canary: bool = Field(
        True, description="whether the first instance of a rollout is changed and measured before all others"
    )
    apply_measure_windows: int = Field(
        10, ge=5, le=1_000, description="windows after a rollout by which its effect is judged, and as many before it"
    )
    apply_window_s: float = Field(
        60.0, ge=1, le=3600, description="seconds of such a window, no less than those of agents"
    )
    apply_every_s: float = Field(
        300.0,
        ge=10,
        le=86_400,
        description="seconds after which `cotenant changes run` looks for better settings again",
    )
    apply_plan_s: float = Field(20.0, ge=1, le=600, description="seconds of such a search at most")
    apply_here: str = Field(
        "",
        description="ids of the hosts that are the machine of this process, whose control groups and interfaces it may "
        "change; empty = its host name",
    )
    apply_uris: str = Field(
        "",
        description="libvirt connections by host, such as `kvm01=qemu+ssh://kvm01/system,kvm02=qemu:///system`; a host "
        "without one is not changed by libvirt",
    )
    apply_keys_file: Path | None = Field(
        None,
        description="file with the keys of agents that change settings, a line `HOST KEY` each; mode 640 or less. "
        "Hosts without a line get no orders",
    )
    apply_agent_patience_s: float = Field(
        30.0, ge=5, le=60, description="seconds in which the agent of a host has to report on an order"
    )
    apply_move_s: float = Field(
        900.0, ge=10, le=86_400, description="seconds after which a live migration that is not done is called off"
    )
    keystone_url: str = Field("", description="URL of a Keystone (Identity v3) whose tokens are accepted too")
    keystone_roles: str = Field(
        "admin=admin,member=write,reader=read", description="scope of each Keystone role, as ROLE=SCOPE,..."
    )
    samples_url: str | None = Field(
        None,
        description="base URL of a Prometheus-compatible store that keeps the samples of windows in place of the "
        "database, such as http://127.0.0.1:8428: the service writes there what agents push, and reads it by PromQL",
    )
    samples_write_url: str | None = Field(
        None,
        description="URL of that store's remote write, where it is not `samples_url` with /api/v1/write behind it; "
        "empty = agents write there themselves",
    )
    samples_authorization_file: Path | None = Field(
        None,
        description="file with the Authorization header for that store, such as `Bearer TOKEN`; mode 640 or less. "
        "It is sent over https or to loopback only",
    )
    prometheus_url: str | None = Field(
        None,
        description="base URL of a Prometheus-compatible store that profiles are read from; "
        "without it they are read from the database",
    )
    prometheus_authorization_file: Path | None = Field(
        None,
        description="file with the Authorization header for that store, such as `Bearer TOKEN`; mode 640 or less. "
        "It is sent over https or to loopback only",
    )
    cells: str = Field(
        "",
        description="services of parts of the cloud that `POST /v1/cells/placements` asks at once, by name: "
        "`a=https://cell-a.example:8443,b=https://cell-b.example:8443`",
    )
    cells_token_file: Path | None = Field(
        None,
        description="file with the token for all of them, of scope read, or write where hosts are to be held; mode 640 "
        "or less. It is sent over https or to loopback only",
    )
    cells_wait_s: float = Field(
        2.0, gt=0, le=60, description="seconds after which a cell that has not answered is left out"
    )
    log_level: str = Field("info", description="least severity that is logged: debug, info, warning or error")
    log_format: Literal["json", "text"] = Field("json", description="form of log lines: json, or text for people")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, text: str) -> str:
        for part in text.split(",") if text.strip() else ():
            ip_network(part.strip())  # whose ValueError names it
        return text

    @property
    def only_scraped(self) -> bool:
        """Whether samples are read from a store that scrapes agents, and are kept nowhere by the service."""
        return self.prometheus_url is not None and self.samples_url is None

    @property
    def model_dir(self) -> Path:
        """Where artifacts lie, one folder per version."""
        return self.state_dir / "models"
