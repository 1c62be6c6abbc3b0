"""The time of an event is read exactly, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.event_parsing import accepted, reason

TICK = {"type": "time_advanced"}


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001 - gets one below
    st.integers(-1439, 1439),
    st.sampled_from("Tt "),
)
@settings(deadline=None)
def test_rfc_3339_times_are_read_exactly(naive: datetime, offset_minutes: int, between: str) -> None:
    """Any offset, any number of digits; what lies behind the millisecond is cut off."""
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    written = moment.isoformat(timespec="microseconds").replace("T", between)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert accepted({**TICK, "event_time": written}).event_time_ms == (moment - epoch) // timedelta(
        milliseconds=1
    )


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5z", 500),
        ("1969-12-31T23:59:59.999999999-00:00", -1),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T01:59:60+02:00", 1_483_228_800_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        (-62_135_596_800_000, -62_135_596_800_000),
        (253_402_300_799_999, 253_402_300_799_999),
    ],
)
def test_times_at_the_edges_are_read(written: str | int, ms: int) -> None:
    """Leap seconds count as the second behind them; the range is that of a timestamp column."""
    assert accepted({**TICK, "event_time": written}).event_time_ms == ms


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01T10:00:00",
        "2026-03-01 10:00",
        "2026-3-1T10:00:00Z",
        "2026-02-29T10:00:00Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T10:60:00Z",
        "2026-03-01T10:00:60Z",
        "2026-03-01T10:00:00+1:00",
        "2026-03-01T10:00:00+24:00",
        "2026-03-01T10:00:00.Z",
        "\u0662026-03-01T10:00:00Z",
        "0000-12-31T23:59:59Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        -62_135_596_800_001,
        253_402_300_800_000,
        2**63,
        True,
        1.0,
        None,
    ],
)
def test_no_other_text_or_number_is_a_time(written: object) -> None:
    """Times without offset, days that are not, and numbers beyond the range are refused."""
    assert reason({**TICK, "event_time": written}).startswith("event_time is ")
