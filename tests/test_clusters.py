"""Clusters: one set of Kafka options serves Spark and the admin client, and no secret is ever shown."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from conf.clusters import ClusterSettings, admin_options, spark_kafka_options
from conf.jaas import Login, read_jaas, write_jaas
from conf.layers import SettingsError
from conf.settings import load_settings

JAAS = "sasl.jaas.config"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
HOSTILE = "pa\"ss'wo\\rd\nwith ${env:HOME} = ; // hunter2\t\r"
PEM_BODY = "QUJD" * 20
ONE_LINE_PEM = f"-----BEGIN CERTIFICATE----- {PEM_BODY} -----END CERTIFICATE-----"
PEM = f"-----BEGIN CERTIFICATE-----\n{PEM_BODY[:64]}\n{PEM_BODY[64:]}\n-----END CERTIFICATE-----\n"


def cluster_of(kafka: Mapping[str, str], admin: Mapping[str, str] | None = None) -> ClusterSettings:
    """Build the cluster "prod" from options in clear."""
    kafka = {"bootstrap.servers": "b:9092", **kafka}
    return ClusterSettings(
        kafka={name: SecretStr(value) for name, value in kafka.items()},
        admin={name: SecretStr(value) for name, value in (admin or {}).items()},
    ).called("prod")


def admin_of(kafka: Mapping[str, str], admin: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give what the admin client is told besides the broker and the protocol."""
    told = admin_options(cluster_of(kafka, admin), {})
    return {k: v for k, v in told.items() if k not in ("bootstrap.servers", "security.protocol")}


def spark_of(kafka: Mapping[str, str]) -> dict[str, str]:
    """Give what Spark is told besides the broker and the protocol."""
    told = spark_kafka_options(cluster_of(kafka), {})
    return {k: v for k, v in told.items() if not k.endswith(("bootstrap.servers", "security.protocol"))}


def problem_of(kafka: Mapping[str, str], admin: Mapping[str, str] | None = None) -> str:
    """Give the one line that says why the admin client cannot be told."""
    with pytest.raises(SettingsError) as caught:
        admin_options(cluster_of(kafka, admin), {})
    (line,) = caught.value.problems
    return line


def test_every_option_reaches_spark() -> None:
    """Options of Kafka's Java clients pass to Spark under "kafka.", known to us or not."""
    options = {"fetch.max.bytes": "1", "made.up": "x", "ssl.truststore.location": "t.jks"}
    told = spark_kafka_options(cluster_of(options), {})
    assert told == {"kafka.bootstrap.servers": "b:9092", **{f"kafka.{k}": v for k, v in options.items()}}


def test_librdkafka_gets_only_what_it_knows() -> None:
    """The admin client starts whatever the stream is told, for it is told only its own names."""
    options = {"fetch.max.bytes": "1", "made.up": "x", "metadata.max.age.ms": "5000", "client.id": "me"}
    told = admin_options(cluster_of(options), {})
    assert told == {"bootstrap.servers": "b:9092", "metadata.max.age.ms": "5000", "client.id": "me"}
    AdminClient(told)


def test_names_are_one_whatever_their_spelling() -> None:
    """A leading "kafka." is dropped and case does not count."""
    assert cluster_of({"kafka.Client.ID": "me"}).kafka.keys() == {"bootstrap.servers", "client.id"}
    with pytest.raises(ValueError, match=r"'client\.id' and 'kafka\.client\.id', which are one option"):
        cluster_of({"client.id": "a", "kafka.client.id": "b"})


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_a_user_name_and_password_log_both_in(mechanism: str, module: str) -> None:
    """Spark gets the mechanism's login module, the admin client the name and password, hostile or not."""
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "me",
        "sasl.password": "${env:SECRET}",
    }
    environ = {"SECRET": HOSTILE}
    login = read_jaas(spark_kafka_options(cluster_of(options), environ)[f"kafka.{JAAS}"])
    expected = Login(f"org.apache.kafka.common.security.{module}", {"username": "me", "password": HOSTILE})
    assert login == expected
    told = admin_options(cluster_of(options), environ)
    assert (told["sasl.mechanism"], told["sasl.username"], told["sasl.password"]) == (
        mechanism,
        "me",
        HOSTILE,
    )
    AdminClient(told)


