"""A group that cannot be computed is set aside: it costs nobody else anything, and loses nothing itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.settings import load_settings
from streaming.batches.batch import count_outcomes
from streaming.events.parsing import parse_record
from streaming.groups.rules import GroupRules
from streaming.groups.set_aside import SetAside
from streaming.groups.turn import GroupTurn
from streaming.model import Input, Position
from streaming.sources.own_events import own_inputs
from tests.observed_inputs import DATA, captured_inputs
from tests.playing import Player, event, join, owned, tick, topic

Row = dict[str, Any]
RULES = GroupRules.from_settings(load_settings(None, {}, {}))


class Fault:
    """A fault of this program: a turn of these groups raises at its nth event, having applied it."""

    def __init__(self, *group_ids: str, at: int = 1) -> None:
        """Choose the groups and the event."""
        self.group_ids, self.at = set(group_ids), at
        self.attempts = 0

    def __enter__(self) -> Fault:
        self._take = take = GroupTurn._take
        fault = self
        left: dict[int, int] = {}

        def take_and_fail(turn: GroupTurn, item: Input) -> None:
            take(turn, item)
            left[id(turn)] = left.get(id(turn), fault.at) - 1
            if item.group_id in fault.group_ids and left[id(turn)] == 0:
                fault.attempts += 1
                raise TypeError("a fault of ours")

        GroupTurn._take = take_and_fail  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        GroupTurn._take = self._take  # type: ignore[method-assign]


def versions(player: Player, group_id: str) -> list[Row]:
    """Give a group's versions without what tells when they were computed."""
    told = ("events", "alerts", "ordinal", "state")
    return [{k: v for k, v in row.items() if k not in told} for row in player.versions(group_id)]


def state(player: Player, group_id: str) -> Row:
    """Give a group's state, without the number of its alerts' changes: being set aside is two more."""
    found: Row = orjson.loads(player.latest(group_id)["state"])
    del found["alerts"]["changes"]
    return found


def alerts(player: Player, group_id: str) -> list[tuple[str, str]]:
    """List a group's alert changes but for those of being set aside, by their ids."""
    changes = [a for row in player.rows if row["group_id"] == group_id for a in row["alerts"]]
    return sorted((a["alert_event_id"], a["status"]) for a in changes if a["alertname"] != "GroupSetAside")


def became(player: Player, group_id: str) -> Counter[tuple[str, str]]:
    """Count what became of a group's events in the end."""
    told = [e for row in player.rows if row["group_id"] == group_id for e in row["events"]]
    return Counter((e["event_id"], e["outcome"]) for e in told if e["outcome"] != "kept")


def assert_as_if_nothing_had_happened(player: Player, other: Player, group_ids: Iterable[str]) -> None:
    """Hold what became of groups that were set aside to what became of the same groups undisturbed."""
    for group_id in group_ids:
        assert versions(player, group_id) == versions(other, group_id)
        assert state(player, group_id) == state(other, group_id)
        assert alerts(player, group_id) == alerts(other, group_id)
        assert became(player, group_id) == became(other, group_id)


MEMBERS, SECONDS = st.sampled_from(["a", "b", "c"]), st.integers(0, 300)
TOPICS, WANTED = st.sampled_from(["t", "u", "v"]), st.sampled_from([("t",), ("u",), ("t", "u")])
EVENTS = st.one_of(
    st.builds(lambda m, s, t: join(m, s, *t), MEMBERS, SECONDS, WANTED),
    st.builds(lambda m, s: join(m, s, topics_pattern="t|v", session_timeout_ms=20_000), MEMBERS, SECONDS),
    st.builds(lambda m, s: join(m, s, "t", group_instance_id=f"i-{m}"), MEMBERS, SECONDS),
    st.builds(lambda m, s: event("member_heartbeat", s, m), MEMBERS, SECONDS),
    st.builds(lambda m, s: event("member_left", s, m), MEMBERS, SECONDS),
    st.builds(
        lambda m, s, n: event("partitions_revoked", s, m, generation_id=n),
        MEMBERS,
        SECONDS,
        st.integers(1, 9),
    ),
    st.builds(lambda t, n, s: topic(t, n, s), TOPICS, st.integers(0, 5), SECONDS),
    st.builds(tick, SECONDS),
    st.just({**join("a", 5, "t"), "event_id": "twice"}),
)


