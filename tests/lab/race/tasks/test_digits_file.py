"""The file read by hand is what scikit-learn reads."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from sklearn.datasets import load_digits

from holdfast.errors import ConfigError
from holdfast.lab.race.tasks import digits_file


def test_images_and_labels_are_scikit_learns() -> None:
    digits_file.require()
    images, labels = digits_file.images_and_labels()
    expected = load_digits()
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert np.array_equal(images, expected.images / 16)
    assert np.array_equal(labels, expected.target)


def test_without_scikit_learn_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_file, "find_spec", lambda name: importlib.util.find_spec(f"no_{name}"))
    with pytest.raises(ConfigError, match="the task digits needs scikit-learn"):
        digits_file.require()
