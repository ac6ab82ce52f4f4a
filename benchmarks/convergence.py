"""Is training with losses as accurate as exact training?

python benchmarks/convergence.py                                       digits, 1 / 5 / 10 % loss, 5 paired seeds, 4 hosts
python benchmarks/convergence.py --task text --losses 0.1 --seeds 3
python benchmarks/convergence.py --losses 0.1 --peers holdfast-paper,holdfast-paper-plain     what the transform buys

Real ranks in the lab train the same model on the same data for the same number of steps, once over Gloo (exact, so on a
clean network: TCP gets there on any, later), once with Holdfast and once as the paper has it (`-plain`: without the
Hadamard transform). Per seed the difference to Gloo is taken; "as accurate" means that the mean is not below by more than
half a point (of accuracy; of a loss half a per cent) or two standard errors of the difference, whichever is more.
Differences are printed in points, or in per cent of the loss. Needs root, as the lab does.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from race_command import race

EXACT, PEERS = "gloo-tuned", "holdfast,holdfast-paper"
ALLOWED_POINTS = 0.5
STEPS = {"digits": 120, "fashion": 200, "text": 200, "finetune": 150}
PROFILE = """models = "A clean network whose paths lose {ratio:.0%} of all packets, each by itself."

[path]
delay_ms = 0.25
loss_ratio = {ratio}

[promise]
rtt_ms = 0.8
loss_ratio = {ratio}
"""


def train(
    task: str, hosts: int, profile: str, peers: Sequence[str], seed: int, steps: int, folder: Path
) -> dict[str, Any]:
    # A target that nobody reaches: all train to the end.
    target = "-1" if task in ("text", "finetune") else "2"
    to_the_end = ["--max-steps", str(steps), "--target", target]
    return race(folder, task=task, hosts=hosts, profile=profile, seed=seed, peers=peers, further=to_the_end)


def verdict(differences: Sequence[float], exact: float, *, points: bool) -> str:
    """`differences` to exact training, positive: better. A loss has no points: half a per cent of it is allowed."""
    scale = 100 if points else 100 / exact
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    allowed = max(ALLOWED_POINTS / scale, 2 * error)
    kept = mean(differences) >= -allowed
    return (
        f"{scale * mean(differences):+.2f} (allowed {-scale * allowed:.2f}), by seed "
        f"{' '.join(f'{scale * each:+.2f}' for each in differences)}: {'as accurate' if kept else 'NOT as accurate'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits", choices=sorted(STEPS))
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--losses", default="0.01,0.05,0.1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--steps", type=int, help="default: some times what the task's target takes")
    chosen = parser.parse_args()
    steps = chosen.steps or STEPS[chosen.task]
    peers = chosen.peers.split(",")
    exact: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(chosen.seeds):
            result = train(chosen.task, chosen.hosts, "clean", [EXACT], seed, steps, Path(folder) / str(seed))
            exact.append(result["runs"][0]["final_metric"])
    for ratio in map(float, chosen.losses.split(",")):
        differences: dict[str, list[float]] = {peer: [] for peer in peers}
        delivered = []
        points = True
        with tempfile.TemporaryDirectory() as folder:
            profile = Path(folder) / f"lossy-{100 * ratio:g}.toml"
            profile.write_text(PROFILE.format(ratio=ratio))
            for seed in range(chosen.seeds):
                result = train(chosen.task, chosen.hosts, str(profile), peers, seed, steps, Path(folder) / str(seed))
                runs = {run["peer"]: run for run in result["runs"]}
                points, sign = bool(result["higher_is_better"]), 1 if result["higher_is_better"] else -1
                delivered.append(runs[peers[0]]["delivered_ratio"])
                for peer in peers:
                    differences[peer].append(sign * (runs[peer]["final_metric"] - exact[seed]))
        print(
            f"{chosen.task}, {ratio:.0%} lost, {steps} steps, {chosen.seeds} seeds: exact {mean(exact):.4f}; {peers[0]} "
            f"delivered {mean(delivered):.1%}"
        )
        for peer in peers:
            print(f"  {peer:20} {verdict(differences[peer], mean(exact), points=points)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
