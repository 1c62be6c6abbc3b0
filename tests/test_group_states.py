"""The coordinator's own word on a group's state: shown until the log says more, and never a version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.playing import Player, at, event, join, topic


def observed(seconds: float, generation_id: int, group_id: str = "g") -> dict[str, Any]:
    """Make a generation of one member that owns all of "orders"."""
    member = {
        "member_id": f"C{generation_id}",
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "topics": ["orders"],
        "assigned": {"orders": [0, 1]},
    }
    return event(
        "generation_observed",
        seconds,
        group_id=group_id,
        generation_id=generation_id,
        protocol_type="consumer",
        protocol="range",
        state="Stable",
        members=[member],
    )


def told(seconds: float, state: str, group_id: str = "g") -> dict[str, Any]:
    """Make a group_state event."""
    return event("group_state", seconds, group_id=group_id, state=state, protocol_type="consumer")


def played(*batches: list[dict[str, Any]]) -> Player:
    """Play a topic and these batches."""
    player = Player()
    player.play([topic("orders", 2)])
    for batch in batches:
        player.play(batch)
    return player


def outcomes(player: Player) -> list[tuple[str, str | None]]:
    """List what became of each group_state event: (outcome, reason)."""
    rows = [row for of_version in player.rows for row in of_version["events"] or ()]
    return [(row["outcome"], row["reason"]) for row in rows if row["type"] == "group_state"]


@pytest.mark.parametrize("is_cut", [False, True], ids=["one batch", "a batch each"])
def test_the_coordinator_s_word_is_shown_until_the_next_record(is_cut: bool) -> None:
    """A group in a rebalance shows so at once, in a state row; the generation that ends it overrules."""
    events = [observed(1, 5), told(2, "PreparingRebalance"), observed(3, 6)]
    player = played(*([e] for e in events)) if is_cut else played(events[:2], events[2:])
    shown = [(row["kind"], row["version"], row["group_state"]) for row in player.rows]
    assert shown == [
        ("baseline", 1, "Stable"),
        ("state", 1, "PreparingRebalance"),
        ("rebalance", 2, "Stable"),
    ]
    assert outcomes(player) == [("applied", None)]


def test_the_same_generation_again_is_no_version_while_the_coordinator_says_otherwise() -> None:
    """Records are compared with records, so one told twice changes nothing but the state."""
    player = played([observed(1, 5)], [told(2, "PreparingRebalance")], [observed(3, 5)])
    last = player.rows[-1]
    assert (last["kind"], last["version"], last["group_state"]) == ("state", 1, "Stable")


@pytest.mark.parametrize(
    ("before", "state", "why"),
    [
        ([observed(1, 5)], told(2, "Stable"), "the group is known to be Stable"),
        (
            [observed(1, 5)],
            told(0.5, "PreparingRebalance"),
            "the coordinator said so before the group's last version",
        ),
        ([], told(2, "Stable"), "no generation of the group has been seen"),
        (
            [observed(1, 5), event("group_deleted", 2)],
            told(3, "Stable"),
            "no generation of the group has been seen",
        ),
        (
            [join("C1", 1, "orders")],
            told(2, "PreparingRebalance"),
            "group_state does not apply to a computed consumer group",
        ),
        (
            [event("worker_joined", 1, worker_id="w")],
            told(2, "PreparingRebalance"),
            "group_state does not apply to a computed Connect group",
        ),
    ],
)
def test_what_says_nothing_new_is_ignored(
    before: list[dict[str, Any]], state: dict[str, Any], why: str
) -> None:
    """A word that is late, known, or about a group that the log does not tell of changes nothing."""
    player = played([*before, state])
    shown = player.rows[-1]["group_state"]
    assert outcomes(player) == [("ignored", why)]
    assert shown != state["state"] or "known" in why


def test_a_word_about_a_group_does_not_decide_its_kind() -> None:
    """A group of which the coordinator was heard first can still be one that Counterpoise leads."""
    player = played([told(1, "Stable")], [join("C1", 2, "orders")])
    last = player.rows[-1]
    assert (last["group_kind"], last["version"], last["group_state"]) == ("computed", 1, "Stable")
    assert last["event_time"] == at(2) * 1000
