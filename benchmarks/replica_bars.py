"""Do replicas stay equal where packets are lost, a machine stands still, or a bit flips?

python benchmarks/replica_bars.py                           every optimizer with and without BatchNorm, 4 hosts, lossy-1
python benchmarks/replica_bars.py --steps 100 --cases sgd,adamw-clip-norm --skip-faults

Real ranks in the lab train on random data. After every step each rank takes fingerprints of its parameters, buffers and
optimizer state; ranks are compared afterwards, step by step, from the end of the warm-up on. Bars: after `synchronize()`
all are equal; on `lossy-1` they are equal after 99 % of the steps; what keeps them so costs at most 2 % of the gradients'
bytes; a rank that stood still for two seconds is equal again within 20 steps; a flipped bit is found and named within one
round of slices. Needs root, as the lab does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CASES = ("sgd", "adamw", "adamw-clip", "sgd-norm", "adamw-norm", "adamw-clip-norm")
EQUAL_RATIO = 0.99
MOST_EXTRA_RATIO = 0.02
MOST_STEPS_TO_RETURN = 20
ROUND_OF_SLICES = 16
WARMUP_STEPS = 25
FLIP_AT_STEP = 40


# ---------------------------------------------------------------------------------------------------- on a host


def train(case: str, steps: int, flip: bool, out: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import holdfast
    from holdfast.bridge.equality import model_state
    from holdfast.lab import events

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = 384
    norm: list[nn.Module] = [nn.BatchNorm1d(width)] if "norm" in case else []
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, width), *norm, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    )
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        if case.startswith("sgd")
        else torch.optim.AdamW(model.parameters(), lr=1e-3)
    )
    handle = holdfast.attach(model)
    generator = torch.Generator().manual_seed(rank)
    taken: dict[int, str] = {}
    steps_by_clock = []
    for _ in range(steps):
        inputs = torch.randn(32, 64, generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1)).backward()
        if "clip" in case:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        # A rank that was away goes on with a later step than its loop counts.
        at = handle.step
        taken[at] = fingerprint(model_state(model.module, [optimizer]))
        steps_by_clock.append((at, time.monotonic()))
        events.step(at)
        if flip and rank == 1 and at == FLIP_AT_STEP:
            with torch.no_grad():
                model.module[0].weight.view(torch.int32)[7, 3] ^= 1 << 12
    summary = handle.summary()
    try:
        handle.synchronize()
        final = fingerprint(model_state(model.module, [optimizer]))
    except holdfast.HoldfastError as error:
        final = f"{rank}: {error}"
    counters = handle._link.snapshot()
    result = {
        "rank": rank,
        "taken": taken,
        "final": final,
        "replicas": summary.as_dict()["replicas"],
        "operations": summary.operations,
        "delivered": summary.delivered_ratio,
        "resent": sum(peer.datagrams_resent for peer in counters.peers),
        "datagrams": sum(peer.datagrams_sent for peer in counters.peers),
        "note_bytes": summary.replicas.bytes_sent if summary.replicas else 0,
        "gradient_bytes": sum(p.numel() * 4 for p in model.parameters()),
        "seconds": steps_by_clock,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"rank-{rank}.json").write_text(json.dumps(result))
    handle.detach()
    dist.destroy_process_group()


def fingerprint(tensors: Sequence[Any]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------- around them


def run(case: str, hosts: int, steps: int, profile: str, *, fault: str | None = None, flip: bool = False) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        lab = [
            str(Path(sys.executable).with_name("holdfast")),
            "lab",
            "run",
            "--hosts",
            str(hosts),
            "--profile",
            profile,
        ]
        if fault is not None:
            lab += ["--fault", fault]
        rank = [sys.executable, __file__, "--on-a-host", case, "--steps", str(steps), "--out", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*lab, "--", *rank, *(["--flip"] if flip else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        results = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]
        if len(results) != hosts:
            raise SystemExit(f"{case}: {len(results)} of {hosts} ranks ended well\n{done.stdout}\n{done.stderr}")
        return results


def equal_steps(results: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Steps that all ranks have taken, and those of them after which they were equal."""
    common = set.intersection(*({int(step) for step in result["taken"]} for result in results))
    after_warmup = sorted(step for step in common if step > WARMUP_STEPS)
    return after_warmup, [s for s in after_warmup if len({result["taken"][str(s)] for result in results}) == 1]


