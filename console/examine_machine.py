"""The doctor's look at this machine: Python, Java, Spark's packages, directories, sources of files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from console.findings import Finding, ok, problem, problem_told, sized, warning

if TYPE_CHECKING:
    from conf.settings import Settings
    from conf.sources import SourceSettings

_OLDEST_PYTHON = (3, 11)
_JAVAS = (17, 21)
"""What Spark 4.0 runs on."""

_ANSWER_S = 30

_LITTLE_BYTES, _NO_BYTES = 1 << 30, 64 << 20
_LITTLE_SHARE = 0.05

_MOST_FILES_TRIED = 10_000

_DELTA = re.compile(r"io\.delta:delta-spark_(?:(?P<spark>\d+\.\d+)_)?\d+\.\d+:(?P<version>.+)")
_CONNECTOR = re.compile(r"org\.apache\.spark:spark-sql-kafka-0-10_\d+\.\d+:(?P<spark>\d+\.\d+)\..+")


def examine_machine(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what the job needs wherever it runs."""
    yield from examine_python()
    yield from examine_java(environ)
    yield from _examine_packages(settings)
    if settings.log.jvm_output:
        yield from examine_directory("log.jvm_output", str(Path(settings.log.jvm_output).parent))


def examine_python() -> Iterator[Finding]:
    """Compare Python's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        yield problem("python", sys.executable, found, "use Python 3.11 or newer")
    else:
        yield ok("python", sys.executable, found)


def examine_java(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Ask the Java that Spark would start for its version: JAVA_HOME's, else the first on the path."""
    home = environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH", ""))
    advice = "install a JDK 17 or 21, or set JAVA_HOME to one"
    if program is None:
        yield problem("java", home or "PATH", "there is no java", advice)
        return
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        yield problem("java", program, f"it does not answer: {error}", advice)
        return
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told)
    if found is None or int(found[1]) not in _JAVAS:
        first = told.splitlines()[0] if told else "nothing"
        yield problem("java", program, f"it says {first!r}", advice)
    else:
        yield ok("java", program, found[0])


def _examine_packages(settings: Settings) -> Iterator[Finding]:
    """Hold the packages that Spark will fetch against what is installed for Python."""
    about = "spark.packages"
    try:
        installed, pyspark = version("delta-spark"), version("pyspark")
    except PackageNotFoundError as error:
        yield problem("packages", str(error.name), "it is not installed", "install counterpoise anew")
        return
    line = ".".join(pyspark.split(".")[:2])
    packages = settings.spark.packages
    if not packages:
        yield ok("packages", about, "none: the jars are on the cluster, and were not looked at")
        return
    needs_kafka = any(source.from_ == "kafka" for source in settings.sources)
    found = {"delta-spark": [m for p in packages if (m := _DELTA.fullmatch(p))]}
    if needs_kafka:
        both = (*packages, *settings.spark.kafka_packages)
        found["spark-sql-kafka"] = [m for p in both if (m := _CONNECTOR.fullmatch(p))]
    faults = 0
    for name, matches in found.items():
        if not matches:
            faults += 1
            yield problem(
                "packages", about, f"{name} is not among them", f"take the default's line of {name} again"
            )
        for match in matches:
            parts = match.groupdict()
            if parts.get("version", installed) != installed or parts["spark"] not in (None, line):
                faults += 1
                yield problem(
                    "packages",
                    match[0],
                    f"installed are delta-spark {installed} and pyspark {pyspark}",
                    "let the versions match",
                )
    if not faults:
        yield ok("packages", about, f"as installed: delta-spark {installed}, pyspark {pyspark}")


def examine_directory(about: str, location: str) -> Iterator[Finding]:
    """See whether this user can work in a local directory that the job makes where it is missing.

    Says "ok" only together with what space there is.
    """
    place = Path(location)
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        yield problem("directory", about, f"{place} is not a directory", "move it away or name another place")
    elif not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "directory",
            about,
            f"user id {os.geteuid()} may not read and write in {place}",
            "give the job's user these rights, or run this as that user",
        )
    else:
        usage = shutil.disk_usage(place)
        yield judge_space(about, str(place), usage.total, usage.free)


