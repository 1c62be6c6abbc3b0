"""TLS and OAUTHBEARER on a real broker: one set of options lets the admin client and Java's client in."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import SecretStr

from conf.clusters import ClusterSettings, admin_options, spark_kafka_options
from streaming.sources.cluster_metadata import ClusterMetadata
from tests.kafka_cluster import KafkaBroker, free_ports
from tests.kafka_members import JavaClient

pytestmark = pytest.mark.live

STORE_PASSWORD = "changeit"  # noqa: S105 - of stores made here


def store(folder: Path, name: str) -> Path:
    """Make a PKCS12 store with a key and a certificate that nobody has signed, and its PEM files."""
    path = folder / f"{name}.p12"
    password = f"pass:{STORE_PASSWORD}"
    opened = ["-keystore", str(path), "-storepass", STORE_PASSWORD]
    made = [
        "-genkeypair",
        "-alias",
        name,
        "-keyalg",
        "RSA",
        "-dname",
        f"CN={name}",
        "-ext",
        "SAN=ip:127.0.0.1",
    ]
    run(["keytool", *made, "-storetype", "PKCS12", *opened])
    (folder / f"{name}.pem").write_text(run(["keytool", "-list", "-rfc", *opened]), encoding="utf-8")
    bare, key = folder / f"{name}-bare.pem", folder / f"{name}-key.pem"
    run(["openssl", "pkcs12", "-in", str(path), "-nodes", "-passin", password, "-out", str(bare)])
    # Java reads no newer encryption of keys in PEM (PBES2) before its version 19.
    encrypted = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", str(bare), "-passout", password]
    certificate = run(["openssl", "x509", "-in", str(bare)])
    key.write_text(run(encrypted) + certificate, encoding="utf-8")
    return path


def run(command: list[str]) -> str:
    """Run a command and give what it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def block(text: str, label: str) -> str:
    """Cut one PEM block out of a text and put it on one line, as Java takes it."""
    begin, end = f"-----BEGIN {label}-----", f"-----END {label}-----"
    return " ".join(f"{begin}{text.split(begin)[1].split(end)[0]}{end}".split("\n"))


def base64url(raw: bytes) -> str:
    """Write bytes as JSON Web Tokens do."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class TokenServer:
    """Gives signed tokens to whoever asks, and the key to check them with, as an OAuth server does."""

    def __init__(self, key: Path) -> None:
        """Choose a port; `key` is an RSA key in PEM without a password."""
        self._key = key
        self.asked: list[str] = []
        told = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.asked.append(self.headers["Authorization"] or "")
                self._say({"access_token": told.token(), "token_type": "Bearer", "expires_in": 3600})

            def do_GET(self) -> None:
                self._say({"keys": [told.public_key()]})

            def _say(self, answer: dict[str, Any]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self) -> str:
        """Make a token for an hour."""
        now = int(time.time())
        claims = {"sub": "counterpoise", "iat": now, "exp": now + 3600, "scope": "kafka"}
        header = {"alg": "RS256", "kid": "one"}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        signing = ["openssl", "dgst", "-sha256", "-sign", str(self._key)]
        signature = subprocess.run(signing, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{base64url(signature)}"

    def public_key(self) -> dict[str, str]:
        """Give the key as a JSON Web Key."""
        modulus = run(["openssl", "rsa", "-in", str(self._key), "-noout", "-modulus"]).strip().split("=")[1]
        number = base64url(bytes.fromhex(modulus))
        return {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": number, "e": "AQAB"}


@pytest.fixture(scope="module")
def folder(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the stores of a broker and of a client."""
    del kafka  # Where it cannot be built there is nobody to log in to.
    if shutil.which("openssl") is None and os.environ.get("CI") != "true":
        pytest.skip("certificates in PEM need openssl on the PATH")
    made = tmp_path_factory.mktemp("logins")
    store(made, "broker")
    store(made, "client")
    return made


@pytest.fixture(scope="module")
def tokens(folder: Path) -> Iterator[TokenServer]:
    """Start an OAuth server, and tell all JVMs from here on that they may ask it."""
    with TokenServer(folder / "client-bare.pem") as server, pytest.MonkeyPatch.context() as patch:
        # Since 3.9.1 Kafka's classes go to no address that the JVM is not told of.
        urls = f"{server.url}/token,{server.url}/keys"
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}")
        yield server


@dataclass(frozen=True)
class Guarded:
    """A broker, and the addresses of its listeners that ask who comes."""

    broker: KafkaBroker
    tls: str
    tokens: str


