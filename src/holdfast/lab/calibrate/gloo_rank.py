"""One rank of the small Gloo all-reduce: `python -m holdfast.lab.calibrate.gloo_rank SOCKET STORE COUNT`.

On the socket, which was inherited and touches no network of the lab: in comes the time (CLOCK_MONOTONIC, nanoseconds)
at which to begin the next operation, out go the times at which it began and ended here. The first answer says ready.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import torch
import torch.distributed as dist

from holdfast.lab.calibrate.gloo import ANSWER, QUESTION
from holdfast.lab.priority import raise_priority


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    store_file, count = sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    raise_priority()  # before Gloo starts its threads, which take it on
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(store_file, num_ranks), rank=rank, world_size=num_ranks)
    gradient = torch.empty(count)
    control.sendall(ANSWER.pack(0, 0))
    while question := control.recv(QUESTION.size, socket.MSG_WAITALL):
        gradient.fill_(1.0)
        (begin_ns,) = QUESTION.unpack(question)
        time.sleep(max(0, begin_ns - time.monotonic_ns()) / 1e9)
        began_ns = time.monotonic_ns()
        dist.all_reduce(gradient)
        ended_ns = time.monotonic_ns()
        assert float(gradient[-1]) == num_ranks
        control.sendall(ANSWER.pack(began_ns, ended_ns))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
