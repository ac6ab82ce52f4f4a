"""Where PyTorch hands gradients over and gets them back.

In: a `DistributedDataParallel` model. Out: averaged gradients in its buckets, and a `Handle` that tells what happened.
May import everything below it: `reduce`, `link`, `control`, `config`. Only here and in the lab's tasks is torch met.
"""
