"""The Java program in tests/oracle, built with Maven and spoken to in JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.java_programs import build_java

ORACLE_FOLDER = Path(__file__).resolve().parent.parent / "oracle"
_CLASSES = ORACLE_FOLDER / "target" / "classes"
_CLASSPATH = ORACLE_FOLDER / "target" / "classpath.txt"
_OLDER = ORACLE_FOLDER / "target" / "older" / "kafka-server-common.jar"


class OracleUnavailableError(RuntimeError):
    """The oracle cannot be built here; the message says what is missing."""


def build_oracle() -> None:
    """Compile the oracle unless its classes are newer than its sources.

    Raises:
        OracleUnavailableError: no java, javac or mvn on the path, or Maven failed.
    """
    products = [_CLASSPATH, _OLDER, _CLASSES / "counterpoise" / "Oracle.class"]
    build_java(ORACLE_FOLDER, products, "the Java oracle (tests/oracle)", OracleUnavailableError)


class Oracle:
    """One JVM that answers cases; a context manager.

    Kafka's HashMap-dependent answers do not depend on the JVM's heap or flags;
    it is kept small because the tests share the machine.
    """

    def __enter__(self) -> Oracle:
        """Build the program if need be, and start its JVM."""
        build_oracle()
        jars = _CLASSPATH.read_text(encoding="utf-8").strip()
        classpath = os.pathsep.join((str(_CLASSES), jars, str(_OLDER)))
        options = os.environ.get("ORACLE_JAVA_OPTIONS", "-Xmx512m -XX:+UseSerialGC").split()
        self._process = subprocess.Popen(
            ["java", *options, "-cp", classpath, "counterpoise.Oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close its input and wait for its end."""
        self._process.communicate()

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """Answer one case (or one of the oracle's own kinds)."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(case) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            message = f"the oracle ended with code {self._process.wait()} at case {json.dumps(case)[:500]}"
            raise RuntimeError(message)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def answers(self, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Answer cases one by one, in order."""
        return map(self.ask, cases)
