"""No corrupt line of any kind becomes an event, and each says why."""

from __future__ import annotations

from tests.corrupt_lines import KINDS, LONG_LINE_BYTES, corrupt_lines, corrupt_offset_lines
from tests.event_parsing import DATA, reason


def test_a_thousand_corrupt_lines_are_all_rejected_with_a_reason() -> None:
    """No line of any kind slips through, and each reason is one that was meant."""
    lines = corrupt_lines(seed=3, count=1000)
    assert sum(len(line) > LONG_LINE_BYTES for line in lines) == 4
    assert not any(b"\n" in line for line in lines)
    reasons = [reason(line) for line in lines]
    assert all("; " in why and "\n" not in why for why in reasons)
    assert len({why.split(" ")[0] for why in reasons}) > 15
    assert len(KINDS) == 20


def test_corrupt_lines_are_the_same_for_the_same_seed() -> None:
    """A failure can be made again from its seed."""
    assert corrupt_lines(seed=9, count=240) == corrupt_lines(seed=9, count=240)
    assert corrupt_lines(seed=9, count=240) != corrupt_lines(seed=10, count=240)


def test_corrupt_captured_lines_are_all_rejected() -> None:
    """Broken hexadecimal, cut bytes, wrong numbers: each has its reason."""
    lines = (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()
    with_value = [line for line in lines if b'"value_hex": null' not in line]
    for line in corrupt_offset_lines(5, with_value, 280):
        assert "; " in reason(line, format="offsets")
