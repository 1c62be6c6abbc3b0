"""The rules for single fields of events: what each may hold, and what to say when it does not.

A rule takes a value as orjson gave it and returns nothing or raises `EventError`
with the place below the field, what was found and what is allowed. Types are strict:
a boolean is no integer, 3.0 is no integer, and a number in quotes is a string.
"""

from __future__ import annotations

import re
import reprlib
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from datetime import date
from functools import lru_cache

import re2

Rule = Callable[[object], None]

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_NAME_CHARS = 32767
"""Kafka writes names with an int16 length; nothing longer can come from a group."""

FIRST_TIME_MS = -62_135_596_800_000
LAST_TIME_MS = 253_402_300_799_999
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z, the range of a timestamp column."""

_MS_PER_DAY = 86_400_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_UUID_CHARS = 22

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)

_NAME = f"a string of 1 to {MAX_NAME_CHARS} characters, none of them NUL"
_TEXT = f"a string of at most {MAX_NAME_CHARS} characters, none of them NUL"
_TIME = (
    "an RFC 3339 time with offset such as '2026-01-31T12:00:00Z', or an integer of epoch milliseconds, "
    "in the years 1 to 9999"
)

_WORDS = {None: "null", True: "true", False: "false"}
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlist = _short.maxdict = 4
_short.maxlevel = 3


class EventError(ValueError):
    """A record that is no event: which field, what it holds, what it may hold.

    `field` is the path of the field (`members[2].assigned`), `found` what it holds,
    shortened for people, and `allowed` what it may hold.
    """

    def __init__(self, found: str, allowed: str, field: str = "") -> None:
        """Say what was found and what is allowed; the field's path grows on the way up."""
        super().__init__(found, allowed, field)
        self.found = found
        self.allowed = allowed
        self.field = field

    def inside(self, name: str) -> EventError:
        """Put the name of the enclosing field before the path."""
        joint = "." if self.field and not self.field.startswith("[") else ""
        return EventError(self.found, self.allowed, name + joint + self.field)

    def __str__(self) -> str:
        return f"{self.field or 'record'} {self.found}; {self.allowed}"


def shown(value: object) -> str:
    """Write a value for an error message: JSON's words, strings and long values cut."""
    if value is None or type(value) is bool:
        return _WORDS[value]
    return _short.repr(value)


def refuse(value: object, allowed: str, field: str = "") -> EventError:
    """Make the error for a value that is not what it must be."""
    return EventError(f"is {shown(value)}", f"it must be {allowed}", field)


def name(value: object) -> None:
    """Allow a name: of a group, a member, a topic, a protocol."""
    if type(value) is not str or not 0 < len(value) <= MAX_NAME_CHARS or "\0" in value:
        raise refuse(value, _NAME)


def text(value: object) -> None:
    """Allow a text that may be empty."""
    if type(value) is not str or len(value) > MAX_NAME_CHARS or "\0" in value:
        raise refuse(value, _TEXT)


def integer(lowest: int, highest: int = MAX_INT32) -> Rule:
    """Make the rule for an integer of this range, both ends included."""

    def check_integer(value: object) -> None:
        if type(value) is not int or not lowest <= value <= highest:
            raise refuse(value, f"an integer from {lowest} to {highest}")

    return check_integer


def number(lowest: float, highest: float) -> Rule:
    """Make the rule for a number of this range, both ends included, whole or not."""

    def check_number(value: object) -> None:
        if type(value) not in (int, float) or not lowest <= value <= highest:  # type: ignore[operator]
            raise refuse(value, f"a number from {lowest:g} to {highest:g}")

    return check_number


def one_of(*words: str) -> Rule:
    """Make the rule for one of these words."""

    def check_word(value: object) -> None:
        if type(value) is not str or value not in words:
            raise refuse(value, "one of " + ", ".join(map(repr, words)))

    return check_word


