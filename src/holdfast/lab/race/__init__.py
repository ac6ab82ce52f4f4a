"""A race: the same model, data and seed, trained by several peers on the same network until one metric is reached.

In: a plan. Out: a `RaceResult`. Only the ranks and their tasks import torch.

    task, tasks/                       what is trained, and to which target
    plan, runner, entry                who races where; turns; one peer's way to the target
    contender, crew, record            a peer's ranks, their processes, what they have done
    rank, orders, half_width           one rank, and what it is told; gradients in two bytes
    trouble, lifeline                  faults on a peer's own clock; ranks that end with their race
    result                             what came of it, as data
    report, page/, picture, headline   the same for people
"""
