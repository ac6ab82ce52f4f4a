"""How long does training take to its target, beside Gloo?

python benchmarks/time_to_accuracy.py                                                    digits, 4 hosts, four profiles
python benchmarks/time_to_accuracy.py --profiles stalls --hosts 8 --task fashion --seeds 3

Races of the lab: the same model, data and seed, all peers in turns on the same network. Printed is each peer's time to the
target as a multiple of Holdfast's, the median over seeds. Bars: on `stalls` and `lossy-1` 1.5 times faster than the best
stock Gloo and 1.15 than the tuned one; on `shared-3` level with the tuned one at equal bytes, and with bf16 1.5 times
faster than stock Gloo; the mean step from `shared-1.5` to `shared-3` at most 10 % longer. Needs root, as the lab does.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import mean, median

from race_command import race

STOCK = ("gloo-cubic", "gloo-bbr")
PEERS = (*STOCK, "gloo-tuned", "holdfast", "holdfast-paper", "gloo-tuned-bf16", "holdfast-bf16")
PROFILES = ("lossy-1", "stalls", "shared-1.5", "shared-3")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    steps_ms: dict[str, float] = {}
    for profile in chosen.profiles.split(","):
        seconds: dict[str, list[float]] = {peer: [] for peer in PEERS}
        means: dict[str, list[float]] = {peer: [] for peer in PEERS}
        for seed in range(chosen.seeds):
            with tempfile.TemporaryDirectory() as folder:
                result = race(
                    Path(folder), task=chosen.task, hosts=chosen.hosts, profile=profile, seed=seed, peers=PEERS
                )
            for run in result["runs"]:
                reached = run["seconds_to_target"]
                seconds[run["peer"]].append(float("inf") if reached is None else reached)
                means[run["peer"]].append(mean(run["step_ms"]))
        taken = {peer: median(seconds[peer]) for peer in PEERS}
        steps_ms[profile] = median(means["holdfast"])
        print(
            f"{profile}, {chosen.hosts} hosts, {chosen.task}, {chosen.seeds} seeds: seconds to the target, mean step in ms"
        )
        for peer in PEERS:
            own = "holdfast-bf16" if peer.endswith("bf16") else "holdfast"
            print(
                f"  {peer:16} {taken[peer]:7.1f} s  {median(means[peer]):6.1f} ms  {taken[peer] / taken[own]:.2f} x {own}"
            )
        best = min(taken[peer] for peer in STOCK)
        print(
            f"  best stock Gloo {best / taken['holdfast']:.2f}, tuned {taken['gloo-tuned'] / taken['holdfast']:.2f}; bf16: "
            f"best stock {best / taken['holdfast-bf16']:.2f}, tuned {taken['gloo-tuned-bf16'] / taken['holdfast-bf16']:.2f}",
            flush=True,
        )
    if {"shared-1.5", "shared-3"} <= steps_ms.keys():
        growth = steps_ms["shared-3"] / steps_ms["shared-1.5"] - 1
        print(f"mean step from shared-1.5 to shared-3: {growth:+.0%} (at most +10 %)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
