"""The text of Kafka's `sasl.jaas.config`: one login module with its options, written and read.

Source: org.apache.kafka.common.security.JaasConfig, which reads it with Java's
StreamTokenizer: strings in double or single quotes that end at a line end,
escapes as in C, words of letters, digits, '.', '_', '$' and '-', comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ESCAPES = {"\\": r"\\", '"': r"\"", "'": r"\'", "\n": r"\n", "\r": r"\r"}
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_QUOTED = r""""(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*'"""
_TOKEN = re.compile(
    rf"(?P<gap>\s+|/\*.*?\*/|/[^\n\r]*)|(?P<quoted>{_QUOTED})|(?P<word>[\w.$-]+)|[=;]", re.DOTALL
)
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ONE_LOGIN = re.compile("ww(w=[wq])*;")
"""A module, its flag and its options, as the kinds of tokens: w a word, q a quoted string."""

QUOTED_STRING = re.compile(_QUOTED, re.DOTALL)
"""A quoted string of such a text, with its quotes."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login module's class and its options, name -> value: secrets, so its repr shows the names only."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Login({self.module!r}, options {sorted(self.options)})"


def escape_jaas(value: str) -> str:
    r"""Write a value as it must stand between quotes.

    >>> print(escape_jaas('a"b\\c'))
    a\"b\\c
    """
    return "".join(_ESCAPES.get(character, character) for character in value)


def write_jaas(login: Login) -> str:
    """Write a login as `sasl.jaas.config` wants it.

    >>> write_jaas(Login("a.PlainLoginModule", {"username": "me", "password": "secret"}))
    'a.PlainLoginModule required username="me" password="secret";'
    """
    options = "".join(f' {name}="{escape_jaas(value)}"' for name, value in login.options.items())
    return f"{login.module} required{options};"


def read_jaas(text: str) -> Login | None:
    """Read the one login module of a `sasl.jaas.config`; None when the text is anything else.

    >>> read_jaas("a.PlainLoginModule required username='me' password=secret;").options["password"]
    'secret'
    """
    kinds, values = "", []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return None
        place = match.end()
        if match["quoted"] is not None:
            kinds += "q"
            values.append(_ESCAPE.sub(_unescaped, match[0][1:-1]))
        elif match["word"] is not None:
            kinds += "w"
            values.append(match[0])
        elif match["gap"] is None:
            kinds += match[0]
    if _ONE_LOGIN.fullmatch(kinds) is None or values[1].lower() not in _FLAGS:
        return None
    return Login(values[0], dict(zip(values[2::2], values[3::2], strict=True)))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
