"""`counterpoise place` and `counterpoise keys`: Kafka's answers from the command line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from assignors.partitioners import KEY_PARTITIONERS, partition_by_java_hash, partition_by_murmur2
from assignors.replicas import Broker, place_striped
from console import key_lines
from console.cli import app
from console.errors import UsageError
from console.key_lines import key_bytes, read_columns
from console.keys import HASHES, get_partitioner, spread_keys

ROOT = Path(__file__).resolve().parent.parent
installed = cache(packages_distributions)
FAST = settings(max_examples=60, deadline=None)
SIX_IN_RACKS = "0:rack1,1:rack3,2:rack3,3:rack2,4:rack2,5:rack1"


@pytest.fixture(autouse=True)
def _installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read what is installed once for all tests: it takes longer than the commands."""
    monkeypatch.setattr("console.cli.packages_distributions", installed)


def counterpoise(*arguments: str, stdin: bytes | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)


def answer(*arguments: str, stdin: bytes | None = None) -> Any:
    """Run the command with --json and read what it answers."""
    finished = counterpoise(*arguments, "--json", stdin=stdin)
    assert finished.exit_code == 0, finished.stderr
    return json.loads(finished.stdout)


def place(brokers: str, partitions: int, replication_factor: int, *more: str) -> list[str]:
    """Give the command that places partitions."""
    counts = ["--partitions", str(partitions), "--replication-factor", str(replication_factor)]
    return ["place", "--brokers", brokers, *counts, *more]


def replicas(*command: str) -> dict[int, list[int]]:
    """Give each partition's brokers as the command answers."""
    return {row["partition"]: row["replicas"] for row in answer(*command)["partitions"]}


def test_five_brokers_ten_partitions_three_replicas() -> None:
    """The worked example without racks: after a round the followers move one on."""
    placed = replicas(*place("0,1,2,3,4", 10, 3))
    expected = "0,1,2 1,2,3 2,3,4 3,4,0 4,0,1 0,2,3 1,3,4 2,4,0 3,0,1 4,1,2"
    assert [",".join(map(str, brokers)) for brokers in placed.values()] == expected.split()
    assert list(placed) == list(range(10))


def test_six_brokers_in_three_racks() -> None:
    """The worked example with racks: each partition has a replica in each of them, as the table says."""
    answered = answer(*place(SIX_IN_RACKS, 7, 3))
    expected = "0,3,1 3,1,5 1,5,4 5,4,2 4,2,0 2,0,3 0,4,2"
    rows = answered["partitions"]
    assert [",".join(map(str, row["replicas"])) for row in rows] == expected.split()
    assert rows[1]["racks"] == ["rack2", "rack3", "rack1"]
    assert answered["brokers"][0] == {"broker": 0, "rack": "rack1", "leaders": 2, "replicas": 4}
    assert sum(broker["leaders"] for broker in answered["brokers"]) == 7
    assert sum(broker["replicas"] for broker in answered["brokers"]) == 21


def test_added_partitions_continue_the_circle() -> None:
    """--start-partition-id places what ten at once would have placed there."""
    whole = replicas(*place("0,1,2,3,4", 10, 3))
    added = replicas(*place("0,1,2,3,4", 2, 3, "--start-partition-id", "3"))
    assert added == {3: whole[3], 4: whole[4]}


def test_start_index_and_shift_turn_the_circle() -> None:
    """The first leader stands at the index, its follower one place and the shift behind it."""
    assert replicas(*place("0,1,2,3,4", 1, 2, "--start-index", "2", "--shift", "1")) == {0: [2, 4]}


def test_rack_unaware_leaves_racks_out() -> None:
    """Known racks, even of some brokers only, decide nothing then."""
    bare = replicas(*place("0,1,2", 6, 2))
    assert replicas(*place("0:a,1:a,2", 6, 2, "--rack-unaware")) == bare


def test_striped_is_the_controllers_answer_for_a_seed() -> None:
    """The answer is that of the parity-tested placer; the first new partition only names them."""
    brokers = [Broker(broker_id=i, rack="ab"[i % 2]) for i in range(4)]
    expected = place_striped(brokers, partitions=6, replication_factor=3, seed=42)
    command = place("0:a,1:b,2:a,3:b", 6, 3, "--striped", "--seed", "42", "--start-partition-id", "10")
    assert replicas(*command) == {10 + i: list(placed) for i, placed in enumerate(expected)}