def test_a_login_written_for_java_serves_the_admin_client() -> None:
    """The user name and password are read out of sasl.jaas.config."""
    text = """org.apache.kafka.common.security.scram.ScramLoginModule required /* the
        */ username = 'me' password="it's \\"here\\"" ;  // end"""
    assert spark_of({**SCRAM, JAAS: text})[f"kafka.{JAAS}"] == text
    told = admin_of({**SCRAM, JAAS: text})
    expected = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": 'it\'s "here"'}
    assert told == expected


def test_what_replaces_a_part_of_a_login_cannot_break_it() -> None:
    """A variable inside a quoted string of sasl.jaas.config is escaped; one outside is taken as it is."""
    environ = {"SECRET": HOSTILE, "LOGIN": write_jaas(Login("a.M", {"password": HOSTILE}))}
    for text in ('a.M required password="${env:SECRET}";', "${env:LOGIN}"):
        told = spark_kafka_options(cluster_of({**SCRAM, JAAS: text}), environ)
        assert read_jaas(told[f"kafka.{JAAS}"]) == Login("a.M", {"password": HOSTILE})


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][\w$-]{0,6}", fullmatch=True), st.text(), max_size=3))
def test_any_login_is_read_as_it_was_written(options: dict[str, str]) -> None:
    """Whatever characters a password has, what is written for Java reads back the same."""
    login = Login("a.b.Module", options)
    assert read_jaas(write_jaas(login)) == login


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.Module required",
        "a.Module maybe;",
        'a.M required x="1;',
        "a.M required x=;",
        "a required; b required;",
    ],
)
def test_what_is_no_login_is_none(text: str) -> None:
    """A text that Kafka would refuse, or with two login modules, is not half read."""
    assert read_jaas(text) is None


TOKEN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
TOKEN_TOLD = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s",
    "sasl.oauthbearer.scope": "kafka",
}
OAUTH_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="me" clientSecret="s" scope="kafka"'
)


def test_a_token_s_client_logs_both_in() -> None:
    """Kafka 4.1's names for OAUTHBEARER become the older login text for Spark and OIDC for librdkafka."""
    options = {
        **TOKEN,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert spark_of(options) == {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        f"kafka.{JAAS}": f"{OAUTH_JAAS};",
        "kafka.sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
    }
    assert admin_of(options) == TOKEN_TOLD
    AdminClient(admin_options(cluster_of(options), {}))


def test_a_token_s_client_written_for_java_serves_the_admin_client() -> None:
    """Client id, secret, scope and extensions are read out of sasl.jaas.config."""
    options = {**TOKEN, JAAS: f'{OAUTH_JAAS} extension_cluster="lkc-1" extension_pool="p-1";'}
    assert admin_of(options) == TOKEN_TOLD | {"sasl.oauthbearer.extensions": "cluster=lkc-1,pool=p-1"}
    AdminClient(admin_options(cluster_of(options), {}))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            SCRAM,
            "kafka.sasl.username: is missing, and sasl.jaas.config has no username and password that can be "
            "read; give sasl.username and sasl.password",
        ),
        (
            {**SCRAM, "sasl.mechanism": "AWS_MSK_IAM", JAAS: "a.B required;"},
            "kafka.sasl.mechanism: is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, and only "
            "Java can log in so; give the admin client a login with librdkafka's sasl.* in "
            "[clusters.prod.admin]",
        ),
        (
            {**TOKEN, JAAS: f"{OAUTH_JAAS};", "sasl.login.callback.handler.class": "cloud.Handler"},
            "kafka.sasl.mechanism: is OAUTHBEARER, for which the admin client needs "
            "sasl.oauthbearer.token.endpoint.url (http or https) with a client id and secret, and no login "
            "callback handler but Kafka's; give them, or librdkafka's sasl.oauthbearer.* in "
            "[clusters.prod.admin]",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "t.jks"},
            "kafka.ssl.truststore.location: is a Java keystore, which the admin client cannot read; write it "
            "as PEM (keytool -list -rfc -keystore FILE > ca.pem) and set ssl.truststore.type to PEM, or "
            "ssl.ca.location in [clusters.prod.admin]",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "k.jks"},
            "kafka.ssl.keystore.location: is a Java keystore, which the admin client cannot read; write it "
            "as PKCS12 (keytool -importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype "
            "PKCS12) and set ssl.keystore.type to PKCS12, or ssl.keystore.location in [clusters.prod.admin]",
        ),
    ],
)
def test_what_only_java_can_do_is_said(options: dict[str, str], problem: str) -> None:
    """What cannot be translated is an error that says what to write instead."""
    assert problem_of(options) == f"clusters.prod.{problem}"


