import torch
from torch.nn.parallel import DistributedDataParallel

import holdfast

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(1000, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handle = holdfast.attach(model, optimizer)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(32, 1000)).square().mean().backward()
    optimizer.step()
print(handle.outcomes()[-1].describe())
handle.detach()
