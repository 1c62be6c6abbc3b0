"""What members gain and give up from one version of a group to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.groups.deltas import apply_deltas, diff_versions, inspect_version, measure_balance
from streaming.model import MemberInfo, Owners, Version, owned_pairs

_MEMBERS = ["A", "B", "C"]
_OWNERS = st.dictionaries(
    st.sampled_from(_MEMBERS),
    st.dictionaries(st.sampled_from(["t", "u"]), st.lists(st.integers(0, 2), unique=True, max_size=3)),
)


def version_of(assignment: Owners, expected: Owners | None = None, basis: Owners | None = None) -> Version:
    """Make a rebalance of a group whose members are those with an assignment."""
    return Version(
        kind="rebalance",
        version=2,
        generation_id=2,
        incarnation=1,
        group_kind="observed",
        protocol_type="consumer",
        protocol="range",
        rebalance_protocol="EAGER",
        leader_id=None,
        group_state="Stable",
        phase=0,
        is_final=True,
        reason="",
        event_time_ms=2,
        members=tuple(MemberInfo(member_id=m, topics=("t",)) for m in assignment),
        assignment=assignment,
        subscribed={m: frozenset({"t"}) for m in assignment},
        topic_counts={"t": 2},
        expected=expected,
        basis=basis,
    )


def holders(owners: Owners | None, topic: str, partition: int) -> list[str]:
    """List who owns a partition, in the assignment's order."""
    return [m for m, topics in (owners or {}).items() if partition in topics.get(topic, ())]


@given(old=_OWNERS, new=_OWNERS, expected=st.none() | _OWNERS, basis=st.none() | _OWNERS)
def test_deltas_carry_the_old_assignment_into_the_new(
    old: Owners, new: Owners, expected: Owners | None, basis: Owners | None
) -> None:
    """Each gain and loss is told once, and with whom: who has the partition now, or shall; who had it."""
    version = version_of(new, expected, basis)
    deltas = diff_versions(old, version, cluster="c", group_id="g")
    assert apply_deltas(old, deltas) == set(owned_pairs(new))
    before, after = set(owned_pairs(old)), set(owned_pairs(new))
    assert len(deltas) == len(before ^ after)
    for delta in deltas:
        place = delta["topic"], delta["partition"]
        if delta["change"] == "assigned":
            givers = [*holders(old, *place), *holders(basis, *place), None]
            assert (delta["from_member_id"], delta["to_member_id"]) == (givers[0], delta["member_id"])
            continue
        assert delta["change"] == ("revoked" if delta["member_id"] in new else "lost")
        receiver = [*holders(new, *place), *holders(expected, *place), None][0]
        assert delta["to_member_id"] == (None if receiver == delta["member_id"] else receiver)


@given(old=_OWNERS, new=_OWNERS)
def test_the_checks_inputs_count_what_is_wrong(old: Owners, new: Owners) -> None:
    """Partition by partition: two owners, a topic not asked for, a number the topic has not, nobody."""
    version = version_of(new)
    deltas = diff_versions(old, version, cluster="c", group_id="g")
    inputs = inspect_version(old, version, deltas, measure_balance(old, version, deltas))
    owners = {place: holders(new, *place) for place in [(t, p) for t in "tu" for p in range(3)]}
    assert inputs["duplicate_owners"] == sum(len(held) > 1 for held in owners.values())
    assert inputs["unsubscribed_owners"] == sum(len(held) for (t, _), held in owners.items() if t == "u")
    assert inputs["unknown_partitions"] == len(owners["t", 2])
    nobodys = sum(not owners["t", p] for p in range(2))
    assert inputs["unowned_partitions"] == (nobodys if new else None)
    assert (inputs["foreign_owners"], inputs["delta_mismatches"]) == (0, 0)