@given(
    batches=st.lists(st.lists(EVENTS, max_size=5), min_size=2, max_size=8),
    first=st.integers(0, 6),
    length=st.integers(1, 6),
    at=st.integers(1, 4),
)
def test_a_group_whose_fault_goes_away_ends_as_if_it_had_never_failed(
    batches: list[list[Row]], first: int, length: int, at: int
) -> None:
    """Whatever comes meanwhile, topics that change and times that go back too, and whenever it is mended."""
    broken, whole = Player(RULES), Player(RULES)
    read = 0
    for number, batch in enumerate([[topic("t", 3)], *batches, [tick(40_000)], [tick(80_000)]]):
        read += sum("group_id" in item for item in batch)
        if first <= number < min(first + length, len(batches) + 1):
            with Fault("g", at=at):
                broken.play(batch)
        else:
            broken.play(batch)
        whole.play(batch)
        counts = count_outcomes(broken.rows)
        assert counts["applied"] + counts["duplicate"] + counts["ignored"] == read
    assert_as_if_nothing_had_happened(broken, whole, {row["group_id"] for row in whole.rows})
    numbers = [alert["change_number"] for row in broken.rows for alert in row["alerts"]]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def parsed_lines(name: str, form: Literal["events", "offsets"]) -> Iterator[Input]:
    """Parse a file of the captured run as the stream does."""
    for number, line in enumerate((DATA / name).read_bytes().splitlines(), start=1):
        place = Position(name, name, -1, number)
        parsed = parse_record(
            line, position=place, format=form, default_cluster="c", max_record_bytes=100_000
        )
        assert isinstance(parsed, Input)
        yield parsed


def tick_of_cluster(event_time_ms: int) -> Input:
    """Make a tick of the captured run's cluster."""
    (made,) = own_inputs([{"type": "time_advanced", "event_time": event_time_ms, "cluster": "c"}], 1)
    return made


@pytest.mark.parametrize("at", [1, 3])
def test_observed_groups_of_a_real_run_lose_nothing(at: int) -> None:
    """Classic, KIP-848, share and Connect groups, all failing for a third of the run, end as they should."""
    inputs = sorted(
        [*captured_inputs(), *parsed_lines("topics.jsonl", "events")], key=lambda item: item.event_time_ms
    )
    group_ids = {item.group_id for item in inputs if item.group_id is not None}
    later = [tick_of_cluster(inputs[-1].event_time_ms + 10_000_000 * number) for number in (1, 2)]
    broken, whole = Player(RULES), Player(RULES)
    for first in range(0, len(inputs), 20):
        batch = inputs[first : first + 20]
        whole.play_inputs(batch)
        if len(inputs) // 3 <= first < 2 * len(inputs) // 3:
            with Fault(*group_ids, at=at):
                broken.play_inputs(batch)
        else:
            broken.play_inputs(batch)
    failed = [row for row in broken.rows if row["reason"].startswith("set aside: TypeError")]
    assert len({row["group_id"] for row in failed}) > 3
    for item in later:
        whole.play_inputs([item])
        broken.play_inputs([item])
    assert_as_if_nothing_had_happened(broken, whole, group_ids)


def test_the_others_go_on_and_everybody_is_told() -> None:
    """The group's row says what was raised, where in the program and at which event; its alert fires."""
    player, whole = Player(RULES), Player(RULES)
    story = [topic("t", 4), *(join("a", 1, "t", group_id=group_id) for group_id in ("g", "h"))]
    more = [join("b", 2, "t", group_id=group_id) for group_id in ("g", "h")]
    for each in (player, whole):
        each.play(story)
    with Fault("g"):
        player.play(more)
    whole.play(more)
    assert versions(player, "h") == versions(whole, "h")
    row = player.latest("g")
    assert (row["kind"], row["version"], row["deltas"]) == ("state", 1, [])
    assert owned(row) == {"a": ["tp0", "tp1", "tp2", "tp3"]}
    why = "set aside: TypeError: a fault of ours (test_set_aside.py:"
    assert row["reason"].startswith(why)
    assert row["reason"].endswith("at member_joined story.jsonl:4; tried once, 1 of its events wait")
    (kept,) = row["events"]
    assert (kept["outcome"], kept["reason"]) == ("kept", f"its group is {row['reason']}")
    (alert,) = row["alerts"]
    assert (alert["alertname"], alert["status"], alert["severity"]) == ("GroupSetAside", "firing", "critical")
    assert alert["description"] == row["reason"]
    player.play([tick(30)])
    assert player.alerts("GroupSetAside") == [("GroupSetAside", "firing"), ("GroupSetAside", "resolved")]
    taken_up = [e for row in player.versions("g") for e in row["events"]][-1]
    assert taken_up["event_id"] == kept["event_id"]
    assert (taken_up["outcome"], taken_up["reason"]) == ("applied", "it waited with its group")