@pytest.fixture(scope="module")
def guarded(folder: Path, tokens: TokenServer) -> Iterator[Guarded]:
    """Start a broker that asks clients for certificates on one listener and for tokens on another."""
    tls, token = (f"127.0.0.1:{port}" for port in free_ports(2))
    oauth = "org.apache.kafka.common.security.oauthbearer"
    of_tls = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "client.pem"),
        "ssl.client.auth": "required",
    }
    of_tokens = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
        "oauthbearer.sasl.server.callback.handler.class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{tokens.url}/keys",
    }
    protocols = "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,TOKENS:SASL_PLAINTEXT"
    properties = {
        "listener.security.protocol.map": protocols,
        **{f"listener.name.tls.{name}": value for name, value in of_tls.items()},
        **{f"listener.name.tokens.{name}": value for name, value in of_tokens.items()},
    }
    broker = KafkaBroker(folder / "data", properties=properties)
    file = broker.folder / "broker.properties"
    lines = [
        f"{line},TLS://{tls},TOKENS://{token}" if line.startswith("listeners=") else line
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    with broker:
        broker.create_topic("orders", 1)
        yield Guarded(broker, tls, token)


def topics_of(options: Mapping[str, str]) -> list[str]:
    """List the topics that the admin client is told of."""
    metadata = ClusterMetadata("prod", admin_options(cluster_of(options), {}))
    return [event["topic"] for event in metadata.topic_events({}, now_ms=1)]


def cluster_of(options: Mapping[str, str]) -> ClusterSettings:
    """Make a cluster of options in clear."""
    return ClusterSettings(kafka={name: SecretStr(value) for name, value in options.items()})


def check_java_comes_in(broker: KafkaBroker, options: Mapping[str, str], group_id: str) -> None:
    """Let Kafka's own client join with what Spark would be told."""
    told = spark_kafka_options(cluster_of(options), {})
    properties = {name.removeprefix("kafka."): value for name, value in told.items()}
    with JavaClient(broker, group_id=group_id, assignors=("range",), properties=properties) as member:
        member.subscribe("orders")
        assert member.wait_for("assigned").partitions == {("orders", 0)}


def pem_of(folder: Path, how: str) -> dict[str, str]:
    """Write the same login in one of the ways that there are."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "broker.pem")}
    if how == "PKCS12":
        return trust | {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(folder / "client.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
        }
    mine = (folder / "client-key.pem").read_text(encoding="utf-8")
    if how == "PEM files":
        return trust | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "client-key.pem"),
            "ssl.key.password": STORE_PASSWORD,
        }
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": block(
            (folder / "broker.pem").read_text(encoding="utf-8"), "CERTIFICATE"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": block(mine, "CERTIFICATE"),
        "ssl.keystore.key": block(mine, "ENCRYPTED PRIVATE KEY"),
        "ssl.key.password": STORE_PASSWORD,
    }


@pytest.mark.parametrize("how", ["PKCS12", "PEM files", "PEM texts"])
def test_certificates_let_both_clients_in(guarded: Guarded, folder: Path, how: str) -> None:
    """Trust in PEM and a key in PKCS12 or PEM, as file or text, serve both clients."""
    options = {"bootstrap.servers": guarded.tls, "security.protocol": "SSL", **pem_of(folder, how)}
    assert topics_of(options) == ["orders"]
    check_java_comes_in(guarded.broker, options, how)


def test_an_unknown_certificate_is_told(
    guarded: Guarded, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that nobody vouches for is not talked to, and the log says why."""
    monkeypatch.setattr("streaming.sources.cluster_metadata.REQUEST_TIMEOUT_S", 2.0)
    caplog.set_level(logging.WARNING, "streaming.sources.cluster_metadata")
    options = {"bootstrap.servers": guarded.tls, "security.protocol": "SSL", **pem_of(folder, "PKCS12")}
    assert topics_of(options | {"ssl.truststore.location": str(folder / "client.pem")}) == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert "certificate verify failed" in line


def test_a_token_lets_both_clients_in(guarded: Guarded, tokens: TokenServer) -> None:
    """The client id and secret get each of them a token, and the token gets in."""
    options = {
        "bootstrap.servers": guarded.tokens,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{tokens.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "counterpoise",
        "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert topics_of(options) == ["orders"]
    asked = len(tokens.asked)
    check_java_comes_in(guarded.broker, options, "tokens")
    assert len(tokens.asked) > asked > 0
    assert set(tokens.asked) == {"Basic " + base64.b64encode(b"counterpoise:hunter2").decode()}