@pytest.mark.parametrize(
    ("options", "admin", "told"),
    [
        (
            {**SCRAM, "sasl.mechanism": "AWS_MSK_IAM"},
            {"sasl.mechanisms": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
            {"sasl.mechanisms": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
        ),
        (
            {**TOKEN, "sasl.login.callback.handler.class": "cloud.Handler"},
            {"sasl.oauthbearer.config": "principal=a", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.config": "principal=a",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
            },
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "t", "ssl.keystore.location": "k"},
            {"ssl.ca.location": "ca.pem", "ssl.key.location": "key.pem"},
            {"ssl.ca.location": "ca.pem", "ssl.key.location": "key.pem"},
        ),
    ],
)
def test_the_admin_client_s_own_options_win(
    options: dict[str, str], admin: dict[str, str], told: dict[str, str]
) -> None:
    """What [clusters.NAME.admin] brings needs no translation, and is laid over what is translated."""
    assert admin_of(options, admin) == told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {}),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},
            {"ssl.ca.location": "ca.pem"},
        ),
        ({"ssl.truststore.type": "pem", "ssl.truststore.certificates": ONE_LINE_PEM}, {"ssl.ca.pem": PEM}),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": ONE_LINE_PEM,
                "ssl.keystore.key": ONE_LINE_PEM.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY"),
                "ssl.key.password": "p",
            },
            {
                "ssl.certificate.pem": PEM,
                "ssl.key.pem": PEM.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY"),
                "ssl.key.password": "p",
            },
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem", "ssl.key.password": "p"},
            {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem", "ssl.key.password": "p"},
        ),
        (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "me.p12",
                "ssl.keystore.password": "p",
            },
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "p"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_certificates_take_librdkafka_s_names(options: dict[str, str], told: dict[str, str]) -> None:
    """PEM as file or text and PKCS12 key stores are translated; without any, the system's trust is used."""
    assert admin_of({"security.protocol": "SSL", **options}) == told


def test_unused_certificates_trouble_nobody() -> None:
    """A key store of Java is no problem where the connection is not encrypted."""
    assert admin_of({"ssl.truststore.location": "t.jks", "ssl.keystore.location": "k.jks"}) == {}


def test_variables_and_files_are_read_when_used(tmp_path: Path) -> None:
    """${env:} and ${file:} are replaced anywhere in a value, and what they bring is not read again."""
    secret = tmp_path / "secret"
    secret.write_text("one ${env:A}\r\n", encoding="utf-8")
    cluster = cluster_of({"client.id": f"${{env:A}}-${{file:{secret}}}-${{vault:x}}"})
    assert "${env:A}" in cluster.kafka["client.id"].get_secret_value()
    assert admin_options(cluster, {"A": "a"})["client.id"] == "a-one ${env:A}-${vault:x}"
    secret.write_text("two", encoding="utf-8")
    assert admin_options(cluster, {"A": "b"})["client.id"] == "b-two-${vault:x}"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${env:GONE}", "the environment has no variable 'GONE'; set it"),
        (
            "${file:no/such/file}",
            "the file 'no/such/file' cannot be read (No such file or directory); put the value there",
        ),
        ("${file:.}", "the file '.' cannot be read (Is a directory); put the value there"),
    ],
)
def test_what_is_not_there_is_named(value: str, problem: str) -> None:
    """A missing variable or file is named with the option that wants it."""
    assert problem_of({"client.id": value}) == f"clusters.prod.kafka.client.id: {problem}"
    assert problem_of({}, {"client.id": value}) == f"clusters.prod.admin.client.id: {problem}"