def test_it_is_tried_again_after_ever_longer_waits() -> None:
    """With the next batch, then after 30 s, 60 s and so on in event time, however often it is touched."""
    player = Player(RULES)
    player.play([topic("t", 4)])
    tried_at = []
    with Fault("g") as fault:
        player.play([join("a", 0, "t")])
        for second in range(10, 2000, 10):
            before = fault.attempts
            player.play([event("member_heartbeat", second, "a") if second % 20 else tick(second)])
            tried_at += [second] if fault.attempts > before else []
    assert tried_at == [10, 40, 100, 220, 460, 940, 1900]
    assert json.loads(player.latest()["state"])["failures"] == 8


def test_what_waits_is_bounded_and_nothing_goes_silently() -> None:
    """The event at which it fails goes first, then the oldest; `events` tells, and the rest is applied."""
    player = Player(GroupRules(set_aside_max_bytes=2000, set_aside_retry_ms=1000))
    player.play([topic("t", 4), join("a", 0, "t")])
    with Fault("g", at=3):
        player.play([join(f"m{n}", n, "t") for n in range(1, 9)])
    row = player.latest()
    gone = [e for e in row["events"] if e["outcome"] == "ignored"]
    assert [json.loads(e["raw"])["member_id"] for e in gone] == ["m1", "m2", "m3"]
    assert "5 of its events wait, 3 given up for lack of room" in row["reason"]
    (why,) = {e["reason"] for e in gone}
    assert why.endswith("; given up: more events wait than groups.set_aside_max_bytes holds")
    assert len(row["state"]) < 6000
    player.play([tick(60)])
    assert set(owned(player.latest())) == {"a", "m4", "m5", "m6", "m7", "m8"}
    counts = count_outcomes(player.rows)
    assert counts["applied"] + counts["duplicate"] + counts["ignored"] == 9


def test_the_event_at_which_it_fails_is_the_first_to_go() -> None:
    """One event that cannot be computed does not take its neighbours along."""
    player = Player(GroupRules(set_aside_max_bytes=1400))
    player.play([topic("t", 4), join("a", 0, "t")])
    with Fault("g", at=3):
        player.play([join(f"m{n}", n, "t") for n in range(1, 5)])
    gone = [json.loads(e["raw"])["member_id"] for e in player.latest()["events"] if e["outcome"] == "ignored"]
    assert gone == ["m3"]


def test_a_change_of_a_topic_is_never_given_up() -> None:
    """A group that had to give up events still knows every topic as it is."""
    player = Player(GroupRules(set_aside_max_bytes=600))
    player.play([topic("t", 4), join("a", 0, "t")])
    with Fault("g"):
        player.play([join("b", 1, "t"), topic("t", 6, 2), join("c", 3, "t")])
    player.play([tick(100), tick(200)])
    assert sum(len(partitions) for partitions in owned(player.latest()).values()) == 6


def test_what_is_left_of_waiting_records_claims_nothing_of_what_is_gone() -> None:
    """With one of a group's records given up, a generation that is missing may have been that one."""
    inputs = [
        replace(each, stretch="s/t/0/0") for each in captured_inputs() if each.group_id == "cg-java-range"
    ]
    roomy = SetAside(before=None, heard=[(each, None) for each in inputs])
    assert roomy.give_up(1 << 24, None) == []
    assert {event.stretch for event, _ in roomy.heard} == {"s/t/0/0"}
    narrow = SetAside(before=None, heard=[(each, None) for each in inputs])
    assert narrow.give_up(4000, None)
    assert narrow.heard
    assert {event.stretch for event, _ in narrow.heard} == {None}


def test_a_state_that_cannot_be_read_costs_its_own_group_only() -> None:
    """Nothing can be shown of the group then; its events wait, and the state stays as it is."""
    player = Player(RULES)
    player.play([topic("t", 4), join("a", 1, "t"), join("a", 1, "t", group_id="h")])
    good, bad = player._states["default", "g"], '{"kind":"computed","group":{}}'
    player._states["default", "g"] = bad
    player.play([join("b", 2, "t"), join("b", 2, "t", group_id="h")])
    row = player.latest("g")
    assert (row["group_state"], row["members"], row["events"][0]["outcome"]) == ("Unknown", [], "kept")
    assert row["reason"].startswith("set aside: KeyError: ")
    assert player.latest("h")["version"] == 2
    aside = SetAside.load(row["state"], "default", "g")
    assert aside is not None
    assert aside.before == bad
    aside.before = good
    player._states["default", "g"] = aside.dump()
    player.play([tick(100)])
    assert set(owned(player.latest("g"))) == {"a", "b"}


