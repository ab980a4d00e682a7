"""Settings of the server side, from the environment (`COTENANT_*`) or command-line options, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Every setting with its default and meaning; each is documented in the README."""

    model_config = SettingsConfigDict(env_prefix="COTENANT_", extra="forbid", frozen=True)

    database: str = Field("sqlite:///var/cotenant.sqlite3", description="database URL (SQLAlchemy)")
    state_dir: Path = Field(Path("var"), description="folder for model artifacts and other files the service writes")
    datasets_dir: Path = Field(Path("datasets"), description="folder of datasets that train and findings read")
    listen: str = Field("127.0.0.1:8080", description="address and port of the REST service")
    fresh_s: float = Field(3600.0, gt=0, description="a host not seen for this many seconds counts as without data")
    reserve_s: float = Field(60.0, ge=0, description="seconds an answer stays pending on its host; 0 = off")
    max_body_mb: float = Field(16.0, gt=0, description="largest request body in MiB")
    max_batch: int = Field(10_000, gt=0, description="most items in one bulk call")
    keep_observed: int = Field(20_000, gt=0, description="rows of predicted beside observed kept per platform")
    quality_window: int = Field(200, ge=20, le=10_000, description="observed rows per group that a model is judged by")
    adapt_intervals: bool = Field(
        True, description="widen throughput intervals on platforms where observed outcomes leave them too often"
    )
    log_level: str = Field("info", description="debug, info, warning or error")

    @property
    def model_dir(self) -> Path:
        """Where artifacts lie, one folder per version."""
        return self.state_dir / "models"
