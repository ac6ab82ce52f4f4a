"""The text is there, the same every time, and what is validated on was never trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.lab.race.tasks import corpus


def test_parts_are_large_repeatable_and_plain() -> None:
    corpus.require()
    for half in (0, 1):
        text = corpus.symbols(half, validation=False)
        assert len(text) > 1_000_000
        assert text.max() < corpus.NUM_SYMBOLS
        assert np.array_equal(text, corpus.symbols(half, validation=False))
        assert 0.02 < len(corpus.symbols(half, validation=True)) / len(text) < 0.5


def test_no_file_is_in_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"module{number}.py" for number in range(40)] + [f"package/part{number}.py" for number in range(40)]
    for name in [*names, "site-packages/foreign.py", "test/test_it.py"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"<{name}>")
    monkeypatch.setattr(corpus, "_folder", lambda: tmp_path)
    parts = [
        corpus.symbols(half, validation=validation).tobytes().decode().split("\n")
        for half in (0, 1)
        for validation in (False, True)
    ]
    assert all(parts)
    assert sorted(name for part in parts for name in part) == sorted(f"<{name}>" for name in names)
    whole = [half for half in (parts[0] + parts[1], parts[2] + parts[3]) if any("package" in name for name in half)]
    assert len(whole) == 1, "a package must not be cut in two"


def test_a_python_without_sources_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_folder", lambda: tmp_path)
    with pytest.raises(ConfigError, match="need the sources of Python's standard library"):
        corpus.require()
