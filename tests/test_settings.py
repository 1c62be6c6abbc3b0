"""Settings: every one has a default, later layers win, and what is wrong is said in one go."""

from __future__ import annotations

import pickle
import re
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.settings import DEMO_FILE, Settings, SettingsError, load_settings
from console.description import tables_of

CLUSTERS = "".join(
    f'[clusters.{name}.kafka]\n"bootstrap.servers" = "{name}:9092"\n' for name in ("east", "west")
)
KAFKA = CLUSTERS + '[[sources]]\nname = "k"\nformat = "offsets"\nfrom = "kafka"\ncluster = "west"\n'
SOURCE = '[[sources]]\nname = "a"\nformat = "events"\nfrom = "files"\npath = "p"\n'


def load_text(directory: Path, text: str) -> Settings:
    """Load a text as the settings file prod.toml."""
    file = directory / "prod.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, {}, {})


def problems_of(directory: Path, text: str) -> tuple[str, ...]:
    """List what is wrong with a text as the settings file prod.toml."""
    with pytest.raises(SettingsError) as caught:
        load_text(directory, text)
    return tuple(line.removeprefix(f"{directory}/") for line in caught.value.problems)


def test_defaults_alone_are_complete() -> None:
    """Without a file, every section is there, and no source is invented."""
    loaded = load_settings(None, {}, {})
    assert loaded.sources == ()
    assert loaded.groups.assignors == ("cooperative-sticky",)
    assert loaded.alerts.rules()["UnassignedPartitions"].for_s == 360


def test_file_then_environment_then_command_line(tmp_path: Path) -> None:
    """The environment wins over the file, and the command line over both."""
    file = tmp_path / "prod.toml"
    file.write_text('[job]\ncluster = "file"\ntables = "file"\n[batch]\nshards = 3\n', encoding="utf-8")
    environ = {"COUNTERPOISE_JOB__CLUSTER": "environment", "COUNTERPOISE_BATCH__SHARDS": "4"}
    loaded = load_settings(file, environ, {"batch.shards": "5"})
    assert (loaded.job.tables, loaded.job.cluster, loaded.batch.shards) == ("file", "environment", 5)


def test_a_file_overrides_single_keys_of_a_section(tmp_path: Path) -> None:
    """A section in a file keeps the defaults of the keys that it does not name."""
    loaded = load_text(tmp_path, '[alerts.GroupEmpty]\nseverity = "info"\n')
    rule = loaded.alerts.rules()["GroupEmpty"]
    assert (rule.severity, rule.for_s) == ("info", 600)


def test_environment_may_be_upper_case_everywhere() -> None:
    """Names of rules, sources and keys are found in any case."""
    loaded = load_settings(None, {"COUNTERPOISE_ALERTS__GROUPEMPTY__FOR_S": "5"}, {})
    assert loaded.alerts.group_empty.for_s == 5


def test_variables_that_are_no_settings_are_left_alone() -> None:
    """Kubernetes' own variables for a service called counterpoise stop nothing."""
    environ = {"COUNTERPOISE_SERVICE_HOST": "10.0.0.1", "COUNTERPOISE_CRASH_AT": "x", "HOME": "/"}
    assert load_settings(None, environ, {}) == load_settings(None, {}, {})


def test_a_source_is_overridden_by_its_name(tmp_path: Path) -> None:
    """sources.NAME.key reaches one source, from the environment too."""
    file = tmp_path / "prod.toml"
    file.write_text(SOURCE + SOURCE.replace('"a"', '"b"'), encoding="utf-8")
    loaded = load_settings(file, {"COUNTERPOISE_SOURCES__A__PATH": "env"}, {"sources.b.path": "option"})
    assert [source.path for source in loaded.sources] == ["env", "option"]


def test_a_source_belongs_to_the_job_s_cluster_unless_it_says_so(tmp_path: Path) -> None:
    """The cluster of a source without one is job.cluster."""
    text = '[job]\ncluster = "east"\n' + SOURCE + SOURCE.replace('"a"', '"b"\ncluster = "west"')
    assert [source.cluster for source in load_text(tmp_path, text).sources] == ["east", "west"]


