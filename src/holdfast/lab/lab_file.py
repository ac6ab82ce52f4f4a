"""Data files of the lab, shipped or the user's own: found by name or path, read as TOML, checked field by field."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.errors import BrokenLabFile

MAX_BYTES = 1 << 20

Record = TypeVar("Record")


def shipped(folder: str) -> list[str]:
    """Names of the shipped files of one kind: `profiles`, `schedules` or `faults`."""
    entries = (files("holdfast.lab") / folder).iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


def load(folder: str, name_or_path: str) -> dict[str, Any]:
    """A shipped file by name, or a file."""
    if name_or_path in shipped(folder):
        return tomllib.loads((files("holdfast.lab") / folder / f"{name_or_path}.toml").read_text())
    path = Path(name_or_path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BrokenLabFile(f"{path} is larger than {MAX_BYTES} bytes")
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise BrokenLabFile(
            f"{name_or_path!r} is neither a shipped file nor one that can be read ({error.strerror})",
            what_to_try=f"one of {', '.join(shipped(folder))}, or a path",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BrokenLabFile(f"{path} is not TOML: {error}") from error


def record(kind: type[Record], values: Any, where: str) -> Record:
    """The table as a dataclass: unknown, missing and mistyped fields are errors that name them."""
    if not isinstance(values, dict):
        raise BrokenLabFile(f"{where} must be a table, not {values!r}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise BrokenLabFile(f"{where}: unknown field {name!r}", what_to_try=f"one of {', '.join(fields)}")
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not optional:
            raise BrokenLabFile(f"{where}: {name} is missing")
    return kind(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in values.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return record(typing.cast(type, hint), value, where)
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        if value not in options:
            raise BrokenLabFile(f"{where} is {value!r}", what_to_try=f"one of {', '.join(map(str, options))}")
        return value
    if typing.get_origin(hint) in (dict, Mapping, typing.get_origin(Mapping[str, float])):
        if not isinstance(value, dict):
            raise BrokenLabFile(f"{where} must be a table, not {value!r}")
        return {key: _value(options[1], part, f"{where}: {key}") for key, part in value.items()}
    kinds = tuple(option for option in options or (hint,) if option is not type(None))
    if float in kinds and type(value) is int:
        return float(value) if int not in kinds else value
    if type(value) not in kinds:
        raise BrokenLabFile(f"{where} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}")
    return value
