"""Layers of settings: what a file, the environment and the command line say, laid over one another.

Knows pydantic models in general and none in particular: which keys there are, what
each allows, and where a value was written, so that an error can say all three.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr

ENVIRONMENT_PREFIX = "COUNTERPOISE_"

Key = tuple[str | int, ...]
"""The way to one value: names of sections and keys, numbers for entries of a list."""


class SettingsError(ValueError):
    """The settings cannot be used; `problems` holds one line for each thing that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        """Join the problems into one message, a line each."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Layers:
    """Values laid over one another, the later over the earlier, each with the place it came from."""

    def __init__(self, model: type[BaseModel]) -> None:
        """Start with nothing; `model` says which keys there are."""
        self.problems: list[str] = []
        self._model = model
        self._values: dict[str, Any] = {}
        self._where_by_key: dict[Key, str] = {}

    def add_file(self, path: Traversable, *, where: str) -> None:
        """Lay a TOML file over what is there; `where` is what an error calls it."""
        problem = None
        values: dict[str, Any] = {}
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            problem = f"{where}: {error.strerror or error}; name a TOML file that can be read"
        except UnicodeDecodeError as error:
            problem = f"{where}: byte {error.start} is not UTF-8; a settings file is TOML in UTF-8"
        except tomllib.TOMLDecodeError as error:
            problem = f"{where}: is not TOML: {error}"
        if problem is not None:
            raise SettingsError([problem])
        self._merge(self._values, _flatten_names(values, self._model), (), where)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Lay the variables COUNTERPOISE_SECTION__KEY over what is there."""
        for variable in sorted(environ):
            bare = variable.removeprefix(ENVIRONMENT_PREFIX)
            if bare != variable and "__" in bare:
                self._add_text(bare.split("__"), environ[variable], variable)

    def add_options(self, overrides: Mapping[str, str]) -> None:
        """Lay "section.key" -> text over what is there."""
        for dotted, text in overrides.items():
            self._add_text(dotted.split("."), text, f"--set {dotted}")

    def values(self) -> dict[str, Any]:
        """Give what the layers add up to; lists are tuples, as frozen models have them."""
        return {name: _as_tuples(value) for name, value in self._values.items()}

    def describe(self, detail: Mapping[str, Any]) -> str:
        """Say in one line what pydantic found wrong: where, key, value, and what is allowed."""
        key: Key = tuple(detail["loc"])
        kind = detail["type"]
        if kind == "extra_forbidden":
            return self._line(key, self._unknown_text(key))
        if kind == "value_error":
            return self._line(key, str(detail["ctx"]["error"]))
        if key[-1] == "[key]":
            names = get_args(_bare(self._type_at(key[:-2])))[0]
            return self._line(key[:-1], f"has a name that does not fit; it must be {describe_allowed(names)}")
        expected = self._type_at(key)
        if kind == "missing":
            return self._line(key, f"is missing; it must be {describe_allowed(expected)}")
        shown = "'***'" if _holds_secrets(expected) else _shortened(detail["input"])
        return self._line(key, f"is {shown}; it must be {describe_allowed(expected)}")

    def _line(self, key: Key, text: str, where: str | None = None) -> str:
        lengths = range(len(key), 0, -1)
        found = (self._where_by_key[key[:n]] for n in lengths if key[:n] in self._where_by_key)
        return f"{where or next(found)}: {self._dotted(key)} {text}"

    def _dotted(self, key: Key) -> str:
        shown = ""
        here: Any = self._values
        for part in key:
            here = here[part] if _has(here, part) else None
            if isinstance(part, str):
                shown += f".{part}"
            elif isinstance(here, dict) and isinstance(here.get("name"), str):
                shown += f".{here['name']}"
            else:
                shown += f"[{part}]"
        return shown.removeprefix(".")

    def _merge(self, into: dict[str, Any], values: dict[str, Any], key: Key, where: str) -> None:
        for name, value in values.items():
            self._where_by_key[*key, name] = where
            if isinstance(value, dict) and isinstance(into.get(name), dict):
                self._merge(into[name], value, (*key, name), where)
            else:
                into[name] = value

    def _add_text(self, names: list[str], text: str, where: str) -> None:
        """Lay one value over the rest that came as text, read as the type that belongs there."""
        key: Key = ()
        while names:
            expected = _bare(self._type_at(key))
            if _section_by_name(expected) is not None:
                key, names = (*key, self._name_of_section(key, names[0], where)), names[1:]
            elif get_origin(expected) is dict:
                # Names in a table of names may have dots (spark.sql...), so the rest is one name.
                rest = ".".join(names)
                key, names = (*key, _same_but_case(rest, self._keys_at(key)) or rest), []
            elif _entry_model(expected) is not None:
                entries = [str(e["name"]) for e in self._at(key) or [] if isinstance(e, dict) and "name" in e]
                entry = _same_but_case(names[0], entries)
                if entry is None:
                    known = ", ".join(map(repr, entries)) or "none, for no file describes one"
                    self.problems.append(self._line(key, f"has no {names[0]!r}; known: {known}", where))
                    return
                key, names = (*key, entries.index(entry)), names[1:]
            else:
                known_keys = _known_keys(expected)
                if not known_keys:
                    self.problems.append(self._line(key, "is one value; nothing can be set below it", where))
                    return
                name = _same_but_case(names[0], known_keys)
                if name is None:
                    key = (*key, names[0] if where.startswith("--set") else names[0].lower())
                    self.problems.append(self._line(key, self._unknown_text(key), where))
                    return
                key, names = (*key, name), names[1:]
        expected = self._type_at(key)
        if _known_keys(expected) or _entry_model(expected) or _section_by_name(expected):
            self.problems.append(self._line(key, "is a section; set its keys one by one", where))
            return
        value = _value_of(text, expected)
        holder = self._made_at(key[:-1], where)
        if isinstance(holder, dict):
            if isinstance(value, dict):
                value = dict(_flat(value, ""))
            self._merge(holder, {str(key[-1]): value}, key[:-1], where)

    def _name_of_section(self, key: Key, name: str, where: str) -> str:
        """Find a section of a table of sections by name; a new one from the environment is lower case."""
        is_shouted = name.isupper() and not where.startswith("--set")
        return _same_but_case(name, self._keys_at(key)) or (name.lower() if is_shouted else name)

    def _made_at(self, key: Key, where: str) -> Any:
        """Give what is at `key`, with the tables on the way there that no layer has named yet."""
        here: Any = self._values
        for depth, part in enumerate(key, start=1):
            if isinstance(here, dict) and part not in here:
                here[part] = {}
                self._where_by_key[key[:depth]] = where
            here = here[part] if _has(here, part) else None
        return here

    def _at(self, key: Key) -> Any:
        here: Any = self._values
        for part in key:
            here = here[part] if _has(here, part) else None
        return here

    def _keys_at(self, key: Key) -> list[str]:
        here = self._at(key)
        return list(here) if isinstance(here, dict) else []

    def _type_at(self, key: Key) -> Any:
        """Give the annotation of the value at `key`, None where the model has no such key."""
        expected: Any = self._model
        for part in key:
            bare = _bare(expected)
            if isinstance(bare, type) and issubclass(bare, BaseModel):
                expected = next((t for n, t in _fields(bare) if n == part), None)
            else:
                arguments = get_args(bare)
                expected = (arguments[1] if get_origin(bare) is dict else arguments[0]) if arguments else None
        return expected

    def _unknown_text(self, key: Key) -> str:
        """Say that a key is unknown, and which known one is nearest: beside it first, then anywhere."""
        siblings = _known_keys(self._type_at(key[:-1]))
        name = str(key[-1])
        near = difflib.get_close_matches(name.lower(), [s.lower() for s in siblings], n=1)
        nearest = next((s for s in siblings if near and s.lower() == near[0]), None)
        if nearest is not None:
            nearest = self._dotted((*key[:-1], nearest))
        else:
            every = dict(_leaves(self._model, ""))
            found = difflib.get_close_matches(name, every, n=1, cutoff=0.75)
            nearest = every[found[0]] if found else None
        meant = f"did you mean {nearest}? " if nearest else ""
        return f"is unknown; {meant}known: {', '.join(siblings)}"