def test_placement_is_shown_as_two_tables() -> None:
    """People see partitions with replicas and racks, then what each broker leads and holds."""
    shown = counterpoise(*place("0:[red]x,1:b", 2, 2)).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["0", "0,", "1", "[red]x,", "b"] in lines
    assert ["0", "[red]x", "1", "2"] in lines


def test_a_long_table_ends_with_what_it_left_out() -> None:
    """A thousand partitions are listed, the others counted; --json has all."""
    shown = counterpoise(*place("0", 1003, 1)).stdout
    assert "3 more partitions; --json lists all" in shown
    assert len(replicas(*place("0", 1003, 1))) == 1003


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (place("0,1", 0, 1), "--partitions is 0; it must be 1 to 1000000"),
        (place("0,1", -3, 1), "--partitions is -3"),
        (place("0,1", 10**7, 1), "--partitions is 10000000"),
        (place("0,1", 1, 0), "replication factor is 0; it must be 1 or more"),
        (place("0,1", 1, -2), "replication factor is -2"),
        (place("0,1", 1, 3), "replication factor is 3; there are only 2 brokers"),
        (place("0:a,1,2", 1, 1), "brokers [1, 2] have no rack"),
        (place("0:a,1,2", 1, 1, "--striped", "--seed", "1"), "brokers [1, 2] have no rack"),
        (place("0,1", 0, 1, "--striped", "--seed", "1"), "--partitions is 0"),
        (place("0,1", 1, 3, "--striped", "--seed", "1"), "replication factor is 3"),
        (place("0,1", 1, 1, "--start-index", "-1"), "--start-index is -1; it must be 0 or more"),
        (place("0,1", 1, 1, "--shift", "-4"), "--shift is -4"),
        (place("0,1", 1, 1, "--start-partition-id", "-2"), "--start-partition-id is -2"),
        (place("0,1,0", 1, 1), "broker 0 is listed twice"),
        (place("0,x", 1, 1), "'x' has no broker id"),
        (place("0,-1", 1, 1), "'-1' has no broker id"),
        (place("2147483648", 1, 1), "'2147483648' has no broker id"),
        (place("", 1, 1), "'' has no broker id"),
        (place("0:,1:b", 1, 1), "'0:' has an empty rack"),
        (place("0,1", 1, 1, "--striped"), "--striped and --seed go together"),
        (place("0,1", 1, 1, "--seed", "1"), "--striped and --seed go together"),
        (place("0,1", 1, 1, "--striped", "--seed", "1", "--shift", "1"), "--striped takes no"),
    ],
)
def test_impossible_placements_end_with_2(command: list[str], said: str) -> None:
    """Each error is a line on stderr that says the value found; nothing goes to stdout."""
    finished = counterpoise(*command)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert said in finished.stderr


column_of = {
    "murmur2": partition_by_murmur2,
    "murmur2-0.8": partition_by_murmur2,
    "java-hash": lambda key, count: partition_by_java_hash(key.decode(), count),
    **KEY_PARTITIONERS,
}
"""Name -> the partition of one key, which the column must give too."""


def column_partitions(name: str, keys: list[bytes], count: int) -> list[int]:
    """Give a column's partitions, the column being a slice that starts behind another key."""
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    (partitions,) = get_partitioner(name)(column, [count])
    return list(partitions.tolist())


def test_every_partitioner_is_compared() -> None:
    """The two tests below leave none out."""
    assert set(column_of) == set(HASHES)


@pytest.mark.parametrize("name", sorted(set(HASHES) - {"java-hash"}))
@FAST
@given(keys=st.lists(st.binary(max_size=23), max_size=30), count=st.integers(1, 50))
def test_a_column_goes_where_its_keys_go(name: str, keys: list[bytes], count: int) -> None:
    """Hashed as one Arrow column or one by one, each key has the same partition."""
    assert column_partitions(name, keys, count) == [column_of[name](key, count) for key in keys]


@FAST
@given(texts=st.lists(st.text(max_size=9), max_size=20), count=st.integers(1, 50))
def test_texts_go_where_javas_strings_went(texts: list[str], count: int) -> None:
    """`java-hash` takes UTF-16 units, for ASCII and for what needs surrogates."""
    keys = [text.encode() for text in texts]
    assert column_partitions("java-hash", keys, count) == [partition_by_java_hash(t, count) for t in texts]


