"""What a cluster's brokers say of topics and groups, as events like any other.

The job asks on a schedule and when an unknown topic turns up, and writes the answers
down as `topic_changed` and `group_state`, so that a replay needs no broker. Nothing
here has a thread, or a clock but for the waits after a failure: whoever calls says
what time it is.

librdkafka lists groups of consumers alone, under the classic protocol and KIP-848; a
Connect cluster is asked for by its name. Share groups tell their states in the log.
"""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from conf.layers import SettingsError
from conf.sources import OFFSETS_TOPIC
from streaming.sources.kafka import GROUP_PREFIX

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

    from streaming.model import TopicState

_log = logging.getLogger(__name__)

Event = dict[str, Any]
_T = TypeVar("_T")

REQUEST_TIMEOUT_S = 10.0
_NAMES_PER_REQUEST = 500
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 300.0

NO_ANSWER = "answers"
"""The occasion of a problem that stands for all others."""

_SILENCE = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT"})
"""What librdkafka calls it, now this and now that, when nobody answers: one outage, one line."""

_NOBODYS_NAME = "counterpoise-asks-what-it-may-see"
"""Of a topic and a group that nobody has. Who may not see what is there sees nothing, without a word;
asked for by name, a thing is refused or unknown. Describing makes no topic."""

_STATES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
}