def test_lists_and_tables_as_text() -> None:
    """Lists are TOML or separated by commas; a table of names takes an inline table or one name."""
    loaded = load_settings(
        None,
        {"COUNTERPOISE_SPARK__OPTIONS": '{spark.a.b = true, "spark.c" = "x"}'},
        {
            "groups.assignors": "range, sticky",
            "spark.packages": "[]",
            "groups.plugins.mine": "my.module:give",
        },
    )
    assert loaded.groups.assignors == ("range", "sticky")
    assert loaded.spark.packages == ()
    assert loaded.groups.plugins == {"mine": "my.module:give"}
    assert loaded.spark.option_values() == {"spark.a.b": "true", "spark.c": "x"}


def test_spark_options_may_be_written_without_quotes(tmp_path: Path) -> None:
    """Dotted names that TOML reads as nested tables become one option, numbers become text."""
    loaded = load_text(tmp_path, "[spark.options]\nspark.sql.shuffle.partitions = 4\n")
    overridden = load_settings(
        tmp_path / "prod.toml", {}, {"spark.options.spark.sql.shuffle.partitions": "9"}
    )
    assert loaded.spark.option_values() == {"spark.sql.shuffle.partitions": "4"}
    assert overridden.spark.option_values() == {"spark.sql.shuffle.partitions": "9"}


def clear_options(settings: Settings, cluster: str) -> dict[str, str]:
    """Give a cluster's Kafka options in clear."""
    return {name: value.get_secret_value() for name, value in settings.clusters[cluster].kafka.items()}


def test_a_cluster_s_options_are_laid_over_one_another(tmp_path: Path) -> None:
    """Each option of a cluster can be set in the file, the environment (with __ for dots) and --set."""
    file = tmp_path / "prod.toml"
    file.write_text(
        "[clusters.prod.kafka]\nbootstrap.servers = 'file'\nsecurity.protocol = 'file'\nclient.id = 1\n"
        "[clusters.prod]\nmetadata_interval_s = 5\n",
        encoding="utf-8",
    )
    environ = {
        "COUNTERPOISE_CLUSTERS__PROD__KAFKA__SECURITY__PROTOCOL": "environment",
        "COUNTERPOISE_CLUSTERS__PROD__KAFKA__SASL__JAAS__CONFIG": "environment",
        "COUNTERPOISE_CLUSTERS__PROD__METADATA_INTERVAL_S": "7",
    }
    overrides = {
        "clusters.prod.kafka.sasl.jaas.config": "option",
        "clusters.prod.admin": '{ssl.ca.location = "option"}',
    }
    loaded = load_settings(file, environ, overrides)
    assert clear_options(loaded, "prod") == {
        "bootstrap.servers": "file",
        "security.protocol": "environment",
        "sasl.jaas.config": "option",
        "client.id": "1",
    }
    assert loaded.clusters["prod"].admin["ssl.ca.location"].get_secret_value() == "option"
    assert loaded.clusters["prod"].metadata_interval_s == 7