def test_a_second_time_is_a_second_alert() -> None:
    """Its changes are numbered on, so that whoever looks for the latest finds it."""
    player = Player(RULES)
    player.play([topic("t", 4), join("a", 0, "t")])
    for second in (10, 100):
        with Fault("g"):
            player.play([event("member_heartbeat", second, "a")])
        player.play([tick(second + 50)])
    changes = [a for row in player.rows for a in row["alerts"] if a["alertname"] == "GroupSetAside"]
    assert [a["status"] for a in changes] == ["firing", "resolved"] * 2
    assert [a["change_number"] for a in changes] == [1, 2, 3, 4]
    assert len({a["incident_id"] for a in changes}) == 2


def test_a_group_goes_on_with_the_next_batch_when_this_one_would_not_fit() -> None:
    """Many large generations in one batch are spread over batches, and are the same in the end."""
    most = GroupRules(max_turn_bytes=20_000)
    story = [topic("t", 4), *(join(f"m{n}", n, "t") for n in range(60)), topic("t", 9, 61), tick(90)]
    spread, whole = Player(most), Player(GroupRules())
    whole.play([*story, tick(400)])
    rows = spread.play(story)
    assert 1 < len(rows) < 40
    assert rows[-1]["reason"].startswith(
        "goes on with the next batch: more than groups.max_turn_bytes in one, "
    )
    assert max(sum(len(r["state"]) for r in rows if r["kind"] != "state") for _ in rows) < 30_000
    batches = 1
    while "goes on" in spread.latest()["reason"]:
        spread.play([join("m60", 60, "t"), tick(90 + batches)] if batches == 1 else [tick(90 + batches)])
        batches += 1
    assert batches > 3
    whole.play([join("m60", 60, "t")])
    spread.play([tick(400)])
    assert became(spread, "g").keys() == became(whole, "g").keys()
    assert len(owned(spread.latest())) == 61
    counts = count_outcomes(spread.rows)
    assert counts["applied"] + counts["duplicate"] + counts["ignored"] == 61
    assert spread.alerts() == []


def test_what_goes_on_with_the_next_batch_changes_nothing() -> None:
    """The versions and the state are those of one batch."""
    story = [topic("t", 4), *(join(f"m{n}", n, "t") for n in range(20)), topic("t", 9, 21), tick(90)]
    spread, whole = Player(GroupRules(max_turn_bytes=5_000)), Player(GroupRules())
    whole.play(story)
    spread.play(story)
    while "goes on" in spread.latest()["reason"]:
        spread.play([tick(90)])
    assert_as_if_nothing_had_happened(spread, whole, ["g"])


def test_what_does_not_even_fit_into_the_next_batches_is_told() -> None:
    """Of more events than may wait the oldest are given up: the alert fires, and `events` says which."""
    rules = GroupRules(max_turn_bytes=2_000, set_aside_max_bytes=2_000, alerts=RULES.alerts)
    player = Player(rules)
    player.play([topic("t", 4), *(join(f"m{n}", n, "t") for n in range(20))])
    gone = [e for row in player.rows for e in row["events"] if e["outcome"] == "ignored"]
    assert len(gone) > 5
    assert all("given up" in e["reason"] for e in gone)
    assert player.alerts("GroupSetAside") == [("GroupSetAside", "firing")]
    while "goes on" in player.latest()["reason"]:
        player.play([tick(20)])
    assert player.alerts("GroupSetAside") == [("GroupSetAside", "firing"), ("GroupSetAside", "resolved")]
    counts = count_outcomes(player.rows)
    assert counts["applied"] + counts["duplicate"] + counts["ignored"] == 20


def test_a_switched_off_alert_is_not_raised() -> None:
    """Being set aside is in the group's row all the same."""
    player = Player(GroupRules())
    with Fault("g"):
        player.play([topic("t", 4), join("a", 1, "t")])
    assert player.latest()["alerts"] == []
    assert player.latest()["reason"].startswith("set aside: ")


def test_what_waits_comes_back_as_it_was() -> None:
    """Every kind of input goes into the group's state and out of it unchanged."""
    for item in (*captured_inputs(), *parsed_lines("consumer-offsets.jsonl", "offsets")):
        aside = SetAside(before='{"kind": "é"}', reason="x", failures=1)
        aside.hear([(item, None)], {})
        again = SetAside.load(aside.dump(), item.cluster, item.group_id or "")
        assert again is not None
        assert (again.heard, again.before) == ([(item, None)], aside.before)