def test_keys_go_where_kafkas_producer_sends_them() -> None:
    """Kafka's own hashes of these keys, with the sign masked away: the 0.8 variant gives the same."""
    for name in ("murmur2", "murmur2-0.8"):
        found = answer("keys", "--partitions", "100", "--partitioner", name, "21", "foobar", "abc")
        assert [key["key"] for key in found["keys"]] == ["21", "foobar", "abc"]
        hashes = (-973932308, -790332482, 479470107)
        assert [key["partition"] for key in found["keys"]] == [(h & 0x7FFFFFFF) % 100 for h in hashes]


def test_one_key_goes_elsewhere_by_other_clients_hashes() -> None:
    """The published values of "foobar" by FNV-1a and CRC-32, of "hello" by murmur3."""
    for name, key, hashed in [
        ("fnv1a", "foobar", 2**32 - 0xBF9CF968),
        ("crc32", "foobar", 0x9EF61F95),
        ("murmur3", "hello", 0x248BFA47),
        ("java-hash", "foobar", -1268878963 & 0x7FFFFFFF),
    ]:
        (found,) = answer("keys", "--partitions", "1000", "--partitioner", name, key)["keys"]
        assert found == {"key": key, "partition": hashed % 1000}


def test_hex_and_bytes_that_are_no_text_are_keys_too() -> None:
    """--hex names the bytes; an argument that is no UTF-8 is hashed as the bytes it was."""
    found = answer("keys", "--partitions", "999", "--hex", "616263", "ff00")
    expected = [partition_by_murmur2(key, 999) for key in (b"abc", b"\xff\x00")]
    assert [key["partition"] for key in found["keys"]] == expected
    assert key_bytes("\udcff", "KEY", is_hex=False) == b"\xff"


def test_keys_with_another_count_say_which_move() -> None:
    """--to gives each key's partition then, and the share of keys that change."""
    found = answer("keys", "--partitions", "6", "--to", "8", "a", "b", "c", "d")
    expected = [
        (partition_by_murmur2(key, 6), partition_by_murmur2(key, 8)) for key in (b"a", b"b", b"c", b"d")
    ]
    assert [(key["partition"], key["to_partition"]) for key in found["keys"]] == expected
    moved = sum(before != after for before, after in expected)
    assert (found["to"], found["moved"], found["moved_share"]) == (8, moved, moved / 4)


def test_a_file_spreads(tmp_path: Path) -> None:
    """Count by partition, least, most and most over mean; lines may end as on Windows, the last unended."""
    file = tmp_path / "keys.txt"
    keys = [f"user-{i}".encode() for i in range(1000)]
    file.write_bytes(b"\r\n".join(keys))
    found = answer("keys", "--partitions", "7", "--to", "9", "--file", str(file))
    counted = Counter(partition_by_murmur2(key, 7) for key in keys)
    assert found["counts"] == [counted[partition] for partition in range(7)]
    assert (found["min"], found["max"]) == (min(counted.values()), max(counted.values()))
    assert found["ratio"] == max(counted.values()) / (1000 / 7)
    assert (found["keys"], found["keyless"], found["to"]["partitions"]) == (1000, 0, 9)
    assert found["moved"] == sum(partition_by_murmur2(k, 7) != partition_by_murmur2(k, 9) for k in keys)
    assert found["moved_share"] == found["moved"] / 1000


@FAST
@given(
    keys=st.lists(
        st.binary(max_size=9).filter(lambda k: b"\n" not in k and not k.endswith(b"\r")), max_size=20
    ),
    block_bytes=st.integers(1, 40),
    ending=st.sampled_from([b"\n", b"\r\n"]),
)
def test_blocks_lose_no_key(keys: list[bytes], block_bytes: int, ending: bytes) -> None:
    """Wherever a block ends, within a key or a line's ending, the keys are those of the lines."""
    lines = b"".join(key + ending for key in keys)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_lines, "BLOCK_BYTES", block_bytes)
        read = [key for column in read_columns(io.BytesIO(lines), "-") for key in column.to_pylist()]
    assert read == keys