def judge_space(about: str, place: str, total: int, free: int) -> Finding:
    """Say whether there is room enough, from the bytes of a file system."""
    found = f"{sized(free)} of {sized(total)} are free at {place}"
    advice = "make room; upkeep.keep_days, vacuum_after_h and log_retention_h say what the tables keep"
    if free < _NO_BYTES:
        return problem("space", about, found, advice)
    if free < _LITTLE_BYTES or free < _LITTLE_SHARE * total:
        return warning("space", about, found, advice)
    return ok("space", about, found)


def examine_source(source: SourceSettings) -> Iterator[Finding]:
    """See whether a source of files or a Delta table is there and can be read."""
    from streaming.tables.delta import absolute_location

    location = absolute_location(source.path)
    if source.from_ == "delta":
        yield from _examine_delta_source(source.name, location)
    elif "://" in location:
        yield ok("source", source.name, f"{location} is not local, and was not looked at")
    else:
        yield from _examine_files(source.name, Path(location))


def _examine_delta_source(name: str, location: str) -> Iterator[Finding]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(location)
    except (DeltaError, OSError) as error:
        yield problem(
            "source", name, f"{location} cannot be opened: {str(error).splitlines()[0]}", "correct its path"
        )
        return
    types = {field.name: getattr(field.type, "type", "nested") for field in table.schema().fields}
    if types.get("value") in ("string", "binary"):
        yield ok("source", name, f"{location}, version {table.version()}")
    else:
        yield problem(
            "source",
            name,
            f"table {location} has no column value of type string or binary",
            "make such a column, with one record a row",
        )


def _examine_files(name: str, directory: Path) -> Iterator[Finding]:
    if not directory.is_dir():
        found = "is not a directory" if directory.exists() else "does not exist"
        yield problem("source", name, f"{directory} {found}", "create it or correct the path")
        return
    if not os.access(directory, os.R_OK | os.X_OK):
        yield problem(
            "source",
            name,
            f"user id {os.geteuid()} may not read {directory}",
            "give the job's user this right, or run this as that user",
        )
        return
    unreadable, files = [], 0
    for folder, folders, names in os.walk(directory):
        # As Spark does: what begins so is not for it.
        folders[:] = [folder for folder in folders if not folder.startswith(("_", "."))]
        for file in names:
            if not file.startswith(("_", ".")):
                files += 1
                if not os.access(Path(folder) / file, os.R_OK):
                    unreadable.append(str(Path(folder) / file))
        unreadable += [str(Path(folder) / f) for f in folders if not os.access(Path(folder) / f, os.R_OK)]
        if files >= _MOST_FILES_TRIED:
            break
    if unreadable:
        more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
        yield problem(
            "source",
            name,
            f"user id {os.geteuid()} may not read {unreadable[0]}{more}",
            "give the job's user this right; Spark fails at the first of them",
        )
    else:
        yield ok(
            "source", name, f"{directory}, {files} files" + (" or more" if files >= _MOST_FILES_TRIED else "")
        )


def examine_storage(about: str, location: str, options: Mapping[str, str]) -> Iterator[Finding]:
    """Say of a URI whether all three that read and write it (Spark, delta-rs, Arrow) know its kind."""
    import pyarrow as pa
    import pyarrow.fs as pafs

    scheme = location.partition("://")[0]
    try:
        pafs.FileSystem.from_uri(location)
    except pa.ArrowInvalid as error:
        yield problem(
            "storage",
            about,
            f"{location}: {error}",
            "use a directory, or a store whose URI Spark, delta-rs and Arrow all know (s3, gs, abfss)",
        )
        return
    except OSError as error:
        yield problem_told("storage", about, f"{location} cannot be reached: {error}; see its credentials")
        return
    if scheme == "s3" and "spark.hadoop.fs.s3.impl" not in options:
        yield problem(
            "storage",
            about,
            f"{location}: Spark knows S3 as s3a, delta-rs and Arrow as s3",
            'set "spark.hadoop.fs.s3.impl" = "org.apache.hadoop.fs.s3a.S3AFileSystem" in [spark.options]',
        )
    else:
        yield warning(
            "storage",
            about,
            f"{location}: this release was only tried on local directories",
            "let nothing but this job write there",
        )
