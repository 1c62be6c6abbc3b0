"""From two versions of a group to what moved, how even it is, and what the checks look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mmh3

from assignors import REGISTRY
from assignors.balance import (
    better_assignment_exists,
    moves_between,
    numbers_of,
    owned_triples,
    topic_spread,
)
from streaming.groups.weights import load_columns
from streaming.model import Owners, Version, owned_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assignors import Assignor
    from streaming.groups.advice import Advice

Row = dict[str, Any]

_WITHOUT_DELTAS = {"baseline", "gap", "state", "held"}


def resource_type(protocol_type: str, partition: int) -> str:
    """Name what is assigned: a partition, or in a Connect group a connector (-1) or a task."""
    if protocol_type != "connect":
        return "partition"
    return "connector" if partition < 0 else "task"


def diff_versions(old: Owners, version: Version, *, cluster: str, group_id: str) -> list[Row]:
    """List what each member gains and gives up between the old assignment and the version's.

    Returns:
        Rows of schemas._DELTA, sorted by member, then what it gives up before
        what it gets, then topic and partition. `change` is assigned, revoked (the
        owner lives and must give it up) or lost (the owner is gone).
        `from_member_id` and `to_member_id` look across both generations of a move:
        what a first one revokes names the member that shall have it. Empty for a
        baseline, a gap, a held or a state row: what moved there is not known, or
        nothing did.
    """
    if version.kind in _WITHOUT_DELTAS:
        return []
    gone, come = _difference(old, version.assignment), _difference(version.assignment, old)
    if not gone and not come:
        return []
    instances = {m.member_id: m.group_instance_id for m in version.members}
    # In a move over two generations the giver is found before it, the receiver in its target.
    receivers = _first_owners(version.assignment, version.expected) if gone else {}
    givers = _first_owners(old, version.basis) if come else {}
    rows: list[tuple[str, int, str, int, str, str | None, str | None]] = []
    for member_id, topic, partition in gone:
        change = "revoked" if member_id in instances else "lost"
        receiver = receivers.get((topic, partition))
        if receiver == member_id:
            receiver = None  # the leader has taken what it should have left: for whom is not known yet
        rows.append((member_id, 0, topic, partition, change, member_id, receiver))
    for member_id, topic, partition in come:
        rows.append((member_id, 1, topic, partition, "assigned", givers.get((topic, partition)), member_id))
    scope = f"{cluster}\0{group_id}\0{version.incarnation}\0{version.version}\0{version.phase}"
    return [
        {
            "delta_id": mmh3.hash_bytes(f"{scope}\0{member_id}\0{topic}\0{partition}\0{change}").hex(),
            "phase": version.phase,
            "member_id": member_id,
            "group_instance_id": instances.get(member_id),
            "resource_type": resource_type(version.protocol_type, partition),
            "topic": topic,
            "partition": partition,
            "change": change,
            "from_member_id": giver,
            "to_member_id": receiver,
        }
        for member_id, _, topic, partition, change, giver, receiver in sorted(rows, key=lambda row: row[:5])
    ]


def _difference(left: Owners, right: Owners) -> list[tuple[str, str, int]]:
    """List what members own in `left` and not in `right`, in the order of `left`."""
    found = []
    for member_id, topics in left.items():
        others = right.get(member_id, {})
        if others == topics:
            continue
        for topic, partitions in topics.items():
            held = set(others.get(topic, ()))
            found += [(member_id, topic, partition) for partition in partitions if partition not in held]
    return found


def _first_owners(owners: Owners, instead: Owners | None) -> dict[tuple[str, int], str]:
    """Map each partition to the first that owns it, one that nobody owns to its first owner in `instead`."""
    return {
        (topic, partition): member_id
        for known in (instead or {}, owners)
        for member_id, topics in reversed(known.items())
        for topic, partitions in topics.items()
        for partition in partitions
    }


def apply_deltas(old: Owners, deltas: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, int]]:
    """Carry the deltas out on the old assignment: the (member_id, topic, partition) that result."""
    owned = owned_triples(old)
    for delta in deltas:
        pair = (delta["member_id"], delta["topic"], delta["partition"])
        if delta["change"] == "assigned":
            owned.add(pair)
        else:
            owned.discard(pair)
    return owned


def measure_balance(
    old: Owners, version: Version, deltas: Sequence[Mapping[str, Any]], advice: Advice | None = None
) -> Row:
    """Count how even the version is and what it moved; the columns of schemas._BALANCE.

    `moved` counts partitions that left a live member for another, `kept` those
    that stayed, both against the assignment before the whole move where a move
    took two generations; `stickiness` is kept / (kept + moved), 1 when nothing
    could be kept. `assigned`, `revoked` and `lost` count this version's deltas;
    `optimal_moves` and `optimal_spread` are what was enough, None where that is not known; `load_highest`
    and what follows are of groups that go by loads (LoadNumbers), else None.
    """
    numbers = numbers_of(version.assignment)
    moved, kept = _moved_and_kept(old, version)
    changes = [d["change"] for d in deltas]
    return {
        "members": len(version.members),
        "partitions": numbers.partitions,
        "min": numbers.least,
        "max": numbers.most,
        "spread": numbers.spread,
        "standard_deviation": numbers.standard_deviation,
        "moved": moved,
        "kept": kept,
        "assigned": changes.count("assigned"),
        "revoked": changes.count("revoked"),
        "lost": changes.count("lost"),
        "unowned": count_unowned(version),
        "stickiness": kept / (kept + moved) if kept + moved else 1.0,
        "optimal_moves": None if advice is None or version.kind in _WITHOUT_DELTAS else advice.moves,
        "optimal_spread": None if advice is None else advice.spread,
        **load_columns(version),
    }


def count_unowned(version: Version) -> int:
    """Count the partitions of subscribed topics that nobody owns."""
    return sum(unowned_by_topic(version).values())


def unowned_by_topic(version: Version) -> dict[str, int]:
    """Count unowned partitions for each subscribed topic that has any, sorted by topic.

    In a Connect group: parts of each configured connector that nobody runs, itself among them.
    """
    if version.protocol_type == "connect":
        return {connector: len(parts) for connector, parts in unrun_by_connector(version).items()}
    owned: dict[str, set[int]] = {}
    for topics in version.assignment.values():
        for topic, partitions in topics.items():
            owned.setdefault(topic, set()).update(partitions)
    counts = {}
    for topic in sorted(frozenset[str]().union(*version.subscribed.values())):
        count = version.topic_counts.get(topic, 0)
        missing = count - len([p for p in owned.get(topic, ()) if p < count])
        if missing > 0:
            counts[topic] = missing
    return counts


def unrun_by_connector(version: Version) -> dict[str, list[int]]:
    """List what of each configured connector nobody runs: its task numbers, -1 for the connector itself.

    Sorted; empty for a group without workers. An observed group's configuration is
    the one that `expected_connect` reads off the records.
    """
    if not version.members:
        return {}
    running = {(connector, number) for _, connector, number in owned_pairs(version.assignment)}
    missing = {
        connector: [n for n in range(-1, count) if (connector, n) not in running]
        for connector, count in sorted(version.topic_counts.items())
    }
    return {connector: parts for connector, parts in missing.items() if parts}


def inspect_version(
    old: Owners,
    version: Version,
    deltas: Sequence[Mapping[str, Any]],
    balance: Row,
    advice: Advice | None = None,
) -> Row:
    """Count what the checks look at; the columns of schemas._CHECK_INPUTS, None where one does not apply."""
    members = {m.member_id for m in version.members}
    is_share, is_connect = version.protocol_type == "share", version.protocol_type == "connect"
    known, computed = version.topic_counts, version.group_kind == "computed"
    unsubscribed = unknown = foreign = 0
    for member_id, topics in version.assignment.items():
        subscribed = version.subscribed.get(member_id, frozenset())
        for topic, partitions in topics.items():
            foreign += len(partitions) if member_id not in members else 0
            if is_connect:
                continue
            unsubscribed += len(partitions) if topic not in subscribed else 0
            # An observed topic that was never described is not called unknown.
            if topic in known or computed:
                count = known.get(topic, 0)
                unknown += len([p for p in partitions if not 0 <= p < count])
    counts_moves = version.kind not in _WITHOUT_DELTAS
    after = owned_triples(version.assignment)
    judges_unowned = version.is_final and not is_connect and bool(members)
    judges_moves = version.is_final and counts_moves
    duplicates = _shared(after) + _repeated(version.assignment)
    return {
        "duplicate_owners": None if is_share else duplicates,
        "foreign_owners": foreign,
        "unsubscribed_owners": None if is_connect else unsubscribed,
        "unknown_partitions": None if is_connect else unknown,
        "delta_mismatches": len(apply_deltas(old, deltas) ^ after) if counts_moves else None,
        "unowned_partitions": balance["unowned"] if judges_unowned else None,
        "excess_spread": _excess_spread(version, balance["spread"], advice) if version.is_final else None,
        "excess_moves": _excess_moves(version, balance["moved"], advice) if judges_moves else None,
    }


def _shared(owned: set[tuple[str, str, int]]) -> int:
    """Count partitions that more than one member owns."""
    if len({(topic, partition) for _, topic, partition in owned}) == len(owned):
        return 0
    owners = Counter((topic, partition) for _, topic, partition in owned)
    return sum(count > 1 for count in owners.values())


def _repeated(owners: Owners) -> int:
    """Count partitions that stand twice in one member's own list."""
    return sum(len(ps) - len(set(ps)) for topics in owners.values() for ps in topics.values())


