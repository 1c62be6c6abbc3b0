"""The lease: who writes to a deployment's tables, and how one that was overtaken finds out.

A small Delta table `_lease` beside the others holds no rows, only commits: each says who holds the
lease, and the version of an application rises by one with each new holder, the fencing token. The
holder renews by a commit on the very version that it wrote last, which fails once another has
committed. A second job watches for longer than the lease lasts, on its own clock: what is
renewed meanwhile is held, what is not may be taken. No two machines' clocks are compared.

A process may be stopped for longer than its lease at any line, so the lease alone keeps nobody from
writing. What does: every commit of the job is made on the version of the table that it has seen
(Tables.commit), and a new holder first commits its token to the log, so that its predecessor's next
commit there is refused (docs/adr/0013).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

import orjson
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from streaming.tables.delta import FORMAT, FORMAT_APP, LOG, JobError, Tables, open_table
from streaming.tables.lease_holder import Holder
from streaming.tables.log import LOG_APP

LEASE = "_lease"
"""The table's name: hidden like that of the ticks, and none of the public ones."""

LEASE_APP = "counterpoise-lease"

_SCHEMA = pa.schema([("holder", pa.string())])

_CONFIGURATION = {"delta.logRetentionDuration": "interval 1 hours", "delta.checkpointInterval": "100"}
"""delta-rs writes a checkpoint at this interval and then deletes what is older than the duration, so
months of renewals leave some hundred small files."""

_RENEWALS_IN_A_LEASE = 3

_MOST_FOREIGN_COMMITS = 50
"""How far back the last renewal is looked for behind commits that are none (somebody's OPTIMIZE)."""

_logger = logging.getLogger(__name__)


