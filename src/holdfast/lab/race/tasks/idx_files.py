"""Fashion-MNIST as Debian ships it: gzipped IDX files (a magic number, the shape, then bytes)."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import ConfigError

FOLDER = Path("/usr/share/datasets/fashion-mnist")
_TO_GET_THEM = "apt-get install dataset-fashion-mnist"
_BYTES = 0x08


def require() -> None:
    missing = [name for part in ("train", "t10k") for name in _names(part) if not (FOLDER / name).is_file()]
    if missing:
        raise ConfigError(f"the task fashion needs {FOLDER / missing[0]}", what_to_try=_TO_GET_THEM)


def images_and_labels(part: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Of `train` or `t10k`."""
    images, labels = (_read(FOLDER / name) for name in _names(part))
    return images, labels


def _names(part: str) -> tuple[str, str]:
    return f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"


def _read(path: Path) -> npt.NDArray[np.uint8]:
    content = gzip.decompress(path.read_bytes())
    zeros, kind, num_dimensions = struct.unpack_from(">HBB", content)
    shape = struct.unpack_from(f">{num_dimensions}I", content, 4)
    begin = 4 + 4 * num_dimensions
    if zeros != 0 or kind != _BYTES or len(content) - begin != math.prod(shape):
        raise ConfigError(f"{path} is not an IDX file of bytes", what_to_try=f"{_TO_GET_THEM} --reinstall")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
