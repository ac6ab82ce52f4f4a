"""Fashion-MNIST's files: read byte by byte as the format says; absent or broken, they are one sentence."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.lab.race.tasks import idx_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(idx_files, "FOLDER", tmp_path)
    return tmp_path


def write(path: Path, values: np.ndarray, kind: int = 0x08) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, kind, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def test_what_was_written_is_read(folder: Path) -> None:
    images, labels = np.arange(3 * 4 * 5).reshape(3, 4, 5), np.array([7, 0, 9])
    for part in ("train", "t10k"):
        write(folder / f"{part}-images-idx3-ubyte.gz", images)
        write(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    idx_files.require()
    read_images, read_labels = idx_files.images_and_labels("t10k")
    assert np.array_equal(read_images, images)
    assert np.array_equal(read_labels, labels)


def test_missing_files_are_one_sentence_with_the_command_that_helps(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs .*train-images.* Try: apt-get install dataset-fashion-mnist"):
        idx_files.require()


@pytest.mark.parametrize("fault", ["short", "floats"])
def test_a_broken_file_is_named(folder: Path, fault: str) -> None:
    path = folder / "train-images-idx3-ubyte.gz"
    write(path, np.zeros((3, 4, 5)), kind=0x0D if fault == "floats" else 0x08)
    if fault == "short":
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz is not an IDX file of bytes"):
        idx_files.images_and_labels("train")
