"""What the tests of the instruments share: real output, recorded, and whether the programs are here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def needs(program: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here: apt-get install {package}")


needs_iperf3 = needs("iperf3", "iperf3")
needs_ping = needs("ping", "iputils-ping")