class ClusterMetadata:
    """Asks one cluster's brokers through librdkafka's admin client."""

    def __init__(
        self, cluster: str, options: Mapping[str, str], tell: Callable[[str, str], None] | None = None
    ) -> None:
        """Make the client, which connects when it is first asked.

        Args:
            cluster: the name that the events carry.
            options: librdkafka's, as conf.clusters.admin_options gives them.
            tell: hears of each problem, with the occasion (NO_ANSWER or another); by default it is logged.

        Raises:
            SettingsError: librdkafka refuses an option; named without its value.
        """
        self.cluster = cluster
        self._tell = tell or (lambda _occasion, problem: _log.warning("cluster %r %s", cluster, problem))
        self._states: dict[str, str] = {}
        self._told: dict[str, list[Event]] = {}
        self._said: dict[str, str] = {}
        self._failures = 0
        self._next_try_s = 0.0
        self._last_error: KafkaError | None = None
        # Its own log would tell of each failed connection; what matters of that is in the errors.
        conf: dict[str, Any] = {"log_level": "2", "error_cb": self._note_error, **options}
        refused = None
        try:
            self.client = AdminClient(conf)
        except KafkaException as error:
            # Nothing else leaves this block: librdkafka's words hold the option's value.
            named = re.search(r'property:? "([\w.]+)"', _error_of(error).str())
            refused = f"the option {named[1]!r}" if named else "these options together"
        if refused is not None:
            raise SettingsError(
                [f"clusters.{cluster}: librdkafka refuses {refused}; see [clusters.{cluster}.admin]"]
            )

    def topic_events(
        self, known: Mapping[str, TopicState], only: Collection[str] | None = None, *, now_ms: int
    ) -> list[Event]:
        """Ask for topics and say what is new.

        Kafka's internal topics are left out. A topic never seen before is dated
        1970: how long it has had its partitions is not known, and a group's baseline
        needs their number. One deleted and made anew (another topic id) is first
        gone, then there. A topic has `partition_racks` when a broker of it has a rack.

        Args:
            known: topic -> state as the log has it.
            only: the topics to ask for, none of which is ever said to be gone; None
                for all.
            now_ms: the present time, epoch milliseconds.

        Returns:
            `topic_changed` events by topic; none while the cluster does not answer:
            then a line is logged, and the next tries wait longer and longer.
        """
        return self._asked(lambda: self._news(self._topic_events(known, only, now_ms)))

    def group_events(self, now_ms: int, others: Collection[str] = ()) -> list[Event]:
        """Ask for the states of groups and say which have changed since the last call.

        Args:
            now_ms: the present time, epoch milliseconds.
            others: group ids that are no consumers' (Connect clusters), which the
                list of groups lacks. Each costs requests of its own.

        Returns:
            `group_state` events by group id; of all groups at the first call. Groups
            without a protocol (only offsets are stored for them) and those that our
            own sources read as are left out, and so is a state that librdkafka does
            not know (Assigning, Reconciling). None while the cluster does not answer, see topic_events.
        """
        return self._asked(lambda: list(self._group_events(now_ms, others)))

    def _news(self, events: Iterable[Event]) -> list[Event]:
        """Leave out what was said before: a batch may last longer than the time between two questions."""
        by_topic: dict[str, list[Event]] = {}
        for event in events:
            by_topic.setdefault(event["topic"], []).append(event)
        news = []
        for topic, said in by_topic.items():
            content = [{**event, "event_time": None} for event in said]
            if self._told.get(topic) != content:
                self._told[topic] = content
                news += said
        return news

    def _topic_events(
        self, known: Mapping[str, TopicState], only: Collection[str] | None, now_ms: int
    ) -> Iterator[Event]:
        # A topic that is gone from the list may be hidden from us: asked for by name, it tells.
        wanted = only if only is not None else {*self.client.list_topics(timeout=REQUEST_TIMEOUT_S).topics}
        names = {name for name in wanted if name and not _is_internal(name)}
        if only is None:
            names |= {name for name, state in known.items() if state.partition_count > 0}
            names = names or {_NOBODYS_NAME}
        asked_as = "all topics" if only is None else "some topics"
        for topic, found in self._describe_topics(sorted(names), asked_as):
            yield from self._changes(found, topic, known.get(topic), now_ms, may_be_gone=only is None)

    def _describe_topics(
        self, names: list[str], asked_as: str
    ) -> Iterator[tuple[str, TopicDescription | None]]:
        """Ask for topics by name: (name, its description, or None when there is no such topic).

        What is wrong with them is logged when it is not what was wrong when last
        asked so, `asked_as` being the occasion.
        """
        refused: list[str] = []
        problems: list[str] = []
        for i in range(0, len(names), _NAMES_PER_REQUEST):
            asked = TopicCollection(names[i : i + _NAMES_PER_REQUEST])
            futures = self.client.describe_topics(asked, request_timeout=REQUEST_TIMEOUT_S)
            for name, future in futures.items():
                try:
                    yield name, _result(future)
                except KafkaException as error:
                    code = _error_of(error).code()
                    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        yield name, None
                    elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        refused.append(name)
                    elif code < 0:  # librdkafka's own: there was no answer
                        raise
                    elif code != KafkaError.LEADER_NOT_AVAILABLE:  # as of a topic in the making
                        problems.append(f"{name!r}: {_error_of(error).str()}")
        self._say_refused(asked_as, "topic", refused)
        text = f"tells nothing of {len(problems)} topics: {problems[0]}" if problems else ""
        self._say(f"{asked_as}, each", text)

    def _changes(
        self,
        found: TopicDescription | None,
        topic: str,
        before: TopicState | None,
        now_ms: int,
        *,
        may_be_gone: bool,
    ) -> Iterator[Event]:
        """Compare one topic with what is known of it."""
        was_there = before is not None and before.partition_count > 0
        event: Event = {"type": "topic_changed", "cluster": self.cluster, "topic": topic}
        gone = {**event, "event_time": now_ms, "partitions": 0}
        if found is None or not found.partitions:
            if was_there and may_be_gone and found is None:
                yield gone
            return
        topic_id, racks = _topic_id(found), _racks(found)
        if before is not None and was_there:
            seen = (before.topic_id, before.partition_count, before.racks)
            if seen == (topic_id or before.topic_id, len(found.partitions), tuple(map(tuple, racks))):
                return
            if None not in {before.topic_id, topic_id} and before.topic_id != topic_id:
                yield gone
        event["partitions"] = len(found.partitions)
        if topic_id is not None:
            event["topic_id"] = topic_id
        if racks:
            event["partition_racks"] = racks
        yield {**event, "event_time": 0 if before is None else now_ms}

    def _group_events(self, now_ms: int, others: Collection[str]) -> Iterator[Event]:
        listed = _result(self.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S))
        problems = sorted({_error_of(error).str() for error in listed.errors or ()})
        self._say("list", f"gives no whole list of its groups: {'; '.join(problems)}" if problems else "")
        told = {
            group.group_id: (_STATES.get(group.state, ""), "consumer", group.type.name.lower())
            for group in listed.valid or ()
            if not group.is_simple_consumer_group and not group.group_id.startswith(GROUP_PREFIX)
        }
        silent = [
            group_id for group_id in sorted({*others} - told.keys()) if not self._ask_one(group_id, told)
        ]
        if not listed.valid and not problems:
            silent.append(_NOBODYS_NAME)
        self._say_refused("groups", "group", self._refused_groups(silent))
        before, now = self._states, {group_id: state for group_id, (state, _, _) in told.items()}
        # Where a broker gave no list, its groups are as they were.
        self._states = {**before, **now} if problems else now
        for group_id, (state, protocol_type, group_type) in sorted(told.items()):
            if state and state != before.get(group_id):
                yield {
                    "type": "group_state",
                    "event_time": now_ms,
                    "cluster": self.cluster,
                    "group_id": group_id,
                    "state": state,
                    "protocol_type": protocol_type,
                    "group_type": group_type,
                }

    def _ask_one(self, group_id: str, told: dict[str, tuple[str, str, str]]) -> bool:
        """Ask for one classic group of whatever protocol type; say whether a broker knows it."""
        with warnings.catch_warnings():
            # Its successors refuse what is no consumer group.
            warnings.simplefilter("ignore", DeprecationWarning)
            groups: list[Any] = self.client.list_groups(group_id, timeout=REQUEST_TIMEOUT_S)
        for group in groups:
            if (
                group.protocol_type
            ):  # Kafka calls a group Dead, without a type, that is none of the classic kind
                told[str(group.id)] = (str(group.state), str(group.protocol_type), "classic")
        return bool(groups)

    def _refused_groups(self, group_ids: list[str]) -> list[str]:
        """List those of these groups that we may not see.

        Asking for a group makes Kafka create the topic that its coordinator keeps,
        so nobody is asked for while that is not there: there are no groups then.
        """
        described = dict(self._describe_topics([OFFSETS_TOPIC], "offsets")) if group_ids else {}
        if described.get(OFFSETS_TOPIC) is None:
            return []
        futures = self.client.describe_consumer_groups(group_ids, request_timeout=REQUEST_TIMEOUT_S)
        refused = []
        for group_id, future in futures.items():
            try:
                _result(future)
            except KafkaException as error:
                code = _error_of(error).code()
                if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    refused.append(group_id)
                elif (
                    code < 0 and code != KafkaError._INVALID_ARG
                ):  # it answers so to what is no consumer group
                    raise
        return refused

    def _asked(self, ask: Callable[[], list[Event]]) -> list[Event]:
        """Ask, unless the cluster has not answered lately; what goes wrong costs a line and a wait."""
        if time.monotonic() < self._next_try_s:
            return []
        self.client.poll(0)
        self._last_error = None
        try:
            events = ask()
        except (KafkaException, TimeoutError) as error:
            self.client.poll(0)  # brings the errors of connections, which say why
            why = self._last_error or (_error_of(error) if isinstance(error, KafkaException) else None)
            self._next_try_s = time.monotonic() + min(_FIRST_WAIT_S * 2**self._failures, _LONGEST_WAIT_S)
            self._failures += 1
            text = f"does not answer: {why.str() if why else error}; it is asked again, less and less often"
            name = why.name() if why else ""
            self._say(NO_ANSWER, text, about="" if name in _SILENCE else name)
            return []
        if self._failures:
            _log.info("cluster %r answers again", self.cluster)
        self._failures = 0
        self._say(NO_ANSWER, "")
        return events

    def _note_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the others say why
            self._last_error = error

    def _say_refused(self, asked_as: str, kind: str, names: list[str]) -> None:
        """Name the ACL that is missing for these topics or groups."""
        if not names:
            self._say(asked_as, "")
            return
        what = f"any {kind}" if names == [_NOBODYS_NAME] else f"{kind} {names[0]!r}"
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        resource = "'*'" if names == [_NOBODYS_NAME] else repr(names[0])
        self._say(
            asked_as,
            f"does not let this user describe {what}{more}; allow it: kafka-acls --add "
            f"--allow-principal User:NAME --operation Describe --{kind} {resource}",
        )

    def _say(self, key: str, problem: str, about: str | None = None) -> None:
        """Log a problem unless it, or another about the same, stands already; "" ends what `key` has said."""
        about = problem if about is None else about
        if problem and about not in self._said.values():
            self._tell(key, problem)
        if problem:
            self._said[key] = about
        else:
            self._said.pop(key, None)


def _topic_id(topic: TopicDescription) -> str | None:
    """Give a topic's id as Kafka prints it, None from a broker before 2.8, which has none."""
    told = str(topic.topic_id).replace("+", "-").replace("/", "_")
    return told if told.strip("A") else None


def _racks(topic: TopicDescription) -> list[list[str | None]]:
    """List the racks of each partition's replicas, by partition; nothing when no broker has a rack."""
    by_number = sorted(topic.partitions, key=lambda partition: partition.id)
    racks = [[node.rack or None for node in partition.replicas] for partition in by_number]
    return racks if any(rack for of_partition in racks for rack in of_partition) else []


def _result(future: Future[_T]) -> _T:
    # librdkafka keeps to the request's timeout itself; this is for an answer that is lost on the way.
    return future.result(timeout=REQUEST_TIMEOUT_S + 5)


def _error_of(error: Exception | KafkaError) -> KafkaError:
    """Give what librdkafka says: inside its exception, or as lists of errors hold it, without one."""
    if isinstance(error, KafkaError):
        return error
    told: KafkaError = error.args[0]
    return told


def _is_internal(topic: str) -> bool:
    """Say whether a topic is Kafka's own; nobody's group reads those."""
    return topic.startswith("__")
