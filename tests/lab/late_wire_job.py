"""A rank of a job that averages 1 MiB a step; its last line is JSON about what came in sixteen bits."""

import hashlib
import json

import torch
from torch.nn.parallel import DistributedDataParallel

import holdfast

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(512, 512, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
handle = holdfast.attach(model, optimizer, shared_memory=False, uneven_shards=False)
inputs = torch.randn(4, 512)
averages = []
for _ in range(40):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    outcome = handle.outcomes()[-1]
    gradient = next(iter(model.parameters())).grad
    assert gradient is not None
    averages.append((outcome.complete, outcome.narrow_ratio, hashlib.sha256(gradient.numpy().tobytes()).hexdigest()))
    optimizer.step()
late = next(line for line in handle.explain().splitlines() if line.startswith("late: "))
print(json.dumps({"narrow_ratio": handle.summary().narrow_ratio, "averages": averages, "late": late}), flush=True)
handle.detach()