def test_many_blocks_are_one_file() -> None:
    """A spread over several blocks is that of all keys."""
    keys = [str(i).encode() for i in range(700_000)]
    lines = b"\n".join(keys) + b"\n"
    assert len(lines) > key_lines.BLOCK_BYTES
    spread = spread_keys(read_columns(io.BytesIO(lines), "-"), get_partitioner("crc32"), [16])
    assert (spread.keys, int(spread.counts[0].sum()), spread.moved) == (700_000, 700_000, None)
    tenth = Counter(KEY_PARTITIONERS["crc32"](key, 16) for key in keys)
    assert spread.counts[0].tolist() == [tenth[partition] for partition in range(16)]


def test_json_lines_name_their_key() -> None:
    """--field takes the key from each object; a null is a record without a key, counted apart."""
    lines = b'{"id": "abc", "n": 1}\n{"id": null}\n{"id": "\\u00e9"}\n'
    found = answer("keys", "--partitions", "5", "--file", "-", "--field", "id", stdin=lines)
    expected = Counter(partition_by_murmur2(key, 5) for key in (b"abc", "é".encode()))
    assert (found["keys"], found["keyless"]) == (2, 1)
    assert found["counts"] == [expected[partition] for partition in range(5)]


def test_hex_lines_are_bytes() -> None:
    """--hex with a file reads each line, or each field, as hex."""
    expected = [int(partition_by_murmur2(b"\xff", 4) == partition) for partition in range(4)]
    for lines, field in ((b"ff\n", []), (b'{"k": "FF"}\n', ["--field", "k"])):
        found = answer("keys", "--partitions", "4", "--file", "-", "--hex", *field, stdin=lines)
        assert found["counts"] == expected


def test_an_empty_line_is_an_empty_key_and_an_empty_file_has_none() -> None:
    """Nothing is skipped in silence; shares of nothing are null and shown as a dash."""
    assert answer("keys", "--partitions", "3", "--file", "-", stdin=b"\n\n")["keys"] == 2
    none = answer("keys", "--partitions", "3", "--to", "4", "--file", "-", stdin=b"")
    assert (none["keys"], none["counts"], none["ratio"], none["moved_share"]) == (0, [0, 0, 0], None, None)
    shown = counterpoise("keys", "--partitions", "3", "--file", "-", stdin=b"").stdout
    assert "0 keys over 3 partitions: min 0, max 0, max / mean -" in shown


def test_tables_for_people() -> None:
    """Single keys, a spread and a changed count are laid out with the numbers that --json gives."""
    single = counterpoise("keys", "--partitions", "1", "--to", "1", "[b]k").stdout
    assert ["[b]k", "0", "0"] in [line.split() for line in single.splitlines()]
    assert "0 of 1 keys move (0.00 %)" in single
    lines = b'{"k": "a"}\n{"k": null}\n'
    spread = counterpoise("keys", "--partitions", "1", "--file", "-", "--field", "k", stdin=lines).stdout
    assert ["0", "1", "100.00", "%"] in [line.split() for line in spread.splitlines()]
    assert "1 records have no key" in spread
    grown = counterpoise("keys", "--partitions", "1", "--to", "2", "--file", "-", stdin=b"abc\n").stdout
    assert ["1", "-", str(partition_by_murmur2(b"abc", 2))] in [line.split() for line in grown.splitlines()]


