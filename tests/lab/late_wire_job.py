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
for _ in range(40):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
summary, outcomes = handle.summary(), handle.outcomes()
late = next(line for line in handle.explain().splitlines() if line.startswith("late: "))
handle.synchronize()
weights = next(iter(model.parameters())).detach().numpy().tobytes()
print(
    json.dumps(
        {
            "narrow_ratio": summary.narrow_ratio,
            "narrow_while_exact": max((outcome.narrow_ratio for outcome in outcomes if outcome.exact), default=0.0),
            "dirty_steps": summary.replicas.dirty_steps if summary.replicas else -1,
            "steps": handle.step,
            "weights": hashlib.sha256(weights).hexdigest(),
            "late": late,
        }
    ),
    flush=True,
)
handle.detach()
