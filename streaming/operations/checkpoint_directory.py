"""A checkpoint's directory as Spark leaves it: which batches were planned and done, and whose it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow.fs as pafs

from streaming.tables.delta import JobError, absolute_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointDirectory(ABC):
    """What a job needs to know of a checkpoint before its query starts, however the directory is reached."""

    def __init__(self, location: str) -> None:
        """Look at this directory or URI, which need not be there."""
        self.location = absolute_location(location)

    @abstractmethod
    def _names(self, below: str) -> Iterable[str]:
        """Name what lies in a directory below, nothing where there is none."""

    @abstractmethod
    def _text(self, below: str) -> str | None:
        """Read a file below, None where there is none."""

    def numbers(self, name: str) -> Collection[int]:
        """List the batches of which a directory of notes has one."""
        return {int(note) for note in self._names(name) if note.isdecimal()}

    def last_place(self) -> dict[str, Any] | None:
        """Read where the last batch that was planned ends in the last of the sources, as Spark notes it.

        None where nothing was planned, or that source had nothing yet.
        """
        planned = self.numbers("offsets")
        text = self._text(f"offsets/{max(planned)}") if planned else None
        # "v1", a line of the batch's own, then one for each source.
        noted = (text or "").splitlines()[2:]
        if not noted or noted[-1] == "-":
            return None
        try:
            return dict(orjson.loads(noted[-1]))
        except (ValueError, TypeError) as error:
            raise JobError(
                f"checkpoint {self.location}: its file `offsets/{max(planned)}` ends in {noted[-1][:80]!r}, "
                "not what Spark writes; put back a whole copy, or move the directory away and run once with "
                "--adopt"
            ) from error

    def checkpoint_id(self) -> str | None:
        """Read the id under which the log knows the checkpoint, None when the directory has none."""
        text = self._text("metadata")
        if text is None:
            return None
        try:
            return str(orjson.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"checkpoint {self.location}: its file `metadata` is {text[:80]!r}, not what Spark writes; "
                "put back a whole copy, or move the directory away and run once with --adopt"
            ) from error


class HadoopDirectory(CheckpointDirectory):
    """Reached as Spark does, whatever it lies on."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Look at it through this session."""
        super().__init__(location)
        # PySpark has no public way to ask Hadoop about a path.
        self._jvm: Any = spark._jvm
        self._files = self._path().getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, *below: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self.location, *below)))

    def _names(self, below: str) -> Iterable[str]:
        path = self._path(below)
        if not self._files.exists(path):
            return ()
        return [status.getPath().getName() for status in self._files.listStatus(path)]

    def _text(self, below: str) -> str | None:
        path = self._path(below)
        if not self._files.exists(path):
            return None
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Py4JJavaError as error:
            raise JobError(
                f"checkpoint {self.location}: its file `{below}` cannot be read: "
                f"{error.java_exception.toString()}; put back a whole copy, or move the directory away and "
                "run once with --adopt"
            ) from None
        finally:
            stream.close()


class ArrowDirectory(CheckpointDirectory):
    """Reached without a JVM: a local directory, or a store that Arrow knows by its URI."""

    def __init__(self, location: str) -> None:
        """Look at it.

        Raises:
            OSError: the store cannot be reached.
            ValueError: Arrow knows no such store.
        """
        super().__init__(location)
        self._files, self._base = pafs.FileSystem.from_uri(self.location)

    def _names(self, below: str) -> Iterable[str]:
        wanted = pafs.FileSelector(f"{self._base}/{below}", allow_not_found=True)
        return [found.base_name for found in self._files.get_file_info(wanted)]

    def _text(self, below: str) -> str | None:
        path = f"{self._base}/{below}"
        if self._files.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode("utf-8", errors="replace")