def key_file(lines: bytes, *more: str) -> tuple[list[str], bytes]:
    """Give the command that reads these lines."""
    return ["keys", "--partitions", "4", "--file", "-", *more], lines


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((["keys", "--partitions", "0", "k"], b""), "--partitions is 0; it must be 1 to 1000000"),
        ((["keys", "--partitions", "2", "--to", "-1", "k"], b""), "--to is -1"),
        ((["keys", "--partitions", "2"], b""), "either KEYs or --file"),
        ((["keys", "--partitions", "2", "--file", "-", "k"], b""), "either KEYs or --file"),
        ((["keys", "--partitions", "2", "--field", "id", "k"], b""), "--field id"),
        ((["keys", "--partitions", "2", "--file", "nowhere.txt"], b""), "nowhere.txt: No such file"),
        ((["keys", "--partitions", "2", "--file", "tests"], b""), "tests: Is a directory"),
        ((["keys", "--partitions", "2", "--hex", "0xff"], b""), "KEY: '0xff' is no hex"),
        (
            (["keys", "--partitions", "2", "--partitioner", "murmur", "k"], b""),
            "unknown partitioner 'murmur'",
        ),
        (
            (["keys", "--partitions", "2", "--partitioner", "java-hash", "--hex", "ff"], b""),
            "key b'\\xff' is no UTF-8",
        ),
        (key_file(b"61\nxy\n", "--hex"), "-:2: 'xy' is no hex"),
        (key_file(b'{"k": "a"}\n{\n', "--field", "k"), "-:2: not JSON"),
        (key_file(b"[]\n", "--field", "k"), "-:1: the line is a list"),
        (key_file(b'{"b": 1, "a": 2}\n', "--field", "k"), "-:1: there is no field 'k'; there are: 'a', 'b'"),
        (key_file(b'{"k": 7}\n', "--field", "k"), "-:1: k is 7; it must be a text"),
    ],
)
def test_keys_that_cannot_be_read_end_with_2(command: tuple[list[str], bytes], said: str) -> None:
    """Each error is a line on stderr that says where and what was found; nothing goes to stdout."""
    arguments, stdin = command
    finished = counterpoise(*arguments, stdin=stdin)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert said in finished.stderr


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have to be held whole; the error names its line."""
    monkeypatch.setattr(key_lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(key_lines, "LONGEST_LINE_BYTES", 20)
    with pytest.raises(UsageError, match=r"keys\.txt:2: the line has over 20 bytes"):
        list(read_columns(io.BytesIO(b"short\n" + b"x" * 50), "keys.txt"))


PLUGIN = """
import numpy as np

def by_length(key, count):
    return len(key) % count

def beyond(key, count):
    return count

def negative(key, count):
    return -1

def half(key, count):
    return 0.5

def truth(key, count):
    return True

def column(key, count):
    return np.array([0, 1])

def numpys(key, count):
    return np.int32(count - 1)

def broken(key, count):
    raise KeyError("gone")

number = 7
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the name of an importable module of partitioners."""
    (tmp_path / "users_partitioners.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "users_mistake.py").write_text("def (", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_partitioners", raising=False)
    return "users_partitioners"


def test_a_partitioner_of_ones_own_is_asked(plugin: str) -> None:
    """It gets the key's bytes and each partition count."""
    found = answer(
        "keys", "--partitions", "2", "--to", "3", "--partitioner", f"{plugin}:by_length", "ä", "abc"
    )
    assert [(key["partition"], key["to_partition"]) for key in found["keys"]] == [(0, 2), (1, 0)]


def test_a_partitioner_may_give_numpys_integers(plugin: str) -> None:
    """A partition is any integer, not Python's own only."""
    found = answer("keys", "--partitions", "5", "--partitioner", f"{plugin}:numpys", "k")
    assert found["keys"] == [{"key": "k", "partition": 4}]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("beyond", "key b'k' with 2 partitions gave 2; it must be a partition from 0 to 1"),
        ("negative", "gave -1"),
        ("half", "gave 0.5"),
        ("truth", "gave True"),
        ("column", "gave array([0, 1])"),
        ("broken", "key b'k' with 2 partitions raised KeyError: 'gone'"),
        ("number", "is a int; it must be a function"),
        ("missing", "cannot be imported: AttributeError"),
        ("", "it must have the form 'package.module:function'"),
    ],
)
def test_a_partitioner_that_cheats_is_named(plugin: str, function: str, said: str) -> None:
    """The error names the partitioner, the key and what it gave; exit code 2, no traceback."""
    finished = counterpoise("keys", "--partitions", "2", "--partitioner", f"{plugin}:{function}", "k")
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert f"'{plugin}:{function}'" in finished.stderr
    assert said in finished.stderr


@pytest.mark.parametrize("module", ["users_mistake", "no_such_module"])
def test_a_module_that_cannot_be_imported_is_named(plugin: str, module: str) -> None:
    """Whatever it raises while it is imported."""
    finished = counterpoise("keys", "--partitions", "2", "--partitioner", f"{module}:f", "k")
    assert finished.exit_code == 2
    assert f"'{module}:f' cannot be imported" in finished.stderr


@pytest.mark.parametrize("command", ["place", "keys"])
def test_help_is_there(command: str) -> None:
    """--help ends with 0 and goes to stdout."""
    finished = counterpoise(command, "--help")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert "--partitions" in finished.stdout


def test_the_two_commands_bring_no_spark_and_no_delta() -> None:
    """They answer at once: neither Spark nor the tables' readers are imported."""
    script = (
        "import sys, console.keys, console.placement\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'deltalake', 'pandas'}))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == ""
