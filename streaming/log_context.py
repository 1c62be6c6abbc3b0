"""What a log line belongs to: the cluster, and the batch at hand.

Each thread has its own: jobs of several clusters run side by side, and Spark hands
batches over in threads of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

Told = int | str

_told: ContextVar[Mapping[str, Told]] = ContextVar("told", default=MappingProxyType({}))


@contextmanager
def telling(**fields: Told) -> Iterator[None]:
    """Let every line that this thread logs in the block have these fields, beside those around it.

    The names are `cluster`, `batch_id`, `batch_seq` and `group_id`.
    """
    before = _told.set({**_told.get(), **fields})
    try:
        yield
    finally:
        _told.reset(before)


def as_fields(stages: Mapping[str, int | float | str], batch_seq: int) -> dict[str, int | float | str]:
    """Name a batch's stages (Job.timings) as fields of a log line: seconds end in `_s`, the rest stay.

    >>> as_fields({"batch_id": 3, "read": 0.25}, 7)
    {'batch_seq': 7, 'batch_id': 3, 'read_s': 0.25}
    """
    fields: dict[str, int | float | str] = {"batch_seq": batch_seq}
    for name, value in stages.items():
        if isinstance(value, float):
            fields[f"{name}_s"] = round(value, 6)
        else:
            fields[name] = value
    return fields


class ContextFilter(logging.Filter):
    """Writes the fields into each record, where the call that logged has none of that name.

    They are also there together as `context`, for a line of text: "[prod batch 17] ", or "".
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Take every record."""
        fields = _told.get()
        for name, value in fields.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        words = [str(fields["cluster"])] if "cluster" in fields else []
        words += [f"batch {fields['batch_id']}"] if "batch_id" in fields else []
        record.context = f"[{' '.join(words)}] " if words else ""
        return True
