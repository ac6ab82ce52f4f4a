"""Several hosts with several ranks each: shared memory within hosts, against all ranks at once and groups over UDP.

holdfast lab run --hosts 2 -- python benchmarks/host_groups.py             two ranks on each host of the lab
holdfast lab run --hosts 2 --rate 2000 -- python benchmarks/host_groups.py --sizes 1,25 --operations 60
python benchmarks/host_groups.py --pretend 2                               on loopback, as if on two hosts

All three take turns in one run, each over links of its own. An operation takes as long as it takes the slowest rank;
before each of them all ranks wait for each other. In the lab it needs root, as the lab does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import timedelta
from statistics import mean

import torch
import torch.distributed as dist

from holdfast.bridge import rendezvous
from holdfast.bridge.tensors import memory_of
from holdfast.config import Config
from holdfast.link import interface
from holdfast.reduce.reducer import Reducer, reducer_for

WARM_UP = 10
LIMIT = timedelta(seconds=120)


def ways(num_hosts: int) -> dict[str, dict[str, object]]:
    return {
        "all at once": {"shared_memory": False},
        "groups over UDP": {"shared_memory": False, "hierarchy": num_hosts},
        "shared memory within hosts": {"shared_memory": True},
    }


class Job:
    def __init__(self, options: argparse.Namespace, host: int, num_hosts: int, place: int) -> None:
        self.rank, self.num_ranks = host * options.per_host + place, num_hosts * options.per_host
        port = int(os.environ.get("MASTER_PORT", "29500"))
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self.store = dist.TCPStore(master, port, is_master=self.rank == 0, timeout=LIMIT, wait_for_workers=False)
        self._barriers = 0
        settings = {"interface": "lo"} if options.pretend else {}
        if options.pretend:
            interface.host_identity = lambda: f"host-{host}"
            interface.is_loopback = lambda _address: False
        self.links = {
            name: rendezvous.join(
                dist.PrefixStore(name, self.store),
                rank=self.rank,
                num_ranks=self.num_ranks,
                config=Config(warmup_operations=WARM_UP, **settings, **of_way),  # type: ignore[arg-type]
                step_bytes=0,
            )
            for name, of_way in ways(num_hosts).items()
        }
        assert self.links["shared memory within hosts"].host_meetings is not None

    def barrier(self) -> None:
        name = f"barrier/{self._barriers}"
        self._barriers += 1
        if self.store.add(name, 1) == self.num_ranks:
            self.store.set(f"{name}/open", "")
        self.store.wait([f"{name}/open"], LIMIT)

    def measure(self, mebibytes: float, operations: int) -> None:
        reducers = {name: reducer_for(link) for name, link in self.links.items()}
        gradient = torch.ones(int(mebibytes * (1 << 18)))
        times_ms: dict[str, list[float]] = {name: [] for name in reducers}
        ratios: dict[str, list[float]] = {name: [] for name in reducers}
        for number in range(WARM_UP + 2 + operations):
            for name, reducer in reducers.items():
                self.barrier()
                elapsed_ms, delivered_ratio = self._once(reducer, gradient)
                if number >= WARM_UP + 2:
                    times_ms[name].append(elapsed_ms)
                    ratios[name].append(delivered_ratio)
        self.store.set(f"{mebibytes}/{self.rank}", json.dumps([times_ms, ratios]))
        self.barrier()
        if self.rank == 0:
            self._print(mebibytes, operations)
        self.barrier()

    def _once(self, reducer: Reducer, gradient: torch.Tensor) -> tuple[float, float]:
        outcome = reducer.finish(reducer.start(memory_of(gradient)))
        gradient.fill_(1.0)
        return outcome.elapsed_ms, outcome.delivered_ratio

    def _print(self, mebibytes: float, operations: int) -> None:
        by_rank = [json.loads(self.store.get(f"{mebibytes}/{rank}")) for rank in range(self.num_ranks)]
        for name in self.links:
            slowest = sorted(max(of_rank) for of_rank in zip(*(times[name] for times, _ in by_rank), strict=True))
            delivered = mean(mean(ratios[name]) for _, ratios in by_rank)
            print(
                f"{mebibytes:g} MiB, {operations} operations, {name}: p50 {slowest[len(slowest) // 2]:.1f} ms, "
                f"p95 {slowest[int(0.95 * len(slowest))]:.1f} ms, delivered {delivered:.2%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,25", help="MiB of float32, comma list")
    parser.add_argument("--operations", type=int, default=40, help="counted ones of each kind")
    parser.add_argument("--per-host", type=int, default=2)
    parser.add_argument("--pretend", type=int, default=0, metavar="HOSTS", help="so many hosts, all of them this one")
    parser.add_argument("--place", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--host", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    num_hosts = options.pretend or int(os.environ["WORLD_SIZE"])
    if options.place is None:
        hosts = range(options.pretend) if options.pretend else [int(os.environ["RANK"])]
        commands = [
            [sys.executable, *sys.argv, "--host", str(host), "--place", str(place)]
            for host in hosts
            for place in range(options.per_host)
        ]
        ranks = [subprocess.Popen(command) for command in commands]
        sys.exit(max(abs(rank.wait()) for rank in ranks))
    torch.set_num_threads(1)
    job = Job(options, options.host, num_hosts, options.place)
    for size in options.sizes.split(","):
        job.measure(float(size), options.operations)
    for link in job.links.values():
        link.close()


if __name__ == "__main__":
    main()
