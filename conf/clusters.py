"""How the Kafka clusters are reached: one set of options, told to Spark and to the admin client.

People write the options of Kafka's Java clients, as every cluster's owner hands them
out. Spark's connector takes them as they are; the admin client is librdkafka, which
has other names for logins and certificates, so those are translated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from conf.jaas import QUOTED_STRING, Login, escape_jaas, read_jaas, write_jaas
from conf.layers import SettingsError
from conf.sections import Seconds, Section

_PLACEHOLDER = re.compile(r"\$\{(env|file):([^}]+)\}")
_JAAS_PART = re.compile(f"{QUOTED_STRING.pattern}|{_PLACEHOLDER.pattern}", re.DOTALL)

_SECURITY = "org.apache.kafka.common.security"
_PASSWORD_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
}
_TOKEN_MODULE = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
_TOKEN_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_TOKEN_HANDLERS = frozenset(
    {_TOKEN_HANDLER, f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"}
)

_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the option's name
# Kafka's own names since 4.1 (KIP-1139); the connector's older client wants them in the JAAS text.
_TOKEN_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_TOKEN_NAMES = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}

_SAME_IN_BOTH = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
"""What librdkafka calls as Kafka's Java clients do, of the options that an admin client has a use for."""

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_OWN_TRUST = frozenset({"ssl.ca.location", "ssl.ca.pem", "ssl.ca.certificate.stores"})
_OWN_KEY = frozenset({"ssl.keystore.location", "ssl.key.location", "ssl.key.pem"})

OptionName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the name of a Kafka option")
]


