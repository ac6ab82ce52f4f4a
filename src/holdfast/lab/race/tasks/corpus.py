"""The text of two tasks: the sources of Python's standard library, which every installation brings along.

Cut into two halves by top-level name, so that packages stay together and fine-tuning on the other half meets code it
has not seen the like of. In each half one file in ten is kept for validation.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError

Half = Literal[0, 1]
NUM_SYMBOLS = 128
_BEYOND_ASCII = NUM_SYMBOLS - 1
_LEAST_BYTES = 1 << 20
# Installed packages differ from machine to machine, and tests are lists of odd strings.
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def require() -> None:
    folder = _folder()
    if sum(path.stat().st_size for path in _files(folder)) < _LEAST_BYTES:
        raise ConfigError(
            f"the tasks text and finetune need the sources of Python's standard library, and {folder} has none",
            what_to_try="a Python that was installed with its .py files",
        )


def symbols(half: Half, *, validation: bool) -> npt.NDArray[np.uint8]:
    """One half's files one after the other, a symbol per byte; everything beyond ASCII is one symbol."""
    folder = _folder()
    chosen = [
        path.read_bytes()
        for path in _files(folder)
        if _digest(path.relative_to(folder).parts[0].removesuffix(".py")) % 2 == half
        and (_digest(path.relative_to(folder).as_posix()) % 10 == 0) == validation
    ]
    return np.minimum(np.frombuffer(b"\n".join(chosen), np.uint8), _BEYOND_ASCII)


def _folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(where, name) for name in sorted(names) if name.endswith(".py"))


def _digest(name: str) -> int:
    return hashlib.sha256(name.encode()).digest()[0]
