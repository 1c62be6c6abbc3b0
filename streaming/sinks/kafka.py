"""A Kafka topic as a sink: deltas and generations, each at least once, a group's in order.

The producer is idempotent and gapless: nothing is delivered behind a message that was
refused. What was not delivered is sent again, by a new producer after a refusal, until
it is, or until the job stops; then the next start sends it, from the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from conf.clusters import admin_options
from streaming.crash_points import reach
from streaming.sinks.messages import Message, messages_of
from streaming.tables.delta import JobError

if TYPE_CHECKING:
    import pyarrow as pa

    from conf.settings import Settings

_logger = logging.getLogger(__name__)

# What goes wrong is told once, in our own words; librdkafka would write to stderr besides.
_silent_logger = logging.getLogger(f"{__name__}.librdkafka")
_silent_logger.setLevel(logging.CRITICAL + 1)

_PRODUCER_OPTIONS = {
    "enable.idempotence": True,
    "acks": "all",
    "enable.gapless.guarantee": True,
    # Kafka's own partitioner, so that a reader finds a group's partition as any client does.
    "partitioner": "murmur2_random",
    # Of a message that waits for its broker the sink itself decides when to give up: never.
    "message.timeout.ms": 0,
    # librdkafka counts bytes before compression; the topic's limit, which counts after, is what binds.
    "message.max.bytes": 100_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "compression.type": "zstd",
}

_STEP_S = 0.2
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0
_LAST_WORDS_S = 5.0


class KafkaSink:
    """One topic; not for two threads at once."""

    def __init__(
        self,
        name: str,
        options: Mapping[str, str],
        topic: str,
        what: Collection[str],
        *,
        flush_timeout_s: float = 30.0,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the sink; no broker is asked for anything yet.

        Args:
            name: the sink's, under which its progress is noted.
            options: librdkafka's, in clear; what order and delivery need is laid over them.
            topic: where to.
            what: "deltas", "generations" or both.
            flush_timeout_s: how long without a delivery until that is logged.
            is_stopping: asked while a message waits; when True for a message that has
                waited for some seconds, it is given up for this time.
        """
        self.name = name
        self._options = dict(options)
        self._topic = topic
        self._what = tuple(what)
        self._flush_timeout_s = flush_timeout_s
        self._is_stopping = is_stopping
        self._producer: Producer | None = None
        self._last_error: KafkaError | None = None

    def send(self, rows: pa.Table) -> bool:
        """Send the messages of one batch's rows of the log and wait until all are delivered.

        Args:
            rows: in the order of the log.

        Returns:
            Whether all were delivered; False only when the job stops first.

        Raises:
            JobError: the options cannot be used.
        """
        pending = list(messages_of(rows, self._what))
        if not pending:
            return True
        reach("before_sink")
        began = time.monotonic()

        def gives_up() -> bool:
            # A stop must not cost a batch its messages when all it takes is a moment.
            return self._is_stopping() and time.monotonic() - began > _LAST_WORDS_S

        wait_s = _FIRST_WAIT_S
        while pending:
            before = len(pending)
            pending = self._deliver(pending, gives_up)
            if not pending:
                break
            if gives_up():
                _logger.warning(
                    "%s: the job stops with %d messages of a batch undelivered; the next start sends them",
                    self._told(),
                    len(pending),
                )
                self._drop_producer()
                return False
            _logger.error(
                "%s: %d of %d messages were not delivered: %s; next try in %g s",
                self._told(),
                len(pending),
                before,
                self._told_error(),
                wait_s,
            )
            until = time.monotonic() + wait_s
            while not gives_up() and time.monotonic() < until:
                time.sleep(_STEP_S)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        reach("after_sink")
        return True

    def _deliver(self, messages: Sequence[Message], gives_up: Callable[[], bool]) -> list[Message]:
        """Send messages in order; give those, in order, of which nobody has confirmed the delivery.

        Returns early after the first refusal, with the producer thrown away, and when `gives_up` says so.
        """
        self._last_error = None
        producer = self._producer or self._make_producer()
        waiting = dict(enumerate(messages))
        refused: list[KafkaError] = []

        def note(number: int) -> Callable[[KafkaError | None, Any], None]:
            def take(error: KafkaError | None, _message: Any) -> None:
                if error is None:
                    waiting.pop(number, None)
                else:
                    refused.append(error)

            return take

        told_at = time.monotonic() + self._flush_timeout_s
        unsent = iter(messages)
        upcoming = next(unsent, None)
        number = 0
        while waiting and not refused and not gives_up():
            try:
                while upcoming is not None:
                    producer.produce(
                        self._topic,
                        key=upcoming.key,
                        value=upcoming.value,
                        headers=upcoming.headers,
                        on_delivery=note(number),
                    )
                    upcoming, number = next(unsent, None), number + 1
                producer.flush(_STEP_S)
            except BufferError:  # the producer's queue is full
                producer.poll(_STEP_S)
            except KafkaException as error:
                refused.append(error.args[0])
            if waiting and time.monotonic() >= told_at:
                told_at = time.monotonic() + self._flush_timeout_s
                _logger.warning(
                    "%s: %d messages wait for delivery since %g s or more: %s",
                    self._told(),
                    len(waiting),
                    self._flush_timeout_s,
                    self._told_error(),
                )
        if refused:
            # The first says why; what follows it is only that nothing may be delivered behind it.
            self._last_error = refused[0]
            self._drop_producer()
        return [messages[place] for place in sorted(waiting)]

    def _make_producer(self) -> Producer:
        options = {**self._options, **_PRODUCER_OPTIONS, "error_cb": self._note_error}
        try:
            self._producer = Producer(options, logger=_silent_logger)
        except KafkaException as error:
            raise JobError(f"{self._told()}: {error.args[0].str()}; correct the cluster's options") from None
        return self._producer

    def _drop_producer(self) -> None:
        """Forget the producer and whatever it still holds."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(_LAST_WORDS_S)

    def _note_error(self, error: KafkaError) -> None:
        """Remember what librdkafka goes on trying to overcome: a broker away, a login refused."""
        # That all brokers are down follows from what was said of each, and says less.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _told(self) -> str:
        return f"sink {self.name!r}, topic {self._topic!r}"

    def _told_error(self) -> str:
        if self._last_error is None:
            return "the cluster does not answer"
        return f"{self._last_error.name()} ({self._last_error.str()})"


def sinks_of(settings: Settings, is_stopping: Callable[[], bool]) -> list[KafkaSink]:
    """Make the sinks of one deployment.

    Args:
        settings: the deployment's, from `Settings.by_cluster`.
        is_stopping: as KafkaSink has it.

    Raises:
        SettingsError: a secret is not there, or a login that only Java can do.
    """
    return [
        KafkaSink(
            sink.name,
            admin_options(settings.clusters[sink.cluster or settings.job.cluster]),
            sink.topic,
            sink.what,
            flush_timeout_s=sink.flush_timeout_s,
            is_stopping=is_stopping,
        )
        for sink in settings.sinks
    ]