def list_of(rule: Rule, what: str, *, at_least: int = 0) -> Rule:
    """Make the rule for a list whose items obey `rule`; `what` names them in the plural."""
    allowed = f"a list of {what}" if at_least == 0 else f"a list of {at_least} or more {what}"

    def check_list(value: object) -> None:
        if type(value) is not list or len(value) < at_least:
            raise refuse(value, allowed)
        i = 0
        try:
            for i, item in enumerate(value):  # noqa: B007 - the error names it
                rule(item)
        except EventError as error:
            raise error.inside(f"[{i}]") from None

    return check_list


def partitions_by_topic(lowest: int = 0) -> Rule:
    """Make the rule for an object topic -> list of partition numbers, `lowest` or more."""
    numbers = list_of(integer(lowest), "partition numbers")

    def check_partitions(value: object) -> None:
        if type(value) is not dict:
            raise refuse(value, "an object of topic names, each with a list of partition numbers")
        for topic, partitions in value.items():
            try:
                name(topic)
                numbers(partitions)
            except EventError as error:
                raise error.inside(f"[{shown(topic)}]") from None

    return check_partitions


def optional(rule: Rule) -> Rule:
    """Make the rule that allows null besides what `rule` allows."""

    def check_optional(value: object) -> None:
        if value is None:
            return
        try:
            rule(value)
        except EventError as error:
            raise EventError(error.found, f"{error.allowed}, or null", error.field) from None

    return check_optional


def base64_text(value: object) -> None:
    """Allow bytes as RFC 4648 base64 with padding."""
    if type(value) is str:
        try:
            a2b_base64(value, strict_mode=True)
            return
        except (Base64Error, ValueError):
            pass
    raise refuse(value, "base64 text with padding")


def topic_pattern(value: object) -> None:
    """Allow a regular expression that RE2 compiles, so that matching is linear in the name."""
    name(value)
    problem = _pattern_problem(value)
    if problem is not None:
        raise refuse(value, f"a regular expression of RE2 ({shown(problem)})")


@lru_cache(maxsize=1024)
def _pattern_problem(pattern: str) -> str | None:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options=options)
    except re2.error as error:
        found = error.args[0] if error.args else ""
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
    return None


def topic_id(value: object) -> None:
    """Allow a topic id as Kafka prints it: the 22 characters of a URL-safe base64 UUID."""
    if type(value) is str and _TOPIC_ID.fullmatch(value):
        raw = a2b_base64(value.replace("-", "+").replace("_", "/") + "==")
        again = b2a_base64(raw, newline=False)[:_UUID_CHARS].decode()
        # The last character carries four bits that no UUID has: two texts for one id would compare unequal.
        if again.replace("+", "-").replace("/", "_") == value:
            return
    raise refuse(value, "a topic id as Kafka prints it, 22 characters of URL-safe base64")


racks = list_of(list_of(optional(text), "racks"), "rack lists, one for each partition")
"""Allows the racks of a topic's replicas: a list for each partition, null for a rack that is unknown."""


def time_ms(value: object) -> int:
    """Turn an event time into epoch milliseconds; digits behind the millisecond are cut off.

    Raises:
        EventError: it is neither an RFC 3339 time with offset nor an integer, or
            lies outside the years 1 to 9999.

    >>> time_ms("1970-01-01T01:00:00.0019+01:00")
    1
    """
    moment = value if type(value) is int else _rfc3339_ms(value) if type(value) is str else None
    if moment is None or not FIRST_TIME_MS <= moment <= LAST_TIME_MS:
        raise refuse(value, _TIME)
    return moment


def _rfc3339_ms(value: str) -> int | None:
    """Read an RFC 3339 time; None when it is none. A leap second counts as the second behind it."""
    match = _RFC3339.fullmatch(value)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, offset_hour, offset_minute = match.group(7, 8, 9, 10)
    offset_minutes = 0
    if sign:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            return None
        offset_minutes = (int(offset_hour) * 60 + int(offset_minute)) * (1 if sign == "+" else -1)
    is_last_minute = (hour * 60 + minute - offset_minutes) % 1440 == 1439
    if hour > 23 or minute > 59 or second > (60 if is_last_minute else 59):
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    ms = int((fraction or "0")[:3].ljust(3, "0"))
    return days * _MS_PER_DAY + ((hour * 60 + minute - offset_minutes) * 60 + second) * 1000 + ms
