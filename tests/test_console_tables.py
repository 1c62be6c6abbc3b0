"""What people read from the tables is the last committed batch, however old the snapshots are."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import TablesError
from console.picture import MOST_COLUMNS, Generation, draw_generations
from console.report import generations_of, moves_text, places_text
from console.tables import (
    SNAPSHOT_APP,
    assignment_rows,
    latest_alerts,
    latest_assignments,
    latest_groups,
    latest_topics,
    quoted,
    read_table,
)
from streaming.tables import log as job_log
from streaming.tables.log import topic_state_of
from streaming.tables.schemas import ASSIGNMENTS, GENERATIONS, GROUPS
from streaming.tables.snapshots import assignment_rows as job_assignment_rows
from tests.console_tables import (
    alert_change,
    alert_struct,
    group_row,
    topic_row,
    write_empty,
    write_rows,
)


def as_snapshot(row: dict) -> dict:
    """Keep of a log row what the snapshot `groups` keeps."""
    return {name: value for name, value in row.items() if name in GROUPS.names}


def owners_of(rows: list[dict]) -> dict[int, str | None]:
    """Read partition -> owner from rows of `assignments`."""
    return {row["partition"]: row["member_id"] for row in rows}


def test_a_group_s_latest_row_comes_from_the_log_behind_the_snapshot(tmp_path: Path) -> None:
    """A row of a later batch in the log replaces the snapshot's, and groups only there are shown."""
    old, new, other = (
        group_row("g", 1, {"A": [0]}),
        group_row("g", 2, {"B": [0]}),
        group_row("h", 3, {"A": [0]}),
    )
    write_rows(tmp_path, "groups", [as_snapshot(old)], batch_seq=1)
    write_rows(tmp_path, "generations", [old, other, new])
    groups = latest_groups(str(tmp_path))
    assert [(g["group_id"], g["generation_id"]) for g in groups] == [("g", 2), ("h", 3)]
    assert [g["generation_id"] for g in latest_groups(str(tmp_path), "g")] == [2]


def test_the_snapshot_is_used_for_what_it_holds(tmp_path: Path) -> None:
    """Rows of batches that the snapshot stands at are not read from the log again."""
    held = as_snapshot(group_row("g", 1, {"A": [0]}))
    write_rows(tmp_path, "groups", [held], batch_seq=1)
    write_rows(tmp_path, "generations", [group_row("stray", 1, {"A": [0]})])
    assert [g["group_id"] for g in latest_groups(str(tmp_path))] == ["g"]


def test_a_deleted_group_is_gone(tmp_path: Path) -> None:
    """A deleted row behind the snapshot takes the group and what it owned away."""
    write_empty(tmp_path)
    write_rows(tmp_path, "groups", [as_snapshot(group_row("g", 1, {"A": [0]}))], batch_seq=1)
    write_rows(tmp_path, "generations", [group_row("g", 2, {}, kind="deleted", group_state="Dead")])
    assert latest_groups(str(tmp_path)) == []
    assert latest_assignments(str(tmp_path)) == []


def test_the_same_name_in_two_clusters_is_two_groups(tmp_path: Path) -> None:
    """A group is known by cluster and name."""
    write_empty(tmp_path)
    rows = [group_row("g", 1, {"A": [0]}), group_row("g", 2, {"A": [0]}, cluster="d")]
    write_rows(tmp_path, "generations", rows)
    assert [g["cluster"] for g in latest_groups(str(tmp_path), "g")] == ["c", "d"]


def test_who_owns_what_is_as_fresh_as_the_log(tmp_path: Path) -> None:
    """Assignments of a group that moved on are computed from its row; the others come from the snapshot."""
    write_empty(tmp_path)
    old, still = group_row("g", 1, {"A": [0, 1]}), group_row("s", 1, {"S": [0]})
    counts = {("c", "t"): 2}
    snapshot = [row for group in (old, still) for row in assignment_rows(group, counts)]
    write_rows(tmp_path, "assignments", snapshot, batch_seq=1)
    write_rows(tmp_path, "groups", [as_snapshot(old), as_snapshot(still)], batch_seq=1)
    write_rows(tmp_path, "generations", [group_row("g", 2, {"A": [0], "B": [1]}), topic_row(2, 3)])
    assert owners_of(latest_assignments(str(tmp_path), "g")) == {0: "A", 1: "B", 2: None}
    assert owners_of(latest_assignments(str(tmp_path), "s")) == {0: "S", 1: None}


