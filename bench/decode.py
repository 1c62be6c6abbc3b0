"""Our decoder of `__consumer_offsets` records held against kmsg, with which kminion decodes them in Go.

Processor time of one thread on each side, for a million records of the same bytes: a record's key and value
field by field, and in the details also with what each client put into its member (subscription and
assignment; ours remembers short ones that come again, and in these records many do).
The two take turns. Only offset commits and classic groups' records (key types 0 to 2) are compared: kmsg
knows no others. What all captured records take, of every type that the capture has, stands in the details.
"""

from __future__ import annotations

import gc
import json
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import Figure, Scale
from bench.go_programs import GoUnavailableError, build_go
from bench.offsets_topic import commit_records, records_of_groups
from streaming.events.deep_values import deep_value
from streaming.events.offsets_records import decode_record

_CAPTURED = Path(__file__).parent.parent / "tests" / "data" / "consumer-offsets.jsonl"
_TOPICS = {"topic-0": "A" * 21 + "g"}
_KNOWN_TO_KMSG = range(3)
_MEMBERS = (5, 50, 500)
_SAMPLE_S = 0.2
_GO_PASSES_PER_PASS = 30
"""Go is this much faster, more or less: so both run about as long."""

_RECORDS = 1_000_000
"""A figure's seconds are those of so many records."""

_Records = Sequence[tuple[bytes, bytes | None]]


class _Case(NamedTuple):
    """Records that both sides decode, and those of other types that only we decode."""

    name: str
    records: _Records
    others: _Records


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every case.

    Args:
        scale: its rounds are the samples.
        say: hears how far it got, and why nothing is measured where there is no Go.
    """
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as folder:
        try:
            program = build_go("kmsg", Path(folder))
        except GoUnavailableError as error:
            say(f"decode: not measured: {error}")
            return []
        figures = []
        for case in _cases():
            say(f"decode: {case.name}")
            figures.append(_measure(case, program, scale.rounds))
        return figures


def _cases() -> list[_Case]:
    """List the captured mix, commits, and groups of several sizes."""
    captured: list[tuple[bytes, bytes | None]] = []
    for line in _CAPTURED.read_bytes().splitlines():
        record = json.loads(line)
        value = record["value_hex"]
        captured.append((bytes.fromhex(record["key_hex"]), None if value is None else bytes.fromhex(value)))
    shared = [
        (key, value)
        for key, value in captured
        if value is not None and struct.unpack_from(">h", key)[0] in _KNOWN_TO_KMSG
    ]
    commits = [(r.key, r.value) for r in commit_records(1_000, 100, _TOPICS, 1)]
    cases = [
        _Case(f"{len(shared)} captured records", shared, [r for r in captured if r not in shared]),
        _Case("offset commits", commits, []),
    ]
    for members in _MEMBERS:
        made = records_of_groups(
            range(1_000 // members),
            2,
            _TOPICS,
            1,
            is_classic=True,
            members=members,
            topic_partitions=2 * members,
        )
        cases.append(_Case(f"groups of {members} members", [(r.key, r.value) for r in made], []))
    return cases


def _measure(case: _Case, program: Path, rounds: int) -> Figure:
    """Let both decode by turns."""
    count = len(case.records)
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as folder:
        file = Path(folder) / "records"
        file.write_bytes(b"".join(_framed(key) + _framed(value or b"") for key, value in case.records))
        passes = max(1, round(_SAMPLE_S / _seconds(case.records, 1, deep=True)))
        ours: dict[str, list[float]] = {"plain": [], "deep": [], "all": []}
        theirs: dict[str, list[float]] = {"plain": [], "deep": []}
        everything = [*case.records, *case.others]
        for _ in range(rounds):
            ours["plain"].append(_seconds(case.records, passes, deep=False) * _RECORDS / count)
            ours["deep"].append(_seconds(case.records, passes, deep=True) * _RECORDS / count)
            ours["all"].append(_seconds(everything, passes, deep=False) * _RECORDS / len(everything))
            command = [str(program), str(file), str(passes * _GO_PASSES_PER_PASS)]
            answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            if answer["members"] != _members(case.records):
                raise RuntimeError(f"{case.name}: kmsg saw {answer['members']} members, not as many as we")
            for name, found in theirs.items():
                found.append(answer[name] * _RECORDS / count)
    us, them = ({k: statistics.median(v) for k, v in each.items()} for each in (ours, theirs))
    details = {
        "with the clients' bytes": us["deep"],
        "kmsg with them": them["deep"],
        "records a second": _RECORDS / us["plain"],
        "kmsg's records a second": _RECORDS / them["plain"],
    }
    if case.others:
        details[f"ours with {len(case.others)} of other types"] = us["all"]
    return Figure(
        comparison="decode",
        case=case.name,
        seconds=us["plain"],
        against="franz-go's kmsg, a million records on one core",
        against_seconds=them["plain"],
        samples=rounds,
        details=details,
    )


def _seconds(records: _Records, passes: int, *, deep: bool) -> float:
    """Decode the records so many times; the processor time of one pass."""
    gc.collect()
    began = time.process_time()
    for _ in range(passes):
        for key, value in records:
            record = decode_record(key, value)
            if deep:
                deep_value(record.key_type, record.value)
    return (time.process_time() - began) / passes


def _members(records: _Records) -> int:
    decoded = (decode_record(key, value).value or {} for key, value in records)
    return sum(len(value.get("members", ())) for value in decoded)


def _framed(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part
