"""Settings of the server side, from the environment (`COTENANT_*`) or command-line options, and from nowhere else."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

DATABASE = "sqlite:///var/cotenant.sqlite3"  # unless told otherwise; its folder is made
CLOCK_SKEW = timedelta(minutes=5)  # how far ahead of ours another clock may run; what is noted of later is not believed


class Settings(BaseSettings):
    """Every setting with its default and meaning; each is documented in the README."""

    model_config = SettingsConfigDict(env_prefix="COTENANT_", extra="forbid", frozen=True)

    database: str = Field(DATABASE, description="database URL (SQLAlchemy); the folder of a SQLite file must be there")
    state_dir: Path = Field(Path("var"), description="folder for model artifacts and other files the service writes")
    datasets_dir: Path = Field(Path("datasets"), description="folder of datasets that train and findings read")
    listen: str = Field("127.0.0.1:8080", description="address and port of the REST service")
    fresh_s: float = Field(3600.0, gt=0, description="a host not seen for this many seconds counts as without data")
    reserve_s: float = Field(60.0, ge=0, description="seconds an answer stays pending on its host; 0 = off")
    max_body_mb: float = Field(16.0, gt=0, description="largest request body in MiB")
    max_request_s: float = Field(60.0, gt=0, description="most seconds for a request; it may ask for fewer")
    max_connections: int = Field(10_000, ge=16, description="most open connections of a worker; idle ones make room")
    drain_s: float = Field(0.0, ge=0, le=3600, description="seconds of answering while not ready, before stopping")
    max_batch: int = Field(10_000, gt=0, description="most items in one bulk call")
    keep_samples_days: float = Field(7.0, ge=1, le=36500, description="days before samples become five-minute means")
    keep_rollups_days: float = Field(90.0, ge=0, le=36500, description="further days that those means are kept")
    keep_recommendations_days: float = Field(
        30.0,
        ge=1,
        le=36500,
        description="days that answers are kept; with an outcome, as long as its observed rows are",
    )
    keep_plans_days: float = Field(90.0, ge=1, le=36500, description="days that plans are kept")
    keep_observed: int = Field(20_000, gt=0, description="rows of predicted beside observed kept per platform")
    quality_window: int = Field(200, ge=20, le=10_000, description="observed rows per group that a model is judged by")
    adapt_intervals: bool = Field(
        True, description="widen throughput intervals on platforms where observed outcomes leave them too often"
    )
    rate_limit: float = Field(0.0, ge=0, description="requests per second of one caller, in each worker; 0 = no limit")
    rate_burst: int = Field(100, ge=1, description="requests that a caller may send at once before the limit holds")
    trusted_proxies: str = Field(
        "", description="addresses or networks (a,b/24) of proxies whose X-Forwarded-For and -Proto count; empty = none"
    )
    keep_audit_days: float = Field(30.0, gt=0, le=36500, description="days that entries of the audit log are kept")
    keystone_url: str = Field("", description="Identity endpoint whose tokens are taken too; empty = none")
    keystone_roles: str = Field(
        "admin=admin,member=write,reader=read", description="scope of each Keystone role, as ROLE=SCOPE,..."
    )
    prometheus_url: str | None = Field(
        None, description="base URL of a Prometheus-compatible store that profiles are read from; none = the database"
    )
    prometheus_authorization_file: Path | None = Field(
        None, description="file with the Authorization header for that store, such as 'Bearer TOKEN'"
    )
    log_level: str = Field("info", description="debug, info, warning or error")
    log_format: Literal["json", "text"] = Field("json", description="log lines as json or as text for people")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, text: str) -> str:
        for one in text.split(",") if text.strip() else ():
            ip_network(one.strip())  # whose ValueError names it
        return text

    @property
    def model_dir(self) -> Path:
        """Where artifacts lie, one folder per version."""
        return self.state_dir / "models"