def test_a_topic_s_latest_count_comes_from_the_log(tmp_path: Path) -> None:
    """Partition counts follow the log behind the snapshot `topics`."""
    write_empty(tmp_path)
    write_rows(
        tmp_path, "topics", [{"cluster": "c", "topic": "t", "partition_count": 1, "log_seq": 1}], batch_seq=1
    )
    assert latest_topics(str(tmp_path)) == {("c", "t"): 1}
    write_rows(tmp_path, "generations", [topic_row(2, 5), topic_row(3, 4)])
    assert latest_topics(str(tmp_path)) == {("c", "t"): 4}


def test_an_alert_s_latest_change_comes_from_the_log(tmp_path: Path) -> None:
    """An alert that the snapshot shows firing is shown resolved once the log says so."""
    write_empty(tmp_path)
    write_rows(tmp_path, "alerts", [alert_change("g", "firing", 1)], batch_seq=1)
    assert [a["status"] for a in latest_alerts(str(tmp_path))] == ["firing"]
    write_rows(tmp_path, "generations", [group_row("g", 2, {}, alerts=[alert_struct("resolved")])])
    assert [a["status"] for a in latest_alerts(str(tmp_path), "g")] == ["resolved"]
    assert latest_alerts(str(tmp_path), "other") == []
    late = group_row("g", 3, {}, alerts=[alert_struct("pending")])
    write_rows(tmp_path, "generations", [late])
    assert [a["status"] for a in latest_alerts(str(tmp_path), "g")] == ["resolved"]


@given(
    owners=st.dictionaries(st.sampled_from("ABC"), st.sets(st.integers(0, 4)).map(sorted), max_size=3),
    expected=st.dictionaries(st.sampled_from("ABC"), st.sets(st.integers(0, 5)).map(sorted), max_size=3),
    count=st.integers(0, 6),
    protocol_type=st.sampled_from(["consumer", "share", "connect"]),
)
def test_both_ways_to_an_assignment_agree(
    owners: dict[str, list[int]], expected: dict[str, list[int]], count: int, protocol_type: str
) -> None:
    """The job's snapshot and the command line's own reading of a group's row give the same rows."""
    import pyarrow as pa

    entries = [{"member_id": m, "topic": "t", "partitions": ps} for m, ps in expected.items()]
    row = group_row("g", 1, owners, expected=entries, protocol_type=protocol_type)
    table = pa.Table.from_pylist([row], schema=GENERATIONS)
    topic = {"topic": "t", "topic_id": None, "partition_count": count, "partition_racks": None}
    unset = dict.fromkeys(("history", "recent_ids", "partition_loads", "loads_time"))
    state = topic_state_of({**topic, **unset}, None)
    theirs = job_assignment_rows(table, {"c": {"t": state}}).to_pylist()
    ours = pa.Table.from_pylist(
        list(assignment_rows(table.to_pylist()[0], {("c", "t"): count})), schema=ASSIGNMENTS
    ).to_pylist()
    assert ours == theirs


def test_job_and_console_mean_the_same_snapshot() -> None:
    """Both know the snapshots' position by the same application id."""
    assert SNAPSHOT_APP == job_log.SNAPSHOT_APP


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """A directory without tables is an error that names it and says what to do."""
    with pytest.raises(TablesError, match=r"groups.*--tables or --conf"):
        latest_groups(str(tmp_path))


@given(st.text())
def test_any_text_can_be_asked_for(text: str) -> None:
    """A quoted text is one SQL literal, whatever is in it."""
    assert quoted(text)[1:-1].replace("''", "").count("'") == 0