class ClusterSettings(Section):
    """One Kafka cluster: [clusters.NAME] in the file, see default.toml.

    `kafka` maps the names of Kafka's Java clients to values, `admin` those of
    librdkafka. Names are lower case without a leading "kafka.", however they were
    written; values keep their ${...} until they are used.
    """

    kafka: dict[OptionName, SecretStr]
    admin: Annotated[dict[OptionName, SecretStr], Field(default_factory=dict)]
    metadata_interval_s: Seconds = 30.0

    _name: str = PrivateAttr(default="NAME")

    @field_validator("kafka", "admin")
    @classmethod
    def _one_spelling(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        spelled: dict[str, str] = {}
        for name in options:
            plain = name.lower().removeprefix("kafka.")
            first = spelled.setdefault(plain, name)
            if first != name:
                raise ValueError(f"has {first!r} and {name!r}, which are one option; keep one of them")
        return {plain: options[name] for plain, name in spelled.items()}

    @field_validator("kafka")
    @classmethod
    def _complete(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if "bootstrap.servers" not in options:
            raise ValueError("has no 'bootstrap.servers'; give the brokers as 'host:port,host:port'")
        login = {"sasl.username", "sasl.password"} & options.keys()
        if len(login) == 1:
            raise ValueError(f"has {login.pop()!r} alone; give sasl.username and sasl.password, or neither")
        if login and "sasl.jaas.config" in options:
            raise ValueError("has 'sasl.jaas.config' besides sasl.username; one login is enough")
        return options

    def called(self, name: str) -> ClusterSettings:
        """Give the same cluster with the name by which errors call it."""
        named = self.model_copy()
        named._name = name
        return named

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def problem(self, where: str, text: str) -> SettingsError:
        """Make the error that says what is wrong at "kafka.OPTION" or "admin.OPTION" of this cluster."""
        return SettingsError([f"clusters.{self._name}.{where}: {text}"])


def spark_kafka_options(cluster: ClusterSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give a cluster's options as Spark's Kafka source takes them: "kafka.NAME" -> value in clear.

    Everything is passed on. A user name and password become the `sasl.jaas.config`
    of their mechanism, and so do the client id and secret of OAUTHBEARER, with
    Kafka's login callback handler where none is named.

    Raises:
        SettingsError: a variable or file is not there, or the login is incomplete.
    """
    options = _in_clear(cluster, "kafka", environ)
    mechanism = options.get("sasl.mechanism", "GSSAPI")
    if "sasl.username" in options:
        module = _PASSWORD_MODULES.get(mechanism)
        if module is None:
            raise _no_password_mechanism(cluster, options)
        login = {"username": options.pop("sasl.username"), "password": options.pop("sasl.password")}
        options["sasl.jaas.config"] = write_jaas(Login(module, login))
    if mechanism == "OAUTHBEARER":
        login = {short: options.pop(name) for short, name in _TOKEN_OPTIONS.items() if name in options}
        if login and "sasl.jaas.config" not in options:
            options["sasl.jaas.config"] = write_jaas(Login(_TOKEN_MODULE, login))
        if _TOKEN_URL in options:
            options.setdefault(_HANDLER, _TOKEN_HANDLER)
    return {f"kafka.{name}": value for name, value in options.items()}


def admin_options(cluster: ClusterSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give a cluster's options as librdkafka's admin client takes them: name -> value in clear.

    Options that librdkafka does not know are left out (the serializers, fetch sizes
    and the like of a stream); those of `admin` are laid over the rest as they are.

    Raises:
        SettingsError: a variable or file is not there, or the login or the
            certificates have a form that only Java can read.
    """
    options = _in_clear(cluster, "kafka", environ)
    extra = _in_clear(cluster, "admin", environ)
    translated = {name: value for name, value in options.items() if name in _SAME_IN_BOTH}
    protocol = extra.get("security.protocol", options.get("security.protocol", "PLAINTEXT")).upper()
    if protocol.startswith("SASL"):
        translated |= _login(cluster, options, extra)
    if protocol.endswith("SSL"):
        translated |= _trust(cluster, options, extra) | _key(cluster, options, extra)
        if "ssl.endpoint.identification.algorithm" in options:
            # Kafka switches the check of the host's name off by an empty text, librdkafka by a word.
            algorithm = options["ssl.endpoint.identification.algorithm"] or "none"
            translated["ssl.endpoint.identification.algorithm"] = algorithm
    return translated | extra


def _in_clear(cluster: ClusterSettings, table: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the options of one table with their variables and files read."""
    secrets: Mapping[str, SecretStr] = getattr(cluster, table)
    clear = {}
    for option, secret in secrets.items():
        where = f"{table}.{option}"

        def read(match: re.Match[str], where: str = where) -> str:
            return _text_of(cluster, where, match[1], match[2], environ)

        def read_inside(match: re.Match[str], where: str = where) -> str:
            if match[1] is not None:
                return read(match, where)
            # What replaces a part of a quoted string must not end it.
            return _PLACEHOLDER.sub(lambda inner: escape_jaas(read(inner, where)), match[0])

        value = secret.get_secret_value()
        is_jaas = option == "sasl.jaas.config"
        clear[option] = _JAAS_PART.sub(read_inside, value) if is_jaas else _PLACEHOLDER.sub(read, value)
    return clear


def _text_of(cluster: ClusterSettings, where: str, kind: str, name: str, environ: Mapping[str, str]) -> str:
    """Read a variable or a file, whose last line end is the editor's and not the secret's."""
    if kind == "env":
        if name not in environ:
            raise cluster.problem(where, f"the environment has no variable {name!r}; set it")
        return environ[name]
    try:
        return Path(name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except ValueError:  # not UTF-8, or a path that holds a NUL
        reason = "it is not text in UTF-8"
    raise cluster.problem(where, f"the file {name!r} cannot be read ({reason}); put the value there")


def _no_password_mechanism(cluster: ClusterSettings, options: Mapping[str, str]) -> SettingsError:
    known = ", ".join(repr(name) for name in _PASSWORD_MODULES)
    found = "is another" if "sasl.mechanism" in options else "is missing"
    return cluster.problem(
        "kafka.sasl.mechanism", f"{found}; with sasl.username and sasl.password it must be one of {known}"
    )


def _login(cluster: ClusterSettings, options: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Translate how a client says who it is; a mechanism in `extra` brings its own login."""
    if {"sasl.mechanism", "sasl.mechanisms"} & extra.keys():
        return {}
    mechanism = options.get("sasl.mechanism", "GSSAPI")
    jaas = read_jaas(options.get("sasl.jaas.config", ""))
    told = jaas.options if jaas is not None else {}
    translated = {"sasl.mechanism": mechanism}
    if mechanism in _PASSWORD_MODULES:
        names = {"username": "sasl.username", "password": "sasl.password"}
        login = {name: options.get(name, told.get(short)) for short, name in names.items()}
        problem = (
            "kafka.sasl.username",
            "is missing, and sasl.jaas.config has no username and password that can be read; give "
            "sasl.username and sasl.password",
        )
        is_known = None not in login.values()
    elif mechanism == "OAUTHBEARER":
        login = _token_login(options, told)
        problem = (
            "kafka.sasl.mechanism",
            "is OAUTHBEARER, for which the admin client needs sasl.oauthbearer.token.endpoint.url (http or "
            "https) with a client id and secret, and no login callback handler but Kafka's; give them, or "
            f"librdkafka's sasl.oauthbearer.* in [clusters.{cluster.name}.admin]",
        )
        is_known = bool(login)
    else:
        login, is_known = {}, False
        problem = (
            "kafka.sasl.mechanism",
            f"is none of {', '.join(_PASSWORD_MODULES)}, OAUTHBEARER, and only Java can log in so; give "
            f"the admin client a login with librdkafka's sasl.* in [clusters.{cluster.name}.admin]",
        )
    if not is_known and not any("sasl." in name for name in extra):
        raise cluster.problem(*problem)
    return translated | {name: value for name, value in login.items() if value is not None}


def _token_login(options: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str | None]:
    """Give librdkafka's options for a token from an endpoint; none when Java gets it in another way."""
    login = {_TOKEN_NAMES[s]: options.get(name, told.get(s)) for s, name in _TOKEN_OPTIONS.items()}
    url = options.get(_TOKEN_URL, "")
    is_kafkas = options.get(_HANDLER, _TOKEN_HANDLER) in _TOKEN_HANDLERS
    has_client = None not in (login[_TOKEN_NAMES["clientId"]], login[_TOKEN_NAMES["clientSecret"]])
    if not (is_kafkas and has_client and url.startswith(("http://", "https://"))):
        return {}
    prefix = "extension_"
    pairs = [f"{k.removeprefix(prefix)}={v}" for k, v in told.items() if k.startswith(prefix)]
    extensions = {"sasl.oauthbearer.extensions": ",".join(pairs)} if pairs else {}
    return {"sasl.oauthbearer.method": "oidc", _TOKEN_URL: url, **login, **extensions}


def _trust(cluster: ClusterSettings, options: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Translate which certificates of brokers are believed; without a word, those of the system."""
    location = options.get("ssl.truststore.location")
    if not _OWN_TRUST.isdisjoint(extra):
        return {}
    if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
        if location is None:
            return {}
        raise cluster.problem(
            "kafka.ssl.truststore.location",
            "is a Java keystore, which the admin client cannot read; write it as PEM (keytool -list -rfc "
            "-keystore FILE > ca.pem) and set ssl.truststore.type to PEM, or ssl.ca.location in "
            f"[clusters.{cluster.name}.admin]",
        )
    if location is not None:
        return {"ssl.ca.location": location}
    names = {"ssl.truststore.certificates": "ssl.ca.pem"}
    return {new: _in_lines(options[old]) for old, new in names.items() if old in options}


def _key(cluster: ClusterSettings, options: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Translate the client's own certificate and key."""
    location = options.get("ssl.keystore.location")
    kind = options.get("ssl.keystore.type", "JKS").upper()
    if not _OWN_KEY.isdisjoint(extra):
        return {}
    password = {k: v for k, v in options.items() if k == "ssl.key.password"}
    if kind == "PEM" and location is not None:
        # One file holds both; each reader skips what is not for it.
        return {"ssl.certificate.location": location, "ssl.key.location": location, **password}
    if kind == "PEM":
        names = {"ssl.keystore.certificate.chain": "ssl.certificate.pem", "ssl.keystore.key": "ssl.key.pem"}
        return {new: _in_lines(options[old]) for old, new in names.items() if old in options} | password
    if location is None:
        return {}
    if kind == "PKCS12":
        same = ("ssl.keystore.location", "ssl.keystore.password")
        return {name: options[name] for name in same if name in options}
    raise cluster.problem(
        "kafka.ssl.keystore.location",
        "is a Java keystore, which the admin client cannot read; write it as PKCS12 (keytool "
        "-importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype PKCS12) and set "
        f"ssl.keystore.type to PKCS12, or ssl.keystore.location in [clusters.{cluster.name}.admin]",
    )


def _in_lines(pem: str) -> str:
    """Break PEM into lines again: Kafka takes it on one line, OpenSSL does not."""

    def lined(match: re.Match[str]) -> str:
        label, body = match[1], "".join(match[2].split())
        lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
        return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"

    return _PEM_BLOCK.sub(lined, pem)
