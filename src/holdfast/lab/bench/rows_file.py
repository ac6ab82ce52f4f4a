"""Rows in a file of JSON, written as they come, so that an interrupted run can go on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.lab.bench.row import Row

_ANOTHER = "another --json file"


def read(file: Path) -> list[Row]:
    """None where there is no file yet, or an empty one."""
    if not file.exists() or file.stat().st_size == 0:
        return []
    try:
        return [Row(**row) for row in json.loads(file.read_text())]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file} holds no rows of this version: {error}", what_to_try=_ANOTHER) from error


def require_writable(file: Path) -> None:
    """Said before anything is measured."""
    try:
        file.open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", what_to_try=_ANOTHER) from error


def write(file: Path, rows: Sequence[Row]) -> None:
    """Whole or not at all: what an interrupted run leaves must be readable."""
    fresh = file.with_name(f".{file.name}.fresh")
    try:
        fresh.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
        fresh.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", what_to_try=_ANOTHER) from error
