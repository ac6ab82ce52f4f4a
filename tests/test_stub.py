"""The committed stub of the native module says what the module is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).parents[1] / "src" / "holdfast" / "_native.pyi"


def test_the_stub_is_what_the_module_generates(tmp_path: Path) -> None:
    fresh = tmp_path / "_native.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "holdfast._native", "-o", str(fresh)]
    subprocess.run(command, check=True, timeout=60)
    assert fresh.read_text() == STUB.read_text(), "run `make stubs` and commit the result"
