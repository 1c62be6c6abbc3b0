"""Subscription patterns: RE2's, and a topic's whole name must match (docs/adr/0007)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

_MOST_COMPILED = 4_096
"""Of how many patterns the program is kept: 5 KB for a name with a few wildcards. Compiling takes ten
times as long as matching."""

_PLAIN_BEGINNING = re.compile(r"[^\\()\[\]{}]*[\\(\[{]?")
"""What stands before the first escape, group, class or count, and the character that begins it: the one
before may be optional by it, by `{0}` and by `(?i)?` too, which RE2 reads as `?`."""
_LITERAL = re.compile(r"[^.^$*+?\\()\[\]{}]+(?![*+?\\(\[{])")


@lru_cache(maxsize=_MOST_COMPILED)
def compiled(pattern: str) -> Any:
    """Compile a pattern, once for as long as it is kept.

    Raises:
        re2.error: it is none of RE2's.
    """
    return re2.compile(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Say whether a pattern takes in this topic, whether or not it exists.

    Most patterns have literal text that a name must have: where it lacks, nothing is compiled.

    Raises:
        re2.error: it is none of RE2's, as far as that was looked at.

    >>> [matches("orders-.*", topic) for topic in ("orders-eu", "old-orders-eu", "orders")]
    [True, False, False]
    """
    return (
        all(text in topic for text in _literals(pattern)) and compiled(pattern).fullmatch(topic) is not None
    )


def _literals(pattern: str) -> list[str]:
    """Give text that stands in all that a pattern matches; not always all such text."""
    plain = None if "|" in pattern else _PLAIN_BEGINNING.match(pattern)
    return _LITERAL.findall(plain.group()) if plain else []


class ChangedTopics:
    """The topics of one cluster that have changed, and which patterns take in any of them."""

    def __init__(self, topics: Iterable[str]) -> None:
        """Ask about these topics; each pattern is looked at once."""
        self._topics = sorted(topics)
        self._known: dict[str, bool] = {}

    def match_any(self, patterns: Iterable[str] | None) -> bool:
        """Say whether one of a group's patterns takes in one of the topics.

        Where its patterns are not known (None: a release before wrote its row, or it is set aside) it has
        to hear of everything; so does a group with a pattern that cannot be compiled, which says so itself.
        """
        return patterns is None or any(map(self._matches, patterns))

    def _matches(self, pattern: str) -> bool:
        known = self._known.get(pattern)
        if known is None:
            try:
                known = any(matches(pattern, topic) for topic in self._topics)
            except re2.error:
                known = True
            self._known[pattern] = known
        return known
