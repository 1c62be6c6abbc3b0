"""What a whole cluster hears: topic changes and ticks, in an order that every group agrees on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streaming.model import EventOutcome, Input, TopicState

_HISTORY_LENGTH = 8


@dataclass(frozen=True, slots=True)
class BatchBroadcast:
    """What every group of a batch must hear of, whoever it is.

    `changes` maps a cluster to its topic changes, loads and ticks in order: (event, the
    topic's state after it), with None for a time_advanced. `partition_ends` maps
    (cluster, path, partition) of `__consumer_offsets` to the highest record
    timestamp in the batch, milliseconds.
    """

    changes: Mapping[str, tuple[tuple[Input, TopicState | None], ...]] = field(default_factory=dict)
    partition_ends: Mapping[tuple[str, str, int], int] = field(default_factory=dict)


def advance_topics(
    states: Mapping[str, TopicState], changes: Sequence[Input], *, dedupe_window_ms: int
) -> list[tuple[TopicState, EventOutcome]]:
    """Apply one cluster's topic_changed and partition_load events in order.

    Args:
        states: topic -> state before the batch.
        changes: the events, in source order.
        dedupe_window_ms: how long, by event time, a repeated event_id of topic_changed is a duplicate.

    Returns:
        For each event the topic's state after it and what became of the event.
    """
    current = dict(states)
    results = []
    for event in changes:
        topic = event.topic or ""
        before = current.get(topic)
        if event.type == "partition_load":
            told = _tell_load(event, topic, before)
            if told[1].outcome == "applied":
                current[topic] = told[0]
            results.append(told)
            continue
        seen = before.recent_ids if before else {}
        horizon = max([event.event_time_ms, *seen.values()]) - dedupe_window_ms
        if before is not None and seen.get(event.event_id, horizon - 1) >= horizon:
            reason = f"event_id {event.event_id!r} was applied before"
            results.append((before, EventOutcome(event=event, outcome="duplicate", reason=reason)))
            continue
        racks = event.body.get("partition_racks")
        count = len(racks) if racks is not None else event.body["partitions"]
        history = before.history if before else ()
        if before is not None and before.partition_count != count:
            history = (*history, (event.event_time_ms, before.partition_count))[-_HISTORY_LENGTH:]
        kept_ids = {i: t for i, t in seen.items() if t >= horizon}
        topic_id = event.body.get("topic_id")
        is_anew = before is None or not count or (topic_id and before.topic_id not in (None, topic_id))
        current[topic] = TopicState(
            topic=topic,
            partition_count=count,
            topic_id=topic_id or (before.topic_id if before else None),
            racks=tuple(tuple(r) for r in racks) if racks is not None else (),
            event_time_ms=event.event_time_ms,
            history=history,
            recent_ids={**kept_ids, event.event_id: event.event_time_ms},
            loads=() if before is None or is_anew else before.loads,
            loads_ms=None if before is None or is_anew else before.loads_ms,
        )
        results.append((current[topic], EventOutcome(event=event, outcome="applied")))
    return results


def _tell_load(event: Input, topic: str, before: TopicState | None) -> tuple[TopicState, EventOutcome]:
    """Let a topic's partitions weigh what the event says, unless more recent loads are known.

    A load counts until the next, so its time tells repeats: ids of a window, one for each load in it, would
    make every topic's row long.
    """
    at_ms, loads = event.event_time_ms, tuple(map(float, event.body["loads"]))
    if before is None or not before.partition_count:
        reason = f"topic {topic!r} is not known to have partitions"
        unknown = before or TopicState(topic=topic, partition_count=0)
        return unknown, EventOutcome(event=event, outcome="ignored", reason=reason)
    if before.loads_ms is not None and at_ms < before.loads_ms:
        reason = f"a load told {before.loads_ms - at_ms} ms later is known"
        return before, EventOutcome(event=event, outcome="ignored", reason=reason)
    if (at_ms, loads) == (before.loads_ms, before.loads):
        reason = "this load of that time was applied before"
        return before, EventOutcome(event=event, outcome="duplicate", reason=reason)
    state = replace(before, loads=loads, loads_ms=at_ms)
    return state, EventOutcome(event=event, outcome="applied")


def order_broadcast(inputs: Sequence[Input]) -> list[Input]:
    """Put topic changes and ticks of several ordered streams into one order.

    Within one stream by position; between streams, which have no order of their
    own, the head with the least event time comes first.
    """
    streams: dict[tuple[str, str, int], list[Input]] = {}
    for event in sorted(inputs, key=lambda e: e.position):
        place = event.position
        key = (place.source, place.path if place.partition >= 0 else "", place.partition)
        streams.setdefault(key, []).append(event)
    heads = dict.fromkeys(sorted(streams), 0)
    ordered: list[Input] = []
    while heads:
        key = min(heads, key=lambda k: (streams[k][heads[k]].event_time_ms, k))
        ordered.append(streams[key][heads[key]])
        heads[key] += 1
        if heads[key] == len(streams[key]):
            del heads[key]
    return ordered


def precedes(change: Input, event: Input) -> bool:
    """Say whether a topic change or tick comes before a group's event."""
    if change.position.follows_stream_of(event.position):
        return change.position < event.position
    return change.event_time_ms <= event.event_time_ms


def merge_changes(
    inputs: Sequence[Input], changes: Sequence[tuple[Input, TopicState | None]]
) -> Iterator[tuple[Input, TopicState | None]]:
    """Walk a group's events with its cluster's topic changes and ticks where they belong.

    Args:
        inputs: the group's events in source order; each comes out with None.
        changes: of its cluster, as BatchBroadcast has them.
    """
    waiting = list(reversed(changes))
    for event in inputs:
        while waiting and precedes(waiting[-1][0], event):
            yield waiting.pop()
        yield event, None
    while waiting:
        yield waiting.pop()