def _moved_and_kept(old: Owners, version: Version) -> tuple[int, int]:
    if version.kind in _WITHOUT_DELTAS:
        return 0, 0
    members = {m.member_id: version.assignment.get(m.member_id, {}) for m in version.members}
    moves = moves_between(old if version.basis is None else version.basis, members, version.instance_moves)
    return moves.moved, moves.kept


def _assignor_of(version: Version) -> Assignor | None:
    """Look up what the version's assignor promises; KIP-848's go by their own names here."""
    if version.assignor is not None:
        return version.assignor
    name = version.protocol or ""
    return REGISTRY.get(f"server-{name}" if version.rebalance_protocol == "CONSUMER" else name)


def _excess_spread(version: Version, spread: int, advice: Advice | None) -> int | None:
    """Count by how much the spread is over what the assignor promises; None where it promises none.

    Sticky assignors promise that no legal move could even the loads out; one that
    promises a level topic deals each topic evenly among its subscribers; one that
    promises a level group has a spread of one when all subscribe alike. What a certificate proves
    is not searched again.
    """
    if advice is not None and advice.is_proven:
        return 0
    assignor = _assignor_of(version)
    if assignor is None or version.protocol_type != "consumer" or not version.members:
        return None
    if assignor.is_sticky:
        is_improvable = spread > 1 and better_assignment_exists(version.assignment, version.subscribed)
        return spread - 1 if is_improvable else 0
    if assignor.promises == "topic":
        return max(topic_spread(version.assignment, version.subscribed) - 1, 0)
    if assignor.promises == "group" and len(set(version.subscribed.values())) == 1:
        return max(spread - 1, 0)
    return None


def _excess_moves(version: Version, moved: int, advice: Advice | None) -> int | None:
    """Count moves beyond the fewest that balance needed; None where nobody promised as few.

    Kafka's sticky assignors keep to the fewest where all subscribe alike and no racks are looked
    at: they let go of all that is out of its owner's rack. The optimal ones always do, and have a
    certificate of it. Who is interrupted in a move does not know where it began.
    """
    assignor = _assignor_of(version)
    if assignor is None or advice is None or not assignor.is_sticky or version.is_interrupted:
        return None
    if advice.is_proven is not None:
        return 0 if advice.is_proven else max(1, moved - advice.moves)
    are_alike = len(set(version.subscribed.values())) == 1
    return max(0, moved - advice.moves) if are_alike and not advice.has_racks else None