def test_a_file_that_is_no_text_is_named_and_not_shown(tmp_path: Path) -> None:
    """A file of bytes is refused without a byte of it."""
    file = tmp_path / "secret"
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(SettingsError, match=r"secret' cannot be read \(it is not text in UTF-8\)") as caught:
        spark_kafka_options(cluster_of({"client.id": f"${{file:{file}}}"}), {})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


WITHOUT_LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": HOSTILE}


@pytest.mark.parametrize(
    "options",
    [
        {**WITHOUT_LOGIN, "sasl.username": "me", "sasl.password": HOSTILE},
        {**WITHOUT_LOGIN, JAAS: f'a.M required password="{HOSTILE}";'},
        {**SCRAM, JAAS: f'a.M required username="{HOSTILE}" password="{HOSTILE}";'},
        {**TOKEN, JAAS: HOSTILE, "sasl.oauthbearer.token.endpoint.url": HOSTILE},
        {"security.protocol": "SSL", "ssl.truststore.location": HOSTILE},
        {"security.protocol": "SSL", "ssl.keystore.location": HOSTILE, "ssl.key.password": HOSTILE},
        {**SCRAM, "sasl.username": "${env:GONE}", "sasl.password": HOSTILE},
    ],
)
def test_no_error_and_no_repr_shows_a_secret(options: dict[str, str]) -> None:
    """Whatever is wrong with a login, no word of a value is in the error, its traceback or any repr."""
    cluster = cluster_of(options)
    shown = f"{cluster!r} {cluster} {cluster.kafka} {cluster.model_dump()} {cluster.model_dump_json()}"
    with pytest.raises(SettingsError) as caught:
        admin_options(cluster, {"HOME": "/"})
    shown += "".join(traceback.format_exception(caught.value))
    assert not re.search(r"hunter2|ss'wo|\brd\b", shown)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "has no 'bootstrap.servers'; give the brokers as 'host:port,host:port'"),
        (
            {"bootstrap.servers": "b", "sasl.password": "hunter2"},
            "has 'sasl.password' alone; give sasl.username and sasl.password, or neither",
        ),
        (
            {"bootstrap.servers": "b", "sasl.username": "a", "sasl.password": "hunter2", JAAS: "hunter2"},
            "has 'sasl.jaas.config' besides sasl.username; one login is enough",
        ),
    ],
)
def test_what_cannot_work_is_found_as_the_settings_load(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    """What can be seen without the secrets is an error of the settings, with the file's name."""
    lines = [f'"{name}" = "{value}"' for name, value in options.items()]
    file = tmp_path / "prod.toml"
    file.write_text("\n".join(["[clusters.prod.kafka]", *lines]), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {}, {})
    assert caught.value.problems == (f"{file}: clusters.prod.kafka {problem}",)


def test_the_example_of_a_cluster_in_the_defaults_is_one(tmp_path: Path) -> None:
    """The commented [clusters.default] of default.toml holds every key, loads, and serves both clients."""
    text = Path(load_settings.__code__.co_filename).with_name("default.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    begin = lines.index("[clusters.default]")
    example = [
        line for line in lines[begin : begin + 20] if re.match(r'\[clusters|metadata_|"[\w.]+" = ', line)
    ]
    file, secret = tmp_path / "prod.toml", tmp_path / "kafka"
    secret.write_text("hunter2\n", encoding="utf-8")
    file.write_text("\n".join(example).replace("/run/secrets/kafka", str(secret)), encoding="utf-8")
    cluster = load_settings(file, {}, {}).clusters["default"]
    assert cluster.model_fields_set == set(ClusterSettings.model_fields)
    assert "hunter2" in spark_kafka_options(cluster)[f"kafka.{JAAS}"]
    assert admin_options(cluster)["sasl.password"] == "hunter2"
    assert admin_options(cluster)["ssl.ca.location"] == "/etc/ca.pem"
