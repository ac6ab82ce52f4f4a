"""One rank is 200 ms late in one step. The others do not wait for it, and their outcomes name it.

torchrun --standalone --nproc-per-node 4 examples/late_rank.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import holdfast

LATE_RANK, LATE_STEP = 2, 10

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1000, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handle = holdfast.attach(model, optimizer, deadline_ms=50)
for step in range(20):
    if dist.get_rank() == LATE_RANK and step == LATE_STEP:
        time.sleep(0.2)
    optimizer.zero_grad()
    model(torch.randn(32, 1000)).square().mean().backward()
    optimizer.step()

if dist.get_rank() == 0:
    for outcome in handle.outcomes():
        if not outcome.complete:
            print(outcome.describe())
mended = handle.synchronize()
print(f"rank {dist.get_rank()}: {mended.tensors_fetched} of {mended.tensors_compared} tensors differed from rank 0's")
handle.detach()
dist.destroy_process_group()