def _now_s() -> float:
    """Give seconds that go on while the machine is suspended, where the system counts so."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """The newest state of the lease: the table at that version and what its last renewal said.

    `renewed_ms` is when that was, epoch milliseconds by the clock of whoever wrote it.
    """

    table: DeltaTable
    token: int
    holder: Holder | None = None
    renewals: int = 0
    is_released: bool = False
    renewed_ms: int = 0


class Lease:
    """One job's lease on the tables below one root."""

    def __init__(self, root: str, lease_s: float) -> None:
        """Prepare a lease; `take` gets it.

        Args:
            root: where the tables are, as `Tables.root` has it.
            lease_s: how long after its last renewal it may not yet be taken.
        """
        self._root = root
        self._me = Holder(lease_s=lease_s)
        self._lease_s = lease_s
        self._seen: LeaseSeen | None = None
        self._overtaken_by: LeaseSeen | None = None
        self._is_held = False
        self._renewed_at = 0.0
        self._lock = threading.RLock()
        self._given_back = threading.Event()
        self._keeper: threading.Thread | None = None

    @property
    def token(self) -> int:
        """Give the fencing token, 0 before the lease was taken."""
        return self._seen.token if self._seen else 0

    @property
    def is_held(self) -> bool:
        """Say whether the lease is this job's, as far as it knows."""
        return self._is_held and _now_s() - self._renewed_at <= self._lease_s

    def take(self, stop: threading.Event | None = None) -> None:
        """Get the lease, at once when it is free or its holder is certainly dead; keep it renewed.

        Args:
            stop: give up waiting when it is set.

        Raises:
            JobError: another job holds it and is alive, or `stop` was set while waiting.
        """
        waits = stop or threading.Event()
        seen = self._look()
        while not self._try(seen):
            seen = self._watched(self._look(), waits)
        self._is_held = True
        self._keeper = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._keeper.start()

    def _try(self, seen: LeaseSeen) -> bool:
        """Take the lease if nobody has it, over what was seen."""
        if not (seen.holder is None or seen.is_released or seen.holder.is_dead()):
            return False
        return self._take_over(seen)

    def _take_over(self, seen: LeaseSeen) -> bool:
        # The lease's table may have been deleted or put back; the log remembers the token too.
        return self._commit(seen.table, max(seen.token, _token_in_log(self._root)) + 1, renewals=0)

    def _watched(self, first: LeaseSeen, waits: threading.Event) -> LeaseSeen:
        """Watch a lease that somebody has; give it back when it may be taken over what was seen last."""
        holder = first.holder
        if holder is None or first.is_released:
            return first
        patience_s = max(self._lease_s, holder.lease_s) * (1 + 1 / _RENEWALS_IN_A_LEASE)
        _logger.warning(
            "tables %s: the lease is with %s; waiting up to %.0f s to see whether it is alive",
            self._root, holder, patience_s,
        )  # fmt: skip
        began, seen = _now_s(), first
        while not seen.is_released and not holder.is_dead() and _now_s() - began < patience_s:
            if waits.wait(min(self._lease_s / 10, 1.0)):
                raise JobError(f"tables {self._root}: stopped while waiting for the lease of {holder}")
            seen = self._look()
            if (seen.token, seen.renewals) != (first.token, first.renewals) and not seen.is_released:
                raise JobError(
                    f"tables {self._root}: another job holds them and is alive: {seen.holder}, with token "
                    f"{seen.token}; stop that job, or give this one tables of its own (job.tables)"
                )
        if not seen.is_released and not holder.is_dead():
            _logger.warning("tables %s: %s has not renewed its lease; taken over", self._root, holder)
            # What is committed on exactly this version: a renewal that comes meanwhile makes it fail.
            return LeaseSeen(table=seen.table, token=seen.token)
        return seen

    def fence(self, tables: Tables) -> None:
        """Commit the token to the log: whoever held the lease before cannot commit there any more.

        The log's own application version goes along unchanged, because an append of Spark that
        has begun is refused when another commit speaks of the application that it writes as.
        """

        def write(table: DeltaTable) -> None:
            versions = {
                LEASE_APP: self.token,
                LOG_APP: table.transaction_version(LOG_APP) or 0,
                FORMAT_APP: FORMAT,
            }
            transactions = [Transaction(app_id, version) for app_id, version in versions.items()]
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=0),
            )

        tables.commit(LOG, write, lambda: tables.is_due(LOG, LEASE_APP, self.token))
        tables.refresh(LOG)

    def ensure_held(self, *, ask: bool = False) -> None:
        """Go on only as the holder: free of cost while the last renewal is recent.

        Args:
            ask: ask the table in any case.

        Raises:
            JobError: another job has taken the lease, or it was given back.
        """
        if ask or (_now_s() - self._renewed_at > self._lease_s and not self._given_back.is_set()):
            with self._lock:
                self._ask()
        by = self._overtaken_by
        if by is not None:
            raise JobError(
                f"tables {self._root}: this job (token {self.token}) was not heard of for longer than "
                f"job.lease_s ({self._lease_s:g} s) and another has taken over: {by.holder}, with token "
                f"{by.token}; that one goes on from the same log and nothing is lost: leave this one stopped"
            )
        if self._given_back.is_set():
            raise JobError(f"tables {self._root}: the lease was given back; make another job to go on")

    def release(self) -> None:
        """Give the lease back, so that the next job need not wait; harmless when it is not held."""
        self._given_back.set()
        if self._keeper is not None:
            self._keeper.join()
        with self._lock:
            if not self._is_held:
                return
            self._is_held = False
            try:
                seen = self._look()
                if self._is_mine(seen):
                    self._commit(seen.table, self.token, renewals=seen.renewals + 1, is_released=True)
            except Exception:
                # The job has ended, perhaps because of the same storage; the next one finds it dead or waits.
                _logger.warning("tables %s: the lease could not be given back", self._root, exc_info=True)

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Give the lease back when the block fails."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def _keep(self) -> None:
        while not self._given_back.wait(self._lease_s / _RENEWALS_IN_A_LEASE) and self._is_held:
            try:
                with self._lock:
                    self._renew()
            except Exception:
                # Whoever commits asks the lease's table itself when the last renewal is too old.
                _logger.warning("tables %s: the lease was not renewed", self._root, exc_info=True)

    def _renew(self) -> None:
        seen = self._seen
        # A log cleaned up since has no commit at our next version any more: look where it stands.
        if seen is None or _now_s() - self._renewed_at > self._lease_s:
            seen = self._ask()
        if self._is_held and seen and not self._commit(seen.table, self.token, renewals=seen.renewals + 1):
            again = self._ask()
            if self._is_held:
                self._commit(again.table, self.token, renewals=again.renewals + 1)

    def _ask(self) -> LeaseSeen:
        """Look who holds the lease; note when it is another."""
        began, seen = _now_s(), self._look()
        if self._is_mine(seen):
            self._renewed_at = began
        else:
            self._overtaken_by, self._is_held = seen, False
        return seen

    def _is_mine(self, seen: LeaseSeen) -> bool:
        # Without a holder the table was deleted and made anew by `_look`; nobody else has it.
        return seen.holder is None or seen.holder.lease_id == self._me.lease_id

    def _look(self) -> LeaseSeen:
        seen = look_at_lease(self._root)
        if seen is not None:
            return seen
        location = f"{self._root}/{LEASE}"
        # Of several jobs that make it in the same moment one does; the others are refused.
        with suppress(CommitFailedError):
            DeltaTable.create(location, _SCHEMA, mode="ignore", configuration=_CONFIGURATION)
        return _seen_in(open_table(LEASE, location))

    def _commit(self, table: DeltaTable, token: int, *, renewals: int, is_released: bool = False) -> bool:
        """Say on this version of the table that the lease is ours; False when it is not the newest."""
        began, before = _now_s(), table.version()
        said = {
            "holder": orjson.dumps(asdict(self._me)).decode(),
            "renewals": str(renewals),
            "is_released": str(is_released).lower(),
        }
        properties = CommitProperties(
            custom_metadata=said, app_transactions=[Transaction(LEASE_APP, token)], max_commit_retries=0
        )
        try:
            table.create_write_transaction([], "append", _SCHEMA, commit_properties=properties)
        except DeltaError:
            table.update_incremental()
            if table.version() == before:
                raise
            return False
        table.update_incremental()
        self._seen = LeaseSeen(table=table, token=token, holder=self._me, renewals=renewals)
        self._renewed_at = began
        return True


def look_at_lease(root: str) -> LeaseSeen | None:
    """See who has the lease on the tables below `root`, without a trace; None where nobody ever had."""
    try:
        return _seen_in(DeltaTable(f"{root}/{LEASE}"))
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise JobError(
            f"table {LEASE} in {root} cannot be read: {error}; it only says who writes: stop every job on "
            "these tables, delete it, and start again"
        ) from error


def _seen_in(table: DeltaTable) -> LeaseSeen:
    token = table.transaction_version(LEASE_APP) or 0
    for commit in table.history(1), table.history(_MOST_FOREIGN_COMMITS):
        for said in commit:
            if "holder" in said:
                return LeaseSeen(
                    table=table,
                    token=token,
                    holder=Holder.of(orjson.loads(said["holder"])),
                    renewals=int(said["renewals"]),
                    is_released=said["is_released"] == "true",
                    renewed_ms=int(said["timestamp"]),
                )
    return LeaseSeen(table=table, token=token)


def _token_in_log(root: str) -> int:
    location = f"{root}/{LOG}"
    if not DeltaTable.is_deltatable(location):
        return 0
    return open_table(LOG, location).transaction_version(LEASE_APP) or 0