def verdict(kept: bool) -> str:
    return "kept" if kept else "NOT kept"


def report_loss(case: str, results: Sequence[Any], profile: str) -> bool:
    steps, equal = equal_steps(results)
    ratio = len(equal) / len(steps)
    final = len({result["final"] for result in results}) == 1
    # Every rank sends its gradient once and its results once.
    hosts = len(results)
    sent = sum(2 * (hosts - 1) / hosts * result["gradient_bytes"] * result["operations"] for result in results)
    resent = sum(result["resent"] / result["datagrams"] for result in results) / hosts
    notes = sum(result["note_bytes"] for result in results) / sent
    figures = [result["replicas"] for result in results]
    mended = sum(figure["mended_bytes"] for figure in figures)
    drift = max(figure["worst_drift"] for figure in figures)
    kept = ratio >= EQUAL_RATIO and final and resent + notes <= MOST_EXTRA_RATIO
    print(
        f"{case:16} {profile}: equal after {ratio:.1%} of {len(steps)} steps, after synchronize() "
        f"{'equal' if final else 'UNEQUAL'}; delivered {results[0]['delivered']:.2%}; sent again {resent:.2%} of the "
        f"datagrams, notes {notes:.2%} of the gradients' bytes; mended {mended:,} bytes, drift before that at most "
        f"{drift:.2g}: {verdict(kept)}",
        flush=True,
    )
    return kept


def report_pause(results: Sequence[Any]) -> bool:
    steps, equal = equal_steps(results)
    paused = max(results, key=lambda result: result["replicas"]["skipped_operations"])
    times = paused["seconds"]
    back = next((times[i + 1][0] for i in range(len(times) - 1) if times[i + 1][1] - times[i][1] > 1.5), None)
    returned = next((step for step in equal if back is not None and step >= back), None)
    took = None if returned is None or back is None else returned - back
    stays = returned is not None and sum(s >= returned for s in equal) >= 0.95 * sum(s >= returned for s in steps)
    kept = took is not None and took <= MOST_STEPS_TO_RETURN and stays
    print(
        f"two seconds still: rank {paused['rank']} came back at step {back}, equal again after {took} steps; it skipped "
        f"{paused['replicas']['skipped_operations']} operations, {paused['replicas']['mended_bytes']:,} bytes were sent to "
        f"it: {verdict(kept)}",
        flush=True,
    )
    return kept


def report_flip(results: Sequence[Any]) -> bool:
    named = [text for result in results for text in result["replicas"]["corruptions"]]
    found = sorted({int(text.split("after step ")[1].split(":")[0]) for text in named if text.startswith("rank 1 ")})
    kept = (
        bool(found) and found[0] - FLIP_AT_STEP <= ROUND_OF_SLICES and all(text.startswith("rank 1 ") for text in named)
    )
    print(
        f"a bit flipped on rank 1 after step {FLIP_AT_STEP}: {named[:1]} on {len(named)} ranks: {verdict(kept)}",
        flush=True,
    )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=225)
    parser.add_argument("--profile", default="lossy-1")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--skip-faults", action="store_true", help="without the pause and the flipped bit")
    parser.add_argument("--on-a-host", help=argparse.SUPPRESS)
    parser.add_argument("--flip", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.on_a_host:
        train(chosen.on_a_host, chosen.steps, chosen.flip, chosen.out)
        return 0
    kept = [
        report_loss(case, run(case, chosen.hosts, chosen.steps, chosen.profile), chosen.profile)
        for case in chosen.cases.split(",")
    ]
    if not chosen.skip_faults:
        kept.append(report_pause(run("adamw-clip-norm", chosen.hosts, 250, "clean", fault="pause-one")))
        kept.append(report_flip(run("adamw", chosen.hosts, 80, "clean", flip=True)))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