def test_a_cluster_may_be_known_from_the_environment_alone() -> None:
    """A container without a file has its clusters too; their names are lower case then."""
    environ = {"COUNTERPOISE_CLUSTERS__EAST__KAFKA__BOOTSTRAP__SERVERS": "b:9092"}
    loaded = load_settings(None, environ, {"clusters.West.kafka": '{"bootstrap.servers" = "c:9092"}'})
    assert loaded.clusters.keys() == {"east", "West"}
    assert clear_options(loaded, "east") == {"bootstrap.servers": "b:9092"}
    assert clear_options(loaded, "West") == {"bootstrap.servers": "c:9092"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[job]\ntabels = 1\n",
            "prod.toml: job.tabels is unknown; did you mean job.tables? "
            "known: tables, checkpoint_location, cluster, trigger_interval_s, tick_interval_s, lease_s",
        ),
        (
            "[job]\nshards = 1\n",
            "prod.toml: job.shards is unknown; did you mean batch.shards? "
            "known: tables, checkpoint_location, cluster, trigger_interval_s, tick_interval_s, lease_s",
        ),
        (
            "[alerts.GroupEmpty]\nfor_s = -5\n",
            "prod.toml: alerts.GroupEmpty.for_s is -5; it must be a number, 0 or more",
        ),
        ("[batch]\nshards = 0\n", "prod.toml: batch.shards is 0; it must be a whole number, 1 or more"),
        ("[batch]\nshards = true\n", "prod.toml: batch.shards is True; it must be a whole number, 1 or more"),
        ('[checks]\nenabled = "no"\n', "prod.toml: checks.enabled is 'no'; it must be true or false"),
        (
            '[groups]\nrevocation_timeout_action = "wait"\n',
            "prod.toml: groups.revocation_timeout_action is 'wait'; it must be one of 'reassign', 'remove'",
        ),
        (
            '[groups]\nassignors = ["range", 3]\n',
            "prod.toml: groups.assignors[1] is 3; it must be a text that is not empty",
        ),
        (
            '[groups.plugins]\nmine = "module.function"\n',
            "prod.toml: groups.plugins.mine is 'module.function'; it must be a text like "
            "'package.module:function'",
        ),
        (
            '[groups.plugins]\nrange = "module:function"\n',
            "prod.toml: groups.plugins has the name 'range', which is Kafka's own; "
            "give your assignor another",
        ),
        (
            '[spark.options]\nmaster = "x"\n',
            "prod.toml: spark.options.master has a name that does not fit; "
            "it must be a name that begins with 'spark.'",
        ),
        (
            SOURCE.replace('"events"', '"evnts"'),
            "prod.toml: sources.a.format is 'evnts'; it must be one of 'events', 'offsets'",
        ),
        (
            SOURCE.replace('path = "p"', ""),
            "prod.toml: sources.a has no path; a source from 'files' needs one that is not empty",
        ),
        (
            SOURCE.replace('"files"', '"kafka"'),
            "prod.toml: sources.a has path, which no source from 'kafka' has; leave it out",
        ),
        (
            SOURCE + 'topic = "t"\n',
            "prod.toml: sources.a has topic, which no source from 'files' has; leave it out",
        ),
        (
            KAFKA.replace("offsets", "events"),
            "prod.toml: sources.k has no topic; a source of events from 'kafka' needs one",
        ),
        (
            KAFKA + 'starting = "yesterday"\n',
            "prod.toml: sources.k.starting is 'yesterday'; it must be 'earliest', 'latest' or an RFC 3339 "
            "time with offset such as '2026-01-31T12:00:00Z'",
        ),
        (
            KAFKA.replace('cluster = "west"', 'cluster = "south"'),
            "prod.toml: sources has 'k' of cluster 'south', which has no section [clusters.south.kafka]; "
            "known: 'east', 'west'",
        ),
        (
            KAFKA
            + KAFKA.partition("[[")[1]
            + KAFKA.partition("[[")[2].replace("west", "east").replace("k", "l", 1),
            "prod.toml: sources has the Kafka clusters 'east', 'west', each of which needs its own tables "
            "and checkpoint; put {cluster} into job.tables and job.checkpoint_location, e.g. "
            "'data/{cluster}/tables' and 'data/{cluster}/checkpoint'",
        ),
        (
            SOURCE + SOURCE,
            "prod.toml: sources has the name 'a' twice; it is part of each record's position, "
            "so give each its own",
        ),
        (
            '[job]\ntables = "t"\ncheckpoint_location = "t/c"\n',
            "prod.toml: job has checkpoint_location 't/c' inside tables 't'; keep them apart",
        ),
        (
            "[clusters.prod]\nmetadata_interval_s = 1\n",
            "prod.toml: clusters.prod.kafka is missing; it must be a table of names, each a text",
        ),
        (
            '[clusters.prod]\nkafka = "hunter2"\n',
            "prod.toml: clusters.prod.kafka is '***'; it must be a table of names, each a text",
        ),
        (
            '[clusters]\nprod = "hunter2"\n',
            "prod.toml: clusters.prod is '***'; it must be a section with the keys kafka, admin, "
            "metadata_interval_s",
        ),
        (
            'clusters = "hunter2"\n',
            "prod.toml: clusters is '***'; it must be a table of names, each a section with the keys kafka, "
            "admin, metadata_interval_s",
        ),
        (
            '[clusters."a.b".kafka]\nbootstrap.servers = "b"\n',
            "prod.toml: clusters.a.b has a name that does not fit; it must be a name of letters, digits, '-' "
            "and '_' that begins with a letter or digit",
        ),
        (
            '[clusters.prod]\nkafak = {"sasl.password" = "hunter2"}\nkafka.bootstrap.servers = "b"\n',
            "prod.toml: clusters.prod.kafak is unknown; did you mean clusters.prod.kafka? "
            "known: kafka, admin, metadata_interval_s",
        ),
        (
            "log = 3\n",
            "prod.toml: log is 3; it must be a section with the keys level, format, jvm_output",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    """An error names the file, the key, the value, and what is allowed."""
    assert problems_of(tmp_path, text) == (problem,)


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (
            "batch.shards",
            "many",
            "--set batch.shards: batch.shards is 'many'; it must be a whole number, 1 or more",
        ),
        ("job", "x", "--set job: job is a section; set its keys one by one"),
        (
            "clusters.prd.kafka.sasl.jaas.config",
            "hunter2",
            "--set clusters.prd.kafka.sasl.jaas.config: clusters.prd.kafka has no 'bootstrap.servers'; "
            "give the brokers as 'host:port,host:port'",
        ),
        (
            "clusters.prd",
            "hunter2",
            "--set clusters.prd: clusters.prd is a section; set its keys one by one",
        ),
        ("clusters", "hunter2", "--set clusters: clusters is a section; set its keys one by one"),
        (
            "clusters.prd.kafka",
            "{hunter2",
            "--set clusters.prd.kafka: clusters.prd.kafka is '***'; it must be a table of names, each a text",
        ),
        (
            "clusters.prd.kafak.x",
            "hunter2",
            "--set clusters.prd.kafak.x: clusters.prd.kafak is unknown; did you mean clusters.prd.kafka? "
            "known: kafka, admin, metadata_interval_s",
        ),
        ("log.level.x", "x", "--set log.level.x: log.level is one value; nothing can be set below it"),
        (
            "sources.b.path",
            "x",
            "--set sources.b.path: sources has no 'b'; known: none, for no file describes one",
        ),
    ],
)
def test_what_is_wrong_in_an_option_is_named(key: str, text: str, problem: str) -> None:
    """An error of the command line names the option."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {}, {key: text})
    assert caught.value.problems == (problem,)


def test_what_is_wrong_in_the_environment_is_named() -> None:
    """An error of the environment names the variable, also for an unknown key."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {"COUNTERPOISE_BATCH__SHARDS": "0", "COUNTERPOISE_JOB__TABELS": "x"}, {})
    unknown, bad = caught.value.problems
    assert bad == "COUNTERPOISE_BATCH__SHARDS: batch.shards is 0; it must be a whole number, 1 or more"
    assert unknown.startswith("COUNTERPOISE_JOB__TABELS: job.tabels is unknown; did you mean job.tables?")


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    """Three mistakes in a file take one run to find, not three."""
    assert len(problems_of(tmp_path, "[job]\ncluster = 1\ntrigger_interval_s = -1\n[bach]\nx = 1\n")) == 3


