"""Advisor: the services of one database, put together.

All are thread-safe: each call opens its own transaction. Each raises StorageUnavailable when the database cannot be
read or written, and SchemaMismatch while its tables are of another version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from advisor.access.audit import Audit, Idempotency, KeptAnswer, acting, actor
from advisor.access.keystone import Keystone
from advisor.access.tokens import form_key
from advisor.background import one_thread_for_products
from advisor.changes.ledger import standing_of
from advisor.changes.movers import MoveOutcome, Mover, Standing, movers, open_mover
from advisor.deadline import Progress
from advisor.errors import AdvisorError, InvalidInput
from advisor.inventories.reading import InventorySource, Reading, WatchedSource
from advisor.inventories.sync import SyncDiff
from advisor.inventories.systems import SourceOptions, check_installed, is_watched, keeps_history, open_source, sources
from advisor.lifecycle import training
from advisor.lifecycle.monitoring import Monitor
from advisor.lifecycle.registry import ModelRegistry
from advisor.lifecycle.training import TurnedOut, span_s
from advisor.prediction import posted
from advisor.reports.files import REPORT_KINDS, Reported, every_s, repeat
from advisor.serving.access import AccessService
from advisor.serving.cells import CellService
from advisor.serving.changes import ChangeService, PreviewedChange
from advisor.serving.cloud import CloudService, ScoreKeeper
from advisor.serving.inventory import InventoryService
from advisor.serving.maintenance import Autopilot, MaintenanceService
from advisor.serving.orders import OrderService
from advisor.serving.outcomes import ArrivalWatch, OutcomeService, WindowChecks
from advisor.serving.placements import PlacementService
from advisor.serving.plans import PlanService
from advisor.serving.snapshot_cache import SnapshotCache
from advisor.serving.telemetry import TelemetryService
from advisor.settings import Settings
from advisor.store import models, predictions, windows
from advisor.store.backup import backup_database, restore_database
from advisor.store.engine import Database
from advisor.store.retention import Retention
from advisor.store.rollouts import SignedText
from advisor.store.sample_store import STORED
from advisor.store.transactions import LaterWrites, Transactions
from advisor.telemetry.layouts import SentWindow, WindowRow
from advisor.telemetry.monitoring_history import MonitoringHistory, keeps_metrics
from advisor.telemetry.remote_samples import RemoteSamples

__all__ = [
    "REPORT_KINDS",
    "AccessService",
    "Advisor",
    "CellService",
    "ChangeService",
    "CloudService",
    "Idempotency",
    "InventoryService",
    "InventorySource",
    "KeptAnswer",
    "Keystone",
    "MaintenanceService",
    "ModelRegistry",
    "MonitoringHistory",
    "MoveOutcome",
    "Mover",
    "OrderService",
    "OutcomeService",
    "PlacementService",
    "PlanService",
    "PreviewedChange",
    "Progress",
    "Reading",
    "Reported",
    "SentWindow",
    "SignedText",
    "SourceOptions",
    "Standing",
    "SyncDiff",
    "TelemetryService",
    "TurnedOut",
    "WatchedSource",
    "WindowRow",
    "acting",
    "actor",
    "backup_database",
    "check_installed",
    "every_s",
    "form_key",
    "is_watched",
    "keeps_history",
    "keeps_metrics",
    "movers",
    "open_mover",
    "open_source",
    "repeat",
    "restore_database",
    "sources",
    "span_s",
    "standing_of",
]


MOST_LEARNED = 20_000  # posted co-locations, the newest


class Advisor:
    """One per process; thread-safe: each call of a service opens its own transaction.

    Brings an empty database to the newest tables. Raises SchemaMismatch on the database of a newer version or another
    program; on one of an older version every call does, until `upgrade_database`. `clock` is for tests.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        cells = CellService(settings)
        self._database = database = Database(settings.database)
        try:
            samples = STORED if settings.samples_url is None else RemoteSamples(settings)
            self._transactions = transactions = Transactions(database, samples)
        except BaseException:
            database.close()
            raise
        audit = Audit(clock, timedelta(days=settings.keep_audit_days))
        monitor = Monitor(settings)
        self._clock, self._state_dir = clock, settings.state_dir
        self._cache = cache = SnapshotCache(transactions, settings)
        self._retention = Retention(database, settings, clock)
        self._window_checks = WindowChecks(settings, cache, monitor, transactions, clock, audit)
        self._arrivals = ArrivalWatch(settings, cache, transactions, clock)

        def stored() -> None:
            self._retention.nudge()
            self._window_checks.nudge()
            self._arrivals.nudge()
            self._score_keeper.nudge()

        self.models = registry = ModelRegistry(settings.model_dir, transactions.read, transactions.write, clock, audit)
        self.access = AccessService(settings, transactions, audit, clock)
        self.cloud = CloudService(settings, cache, monitor, transactions, clock, database.url.get_backend_name())
        self._score_keeper = ScoreKeeper(self.cloud.scores, transactions, clock, audit, settings.score_alarm)
        self.inventory = InventoryService(transactions, audit, clock, timedelta(seconds=settings.fresh_s))
        self.outcomes = OutcomeService(cache, monitor, registry, transactions, audit, clock)
        self._later = later = LaterWrites(transactions)
        self.placements = PlacementService(cache, monitor, audit, settings, transactions, later, clock, stored)
        self.plans = PlanService(
            cache,
            monitor,
            registry,
            audit,
            settings,
            transactions,
            later,
            clock,
            stored,
            lambda: (self.cloud.scores(), self.cloud.score_history(since="24h")),
        )
        self.orders = OrderService(transactions, clock, settings.apply_keys_file, settings.apply_agent_patience_s)
        self.changes = ChangeService(
            cache, settings, transactions, audit, clock, self.orders, self.outcomes.record_colocation
        )
        self.autopilot = Autopilot(
            self.changes, self.plans, settings, clock, lambda: [one.id for one in cache.at(clock())[0].inventory.hosts]
        )
        self.maintenance = MaintenanceService(self.changes, self.plans, self.inventory, transactions)
        self.telemetry = TelemetryService(settings, transactions, audit, clock, stored)
        self.cells = cells

    def close(self) -> None:
        """Finish the steps in the background that are under way, and let go of the database."""
        self.cells.close()
        self.cloud.close()
        self._later.close()
        self._window_checks.close()
        self._arrivals.close()
        self._score_keeper.close()
        self._retention.close()
        self._database.close()

    def __enter__(self) -> Advisor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def warm_up(self) -> None:
        """Prepare to answer many questions: read the cloud in the background; who asks before is answered as well."""
        one_thread_for_products()

        def warm_up() -> None:
            with suppress(AdvisorError):  # the question reports it
                self.cloud.look_ahead()

        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()

    def upgrade_database(self) -> str:
        """Bring the database to the newest tables; returns the revision."""
        return self._transactions.upgrade()

    def prune(self) -> Mapping[str, int]:
        """Roll up samples that are old enough and forget what expired: how many `samples`, `rollups`, `series`,
        `recommendations` and `plans`.

        Conflict while another pass, in this process or another, is at it.
        """
        self._transactions.refuse()
        return asdict(self._retention.run())

    def hold_windows(self) -> int:
        """Hold windows that are over against what was predicted before them, as the background does; returns how
        many."""
        return self._window_checks.run()

    def look_at_arrivals(self) -> int:
        """Note who came where and look at a window of their hosts, as the background does; returns how many hosts."""
        return self._arrivals.run()

    def keep_scores(self) -> bool:
        """Keep the scores of the window of five minutes that ended last, as the background does; whether it did."""
        return self._score_keeper.run()

    def window_dataset(self, seconds: float) -> Path:
        """Write the windows that ended in the last so many seconds as a dataset directory in the state folder.

        InvalidInput where too few are stored, OutOfSpace or StorageUnavailable where it cannot be written.
        """
        now = self._clock()
        with self._transactions.read() as connection, training.speaking(self._state_dir):
            kept_windows = windows.since(connection, now.timestamp() - seconds)
            return training.write_dataset(kept_windows, self._state_dir / "telemetry", now)

    def telemetry_datasets(self, seconds: float) -> list[Path]:
        """Both as dataset directories: what users posted, and windows of the last so many seconds.

        InvalidInput where nothing was posted and too few windows are stored; the others as each of them.
        """
        results = self.posted_dataset()
        try:
            return [self.window_dataset(seconds), *([results] if results else [])]
        except InvalidInput:
            if results is None:
                raise
            return [results]

    def posted_dataset(self) -> Path | None:
        """Write the co-locations that users posted as a dataset directory in the state folder, as their hosts and
        instances are known now; None where there are none of hosts that are there.

        OutOfSpace or StorageUnavailable where it cannot be written.
        """
        now = self._clock()
        with self._transactions.read() as connection:
            stored = models.newest_colocations(connection, MOST_LEARNED, 20 * MOST_LEARNED)
        if not stored:
            return None
        snapshot = self._cache.at(now)[0].snapshot
        scenes = [scene for scene, _ in posted.scenes_of(stored, snapshot)]
        if not scenes:
            return None
        with training.speaking(self._state_dir):
            return training.write_posted(scenes, snapshot.workloads, self._state_dir / "telemetry", now)

    def roll_back_if_worse(self) -> TurnedOut | None:
        """Roll the active model back where windows showed its answers to be worse than the prior's; how it turned out,
        None where too few windows tell.

        One that an operator activated by force stays: it was wanted whatever is said of it.
        """
        with self._transactions.read() as connection:
            active = models.active(connection)
            groups = predictions.load(connection)
        if active is None:
            return None
        turned_out = training.turned_out(active.version, groups)
        forced = any(activation.cause == "force" for activation in self.models.history(active.version)[-1:])
        if turned_out is not None and turned_out.worse and not forced:
            self.models.roll_back(active.version)
        return turned_out