def test_a_hostile_group_name_is_only_a_name(tmp_path: Path) -> None:
    """A name with quotes finds the group of that name and no other."""
    name = "g' OR '1'='1"
    write_rows(
        tmp_path, "groups", [as_snapshot(group_row(n, 1, {"A": [0]})) for n in ("g", name)], batch_seq=1
    )
    write_rows(tmp_path, "generations", [])
    assert [g["group_id"] for g in latest_groups(str(tmp_path), name)] == [name]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    """read_table gives the columns and rows that were asked for, with the table's own types."""
    write_rows(tmp_path, "groups", [as_snapshot(group_row(n, 1, {"A": [0]})) for n in "gh"], batch_seq=1)
    table = read_table(str(tmp_path), "groups", ["version", "group_id"], "group_id = 'h'")
    assert table.schema.types == [GROUPS.field("version").type, GROUPS.field("group_id").type]
    assert table.to_pylist() == [{"version": 1, "group_id": "h"}]


def test_moves_name_giver_and_taker_once() -> None:
    """A partition that came from one member to another is told once, not as lost and as assigned."""
    both = {"topic": "t", "partition": 1, "from_member_id": "A", "to_member_id": "B"}
    first = {"topic": "t", "partition": 2, "from_member_id": None, "to_member_id": "B"}
    row = {
        "deltas": [
            {**both, "change": "lost"},
            {**both, "change": "assigned"},
            {**first, "change": "assigned"},
            {**both, "partition": 3, "change": "revoked", "to_member_id": None},
        ]
    }
    assert moves_text(row) == "t(1) A -> B; t(2) to B; t(3) A yields"
    promised = {**both, "change": "revoked"}
    assert moves_text({"deltas": [promised]}) == "t(1) A yields to B"
    assert moves_text({"deltas": None}) == "nothing"


def test_connectors_are_written_without_a_partition() -> None:
    """The connector itself is its name, its tasks are numbers behind it."""
    assert places_text([("c", -1), ("c", 0), ("d", -1)]) == "c(0), d"


def picture_of(*columns: dict[int, str | None]) -> str:
    """Draw one topic, each argument a generation: partition -> owner."""
    generations = [
        Generation(
            label=str(i), owners={("t<1>", p): owner for p, owner in column.items()}, names={"A": "a & b"}
        )
        for i, column in enumerate(columns)
    ]
    return draw_generations("Who & what", generations)


def test_the_picture_is_an_accessible_svg() -> None:
    """The picture parses, has title and description, and names escaped members in its legend."""
    svg = ElementTree.fromstring(picture_of({0: "A", 1: "B"}, {0: "B", 1: None}))  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    assert svg.findtext(f"{space}title") == "Who & what"
    assert svg.findtext(f"{space}desc") == (
        "2 partitions over 2 generations, owned by a & b, B; 1 times a partition came to another owner."
    )
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert {"a & b", "B", "t<1> 0", "nobody owns it"} <= set(texts)


def test_a_move_is_a_change_of_colour() -> None:
    """A partition keeps its colour with its owner, changes it with the owner, is hatched with none."""
    svg = ElementTree.fromstring(picture_of({0: "A"}, {0: "A"}, {0: None}, {0: "B"}))  # noqa: S314 - our own text
    cells = [r for r in svg.iter("{http://www.w3.org/2000/svg}rect") if r.get("height") == "20"]
    first, second, nobody, last = (cell.get("fill") for cell in cells)
    assert first == second != last
    assert nobody == "url(#nobody)"


def test_the_picture_depends_on_nothing_but_its_rows() -> None:
    """The order of a column's partitions changes nothing, and only the last columns are drawn."""
    assert picture_of({0: "A", 1: "B"}) == picture_of({1: "B", 0: "A"})
    assert draw_generations("t", []).count("<rect") == 2
    many = picture_of(*[{0: "A"}] * (MOST_COLUMNS + 5))
    assert many.count('height="20"') == MOST_COLUMNS


def test_a_partition_that_lost_its_owner_stays_in_the_picture() -> None:
    """While its topic is subscribed, a partition that was owned once is drawn as owned by nobody."""
    rows = [group_row("g", 1, {"A": [0, 1]}), group_row("g", 2, {"A": [0]})]
    older, newer = generations_of(rows)
    assert older.owners == {("t", 0): "A", ("t", 1): "A"}
    assert newer.owners == {("t", 0): "A", ("t", 1): None}