@pytest.mark.parametrize("content", [b"[job\n", b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    """A broken or missing file is an error of settings, with its name."""
    file = tmp_path / "prod.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(f"{file}: ")):
        load_settings(file, {}, {})


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    """A Spark option's value is in no repr, no error and no traceback, but reaches Spark."""
    loaded = load_text(tmp_path, '[spark.options]\n"spark.hadoop.secret" = "hunter2"\n')
    assert "hunter2" not in f"{loaded!r} {loaded} {loaded.spark.options}"
    assert loaded.spark.option_values() == {"spark.hadoop.secret": "hunter2"}
    (tmp_path / "prod.toml").write_text('[spark.options]\n"spark.x" = ["hunter2"]\nbad = "hunter2"\n')
    try:
        load_settings(tmp_path / "prod.toml", {}, {})
    except SettingsError as error:
        shown = "".join(traceback.format_exception(error))
    assert "spark.options.spark.x is '***'" in shown
    assert "hunter2" not in shown


def test_settings_never_change_and_travel_to_executors() -> None:
    """Loaded settings are frozen and survive pickling."""
    loaded = load_settings(None, {}, {})
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    with pytest.raises(ValueError, match="frozen"):
        loaded.batch.shards = 3  # type: ignore[misc]


def test_the_demo_s_settings_are_settings() -> None:
    """conf/demo.toml loads over the defaults and reads both formats."""
    assert {source.format for source in load_settings(DEMO_FILE, {}, {}).sources} == {"events", "offsets"}


def test_the_examples_of_sources_in_the_defaults_are_some(tmp_path: Path) -> None:
    """The commented [[sources]] of default.toml hold every key of a source between them, and load."""
    text = DEMO_FILE.with_name("default.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    begin = lines.index("[[sources]]")
    example = [line for line in lines[begin : begin + 20] if re.match(r"\[\[sources|\w+ = ", line)]
    cluster = '[clusters.default.kafka]\n"bootstrap.servers" = "b:9092"\n'
    files, kafka = load_text(tmp_path, cluster + "\n".join(example)).sources
    assert (files.from_, kafka.from_) == ("files", "kafka")
    keys = {line.split(" = ")[0] for line in example if " = " in line}
    assert keys == {field.alias or name for name, field in type(files).model_fields.items()}


@given(st.dictionaries(st.sampled_from(["job.tables", "job.cluster", "spark.app_name"]), st.text(min_size=1)))
def test_text_settings_take_any_text_as_it_is(overrides: dict[str, str]) -> None:
    """A text on the command line is never read as anything but that text."""
    loaded = load_settings(None, {}, overrides)
    found = {
        "job.tables": loaded.job.tables,
        "job.cluster": loaded.job.cluster,
        "spark.app_name": loaded.spark.app_name,
    }
    assert {key: found[key] for key in overrides} == overrides


@given(st.text(alphabet="abcJOB_.s[]=", max_size=12), st.text(max_size=12))
def test_no_option_ends_in_anything_but_settings_or_a_settings_error(key: str, text: str) -> None:
    """Whatever is typed after --set is applied or explained."""
    problems = None
    try:
        load_settings(None, {}, {key: text})
    except SettingsError as error:
        problems = error.problems
    assert problems is None or all(problems)


def test_each_cluster_has_its_own_deployment(tmp_path: Path) -> None:
    """{cluster} in the locations makes one deployment a cluster, with its own sources; else there is one."""
    east = KAFKA.partition("[[")[1] + KAFKA.partition("[[")[2].replace("west", "east").replace('"k"', '"l"')
    places = '[job]\ntables = "d/{cluster}/t"\ncheckpoint_location = "d/{cluster}/c"\n'
    deployments = load_text(tmp_path, places + KAFKA + east).by_cluster()
    assert {
        name: (own.job.tables, own.job.checkpoint_location, own.job.cluster, [s.name for s in own.sources])
        for name, own in deployments.items()
    } == {
        "east": ("d/east/t", "d/east/c", "east", ["l"]),
        "west": ("d/west/t", "d/west/c", "west", ["k"]),
    }
    alone = load_text(tmp_path, KAFKA)
    assert alone.by_cluster() == {"default": alone}
    assert alone.sources[0].topic == "__consumer_offsets"


def test_describe_looks_where_each_cluster_has_its_tables(tmp_path: Path) -> None:
    """With {cluster} in job.tables there is one place a cluster, or the one that was asked for."""
    east = KAFKA.partition("[[")[1] + KAFKA.partition("[[")[2].replace("west", "east").replace('"k"', '"l"')
    places = '[job]\ntables = "d/{cluster}/t"\ncheckpoint_location = "d/{cluster}/c"\n'
    both = load_text(tmp_path, places + KAFKA + east)
    assert tables_of(both, None) == ["d/east/t", "d/west/t"]
    assert tables_of(both, "west") == ["d/west/t"]
    assert tables_of(load_text(tmp_path, KAFKA), "west") == ["counterpoise-data/tables"]
