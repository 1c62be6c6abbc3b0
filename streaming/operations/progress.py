"""What Spark says of the queries' progress: how far each is behind its sources, and that it is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from prometheus_client import Metric

    from streaming.operations.health import JobHealth


class _Ears:
    """What the JVM calls, from the thread that serves listeners and never from a batch's.

    PySpark's own takes an event apart by some hundred calls back into the JVM, a
    quarter of a second of the interpreter; here it is two.
    """

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Need nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Keep the last progress of the query."""
        self._listener.note(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Pass on that a trigger found nothing."""
        self._listener.on_idle(str(event.id().toString()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Forget the query."""
        self._listener.forget(str(event.id().toString()))

    class Java:
        """Says to py4j what this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class ProgressListener(StreamingQueryListener):
    """Keeps the last progress of each query of the session."""

    def __init__(self, on_idle: Callable[[str], None]) -> None:
        """Start with none; `on_idle` is called with the id of a query whose trigger found nothing."""
        self.on_idle = on_idle
        self._progress: dict[str, str] = {}

    @property
    def _jlistener(self) -> Any:
        from pyspark import SparkContext

        if not hasattr(self, "_wrapped"):
            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_Ears(self))
        return self._wrapped

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Never called: _Ears hears in this listener's place."""

    onQueryProgress = onQueryTerminated = onQueryStarted  # noqa: N815

    def note(self, progress: str) -> None:
        """Keep the last progress of a query, a StreamingQueryProgress as JSON."""
        self._progress[orjson.loads(progress)["id"]] = progress

    def forget(self, query_id: str) -> None:
        """Drop what is known of a query that has ended."""
        self._progress.pop(query_id, None)

    def of(self, query_id: str | None) -> dict[str, Any]:
        """Give a query's last progress, {} for none."""
        progress = self._progress.get(query_id or "")
        found: dict[str, Any] = {} if progress is None else orjson.loads(progress)
        return found


class SourceLag(Collector):
    """counterpoise_source_lag_records: records of a Kafka source behind the end of the last batch.

    As the last batch found it, so it stands still while a batch runs. Of files and
    Delta tables Spark says nothing of the kind.
    """

    def __init__(
        self,
        progress: ProgressListener,
        health: Mapping[str, JobHealth],
        sources: Mapping[str, Sequence[str]],
    ) -> None:
        """Look at the progress of these jobs' queries.

        Args:
            progress: of all queries.
            health: cluster -> its job, which knows its query.
            sources: cluster -> names of its sources, in the order in which the query has them.
        """
        self._progress = progress
        self._health = health
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Make the two families that are read off the jobs as they stand."""
        running = GaugeMetricFamily(
            "counterpoise_query_running", "1 while the job's query runs", labels=["cluster"]
        )
        lag = GaugeMetricFamily(
            "counterpoise_source_lag_records",
            "Records of a Kafka source that the last batch left unread",
            labels=["cluster", "source"],
        )
        for cluster, health in self._health.items():
            running.add_metric([cluster], health.is_running)
            # Behind them comes the job's own source of ticks.
            told = self._progress.of(health.query_id).get("sources", ())
            for name, source in zip(self._sources[cluster], told, strict=False):
                behind = lag_records(source)
                if behind is not None:
                    lag.add_metric([cluster, name], behind)
        yield running
        yield lag


def lag_records(source: Mapping[str, Any]) -> int | None:
    """Count what lies behind the last batch's end in a source, as Spark tells of it; None if it does not.

    >>> lag_records({"endOffset": {"t": {"0": 5, "1": 2}}, "latestOffset": {"t": {"0": 9, "1": 2}}})
    4
    """
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if not isinstance(latest, dict) or not isinstance(end, dict):
        return None
    behind = 0
    for topic, offsets in latest.items():
        if not isinstance(offsets, dict):
            return None
        read = end.get(topic, {})
        behind += sum(max(offset - read.get(partition, 0), 0) for partition, offset in offsets.items())
    return behind
