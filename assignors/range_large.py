"""Runs of partitions for large groups, made in numpy's arrays.

The plain way makes an array for each member of each topic; here all runs of all
topics are counted first and written out once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from assignors.model import Assignment


def deal_runs(
    join_order: Mapping[str, object],
    members: list[str],
    topics: list[str],
    counts: list[int],
    members_by_topic: Sequence[Sequence[int]],
) -> Assignment:
    """Give each topic's members contiguous runs of its partitions, the first ones one more.

    Args:
        join_order: member_ids in the order of the result.
        members: member_ids in the order that `members_by_topic` counts in.
        topics: topics in the order of each member's list.
        counts: partitions of each topic, numbered from 0.
        members_by_topic: each topic's members, in the order of their runs.
    """
    place = {member: i for i, member in enumerate(join_order)}
    places = np.array([place[member] for member in members], dtype=np.int64)
    arrays = {id(listed): np.array(listed, dtype=np.int64) for listed in members_by_topic}
    owners = [places[arrays[id(listed)]] for listed in members_by_topic]
    shares: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for count, of_topic in zip(counts, owners, strict=True):
        share, extra = divmod(count, len(of_topic))
        sizes = np.full(len(of_topic), share, dtype=np.int64)
        sizes[:extra] += 1
        shares.append(sizes)
    sizes = np.concatenate(shares)
    owner_of_run = np.concatenate(owners)
    topic_of_run = np.repeat(np.arange(len(topics), dtype=np.int32), [len(of_topic) for of_topic in owners])
    ends = np.cumsum(sizes)
    topic_starts = np.cumsum(counts) - counts
    first_of_run = ends - sizes - topic_starts[topic_of_run]
    # Stable: a member's runs stay in the order of topics.
    order = np.argsort(owner_of_run, kind="stable")
    loads = np.bincount(owner_of_run, weights=sizes, minlength=len(place)).astype(np.int64)
    sizes, first_of_run = sizes[order], first_of_run[order]
    shifts = np.repeat(first_of_run - (np.cumsum(sizes) - sizes), sizes)
    partitions = (shifts + np.arange(len(shifts))).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(loads)))
    return Assignment(
        join_order,
        topics,
        array("q", starts.tobytes()),
        array("i", np.repeat(topic_of_run[order], sizes).tobytes()),
        array("i", partitions.tobytes()),
    )
