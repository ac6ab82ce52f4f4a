"""scikit-learn's digits, read from its file: importing scikit-learn would take every rank as long as importing torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError

_SIDE = 8
_LEVELS = np.float32(16)


def require() -> None:
    if not _path().is_file():
        raise ConfigError("the task digits needs scikit-learn", what_to_try="pip install 'holdfast[demo]'")


def images_and_labels() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images of 8x8 shares of ink, and which digit each shows."""
    rows = np.loadtxt(_path(), delimiter=",", dtype=np.float32)
    return rows[:, :-1].reshape(-1, _SIDE, _SIDE) / _LEVELS, rows[:, -1].astype(np.int64)


def _path() -> Path:
    found = find_spec("sklearn")
    package = Path() if found is None or found.origin is None else Path(found.origin).parent
    return package / "datasets" / "data" / "digits.csv.gz"