def describe_allowed(expected: Any) -> str:
    """Say in words what a value of this annotation may be.

    >>> from pydantic import Field
    >>> describe_allowed(Annotated[int, Field(ge=1)])
    'a whole number, 1 or more'
    """
    bare, limits = _bare(expected), list(_limits(expected))
    for limit in limits:
        if getattr(limit, "description", None):
            return str(limit.description)
    least = next((f", {limit.ge} or more" for limit in limits if hasattr(limit, "ge")), "")
    origin = get_origin(bare)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(bare)))
    if origin is tuple:
        return f"a list, each entry {describe_allowed(get_args(bare)[0])}"
    if origin is dict:
        return f"a table of names, each {describe_allowed(get_args(bare)[1])}"
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return f"a section with the keys {', '.join(_known_keys(bare))}"
    words = {bool: "true or false", int: "a whole number", float: "a number", SecretStr: "a text"}
    return words.get(bare, "a text that is not empty") + least


def _bare(expected: Any) -> Any:
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def _limits(expected: Any) -> Iterator[Any]:
    """Walk what an annotation demands, through pydantic's Field objects to the single limits."""
    if get_origin(expected) is Annotated:
        for extra in get_args(expected)[1:]:
            yield extra
            yield from getattr(extra, "metadata", ())


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Give each key of a section, as written in the file, with its annotation."""
    for name, field in model.model_fields.items():
        expected: Any = field.annotation
        yield field.alias or name, Annotated[expected, field]


def _known_keys(expected: Any) -> list[str]:
    bare = _bare(expected)
    is_section = isinstance(bare, type) and issubclass(bare, BaseModel)
    return [name for name, _ in _fields(bare)] if is_section else []


def _entry_model(expected: Any) -> type[BaseModel] | None:
    """Give the model of the entries of a list of sections, None for anything else."""
    bare = _bare(expected)
    entry = get_args(bare)[0] if get_origin(bare) is tuple else None
    return entry if isinstance(entry, type) and issubclass(entry, BaseModel) else None


def _section_by_name(expected: Any) -> type[BaseModel] | None:
    """Give the model of the sections in a table of sections, None for anything else."""
    bare = _bare(expected)
    inner = _bare(get_args(bare)[1]) if get_origin(bare) is dict else None
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _holds_secrets(expected: Any) -> bool:
    """Say whether a value that belongs here may hold a secret, even when its form is wrong."""
    bare = _bare(expected)
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return any(_holds_secrets(inner) for _, inner in _fields(bare))
    return bare is SecretStr or any(_holds_secrets(inner) for inner in get_args(bare))


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, expected in _fields(model):
        bare = _bare(expected)
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            yield from _leaves(bare, f"{prefix}{name}.")
        else:
            yield name, prefix + name


def _flatten_names(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Make one name again of a dotted one that TOML took for nested tables, where names are free."""
    flat: dict[str, Any] = {}
    expected_by_name = dict(_fields(model))
    for name, value in values.items():
        bare = _bare(expected_by_name.get(name))
        section = _section_by_name(bare)
        if isinstance(value, dict) and section is not None:
            flat[name] = {
                inner: _flatten_names(entry, section) if isinstance(entry, dict) else entry
                for inner, entry in value.items()
            }
        elif isinstance(value, dict) and get_origin(bare) is dict:
            flat[name] = dict(_flat(value, ""))
        elif isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, BaseModel):
            flat[name] = _flatten_names(value, bare)
        else:
            flat[name] = value
    return flat


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float)):
            # Spark's options are text whatever they look like; people write 4 and true.
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, value


def _value_of(text: str, expected: Any) -> Any:
    """Read text as TOML where a number, a truth value, a list or a table belongs."""
    bare = _bare(expected)
    if bare in (str, SecretStr) or (get_origin(bare) is Literal and isinstance(get_args(bare)[0], str)):
        return text
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        values = {}
    # More than one name means that the text holds line ends: it is no TOML value then.
    value = values["value"] if len(values) == 1 else text
    if get_origin(bare) is tuple and isinstance(value, str):
        return [entry.strip() for entry in value.split(",")]
    return value


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_tuples(inner) for name, inner in value.items()}
    return tuple(_as_tuples(inner) for inner in value) if isinstance(value, list) else value


def _same_but_case(name: str, known: Iterable[str]) -> str | None:
    """Find a name as written, else in another case: environments are often upper case only."""
    candidates = list(known)
    return name if name in candidates else next((k for k in candidates if k.lower() == name.lower()), None)


def _has(holder: Any, part: str | int) -> bool:
    if isinstance(holder, dict):
        return part in holder
    return isinstance(holder, (list, tuple)) and isinstance(part, int) and part < len(holder)


def _shortened(value: Any) -> str:
    shown = repr(list(value) if isinstance(value, tuple) else value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
