"""A process as the one that holds a lease: who it is for people, and whether it certainly runs no more."""

from __future__ import annotations

import getpass
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def _of_system(path: str) -> str:
    try:
        return os.readlink(path) if path.endswith("/ns/pid") else Path(path).read_text().strip()
    except OSError:
        return ""


def process_started(pid: int) -> int | None:
    """Give when a process started, in the kernel's ticks since boot; 0 where it cannot be known.

    None is certain: no such process, or one that has ended and waits for its parent.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    # The second field is the program's name in parentheses and may hold spaces and more of them.
    fields = _of_system(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return 0
    return None if fields[0] in "ZX" else int(fields[19])


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container's uid without a name.
        return str(os.getuid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds or held the lease, as each commit of `_lease` says it in JSON.

    `boot_id`, `pid_namespace` and `process_started` are "" and 0 where the system does not tell;
    then nothing is concluded from them. `lease_id` is another for each start.
    """

    host: str = field(default_factory=platform.node)
    user: str = field(default_factory=_user)
    pid: int = field(default_factory=os.getpid)
    boot_id: str = field(default_factory=lambda: _of_system("/proc/sys/kernel/random/boot_id"))
    pid_namespace: str = field(default_factory=lambda: _of_system("/proc/self/ns/pid"))
    process_started: int = field(default_factory=lambda: process_started(os.getpid()) or 0)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    lease_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    lease_s: float

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Holder:
        """Read what a commit says: what another release adds is left aside, what it lacks is unknown."""
        unknown = {"host": "", "boot_id": "", "pid_namespace": "", "process_started": 0}
        known = {name: value for name, value in said.items() if name in cls.__dataclass_fields__}
        return cls(**{**unknown, **known})

    def __str__(self) -> str:
        """Say who it is as a person would look for it."""
        return f"pid {self.pid} on host {self.host} (user {self.user}), since {self.since}"

    def is_dead(self) -> bool:
        """Say whether this process certainly runs no more: only one of this very system can be known to."""
        here = Holder(lease_s=self.lease_s)
        known = (self.host, self.boot_id, self.pid_namespace)
        if known != (here.host, here.boot_id, here.pid_namespace) or not all(known):
            return False
        started = process_started(self.pid)
        return started is None or (started > 0 and self.process_started not in (0, started))
