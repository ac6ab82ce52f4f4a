"""One race of the lab, as a benchmark runs it: `holdfast race`, and its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 3600


def race(
    folder: Path, *, task: str, hosts: int, profile: str, seed: int, peers: Sequence[str], further: Sequence[str] = ()
) -> dict[str, Any]:
    """`folder` gets the report; `further` options are passed on as they are."""
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    command = [holdfast, "race", "--task", task, "--hosts", str(hosts), "--profile", profile, "--seed", str(seed)]
    command += ["--peers", ",".join(peers), "--json", "--output", str(folder), *further]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"the race failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}") from None
    return result
