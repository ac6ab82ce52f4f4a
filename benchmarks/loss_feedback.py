"""Print what loss feedback does to training: accuracy and loss with it and without, over paired seeds.

python benchmarks/loss_feedback.py                 the tables of docs/decisions/0024, about ten minutes
python benchmarks/loss_feedback.py --seeds 4 --steps 100

Eight ranks in one process train a small network on the digits data. Contributions are lost by datagrams, on the grid on
which they travel, and the owner of a shard makes its average of the rest as the core does; results are never lost.
Seeds are paired: with the same seed weights, batches and lost datagrams are the same in every row. Beside a mean stands
its difference to training without loss and, where something returns, to the same estimate where nothing does, each with
its standard error.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from sklearn.datasets import load_digits
from torch.func import grad, vmap

RANKS, BATCH = 8, 16
DATAGRAM = 352  # float32 elements in a datagram of 1,472 bytes, encrypted
WIDTHS = (64, 128, 64, 10)
SHAPES = [shape for fan_in, fan_out in itertools.pairwise(WIDTHS) for shape in ((fan_out, fan_in), (fan_out,))]
SIZES = [math.prod(shape) for shape in SHAPES]
ELEMENTS = sum(SIZES)


Returns = Literal["nothing", "lost", "difference"]


@dataclass(frozen=True)
class Way:
    """How the owner fills in for what is lost, and what of it returns."""

    name: str
    zero_fill: bool
    returns: Returns


@dataclass(frozen=True)
class Case:
    name: str
    loss: tuple[float, ...]
    """By rank, of what it contributes."""
    skewed: bool = False
    """Every rank has other digits, instead of some of all."""


WAYS = [
    Way("zero fill", True, "nothing"),
    Way("zero fill, lost returns", True, "difference"),
    Way("unbiased", False, "nothing"),
    Way("unbiased, lost returns", False, "lost"),
    Way("unbiased, difference returns", False, "difference"),
]
CASES = [
    Case("10 %", (0.1,) * RANKS),
    Case("20 %", (0.2,) * RANKS),
    Case("half of rank 0's", (0.5, *([0.0] * (RANKS - 1)))),
    Case("half of rank 0's, whose digits nobody else has", (0.5, *([0.0] * (RANKS - 1))), skewed=True),
    Case("nine tenths of rank 0's, whose digits nobody else has", (0.9, *([0.0] * (RANKS - 1))), skewed=True),
]


def logits_of(flat: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    parts = [part.view(shape) for part, shape in zip(flat.split(SIZES), SHAPES, strict=True)]
    hidden = inputs
    for weight, bias in zip(parts[0::2], parts[1::2], strict=True):
        hidden = hidden @ weight.T + bias
        hidden = hidden if bias.numel() == WIDTHS[-1] else hidden.relu()
    return hidden


def loss_of(flat: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits_of(flat, inputs), labels)


gradients_of = vmap(vmap(grad(loss_of), in_dims=(None, 0, 0)))  # by seed, by rank


def initial_weights(generator: torch.Generator) -> torch.Tensor:
    bounds = [1 / math.sqrt(shape[-1] if len(shape) == 2 else size) for shape, size in zip(SHAPES, SIZES, strict=True)]
    return torch.cat(
        [(2 * torch.rand(size, generator=generator) - 1) * bound for size, bound in zip(SIZES, bounds, strict=True)]
    )


def shares(step: int, loss: tuple[float, ...], zero_fill: bool, generators: list[torch.Generator]) -> torch.Tensor:
    """By seed, rank and element, how often a contribution counts: once, not at all, or for others as well."""
    shard = math.ceil(ELEMENTS / RANKS)
    in_shard = math.ceil(shard / DATAGRAM)
    drawn = torch.stack([torch.rand(RANKS, RANKS, in_shard, generator=generator) for generator in generators])
    present = drawn >= torch.tensor(loss)[None, :, None, None]
    owns = ((torch.arange(RANKS) + step) % RANKS)[:, None] == torch.arange(RANKS)  # of ranks which shard
    present = present | owns[None, :, :, None]
    share = present.float()
    if not zero_fill:
        others = present.sum(1, keepdim=True) - 1
        share *= torch.where(owns[None, :, :, None], 1.0, (RANKS - 1) / others.clamp(min=1))
        share *= others > 0  # else nobody gets a result
    by_element = share.repeat_interleave(DATAGRAM, -1)[..., :shard]
    return by_element.reshape(len(generators), RANKS, -1)[..., :ELEMENTS]


Final = tuple[torch.Tensor, torch.Tensor]
Optimize = Callable[[torch.Tensor], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimize] = {
    "sgd": lambda weights: torch.optim.SGD([weights], lr=0.05, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW([weights], lr=2e-3),
}


def train(way: Way, optimizer: str, case: Case, seeds: int, steps: int) -> Final:
    """Test accuracy and training loss at the end, by seed."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train_set, test_set = order[:1437], order[1437:]
    of_rank = train_set[labels[train_set].argsort()] if case.skewed else train_set
    of_rank = of_rank[: len(train_set) // RANKS * RANKS].view(RANKS, -1)
    generators = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    losers = [torch.Generator().manual_seed(1000 + seed) for seed in range(seeds)]
    weights = torch.stack([initial_weights(generator) for generator in generators])
    stepper = OPTIMIZERS[optimizer](weights)
    residual = torch.zeros(seeds, RANKS, ELEMENTS)
    for step in range(steps):
        chosen = torch.stack(
            [torch.randint(len(train_set) // RANKS, (RANKS, BATCH), generator=generator) for generator in generators]
        )
        chosen = torch.gather(of_rank.expand(seeds, -1, -1), 2, chosen)
        sent = gradients_of(weights, images[chosen], labels[chosen]) + residual
        share = shares(step, case.loss, way.zero_fill, losers)
        weights.grad = (share * sent).mean(1)
        stepper.step()
        if way.returns == "difference":
            residual = (1 - share).clamp(min=-1) * sent  # as LossFeedback does
        elif way.returns == "lost":
            residual = torch.where(share == 0, sent, 0.0)
    with torch.no_grad():
        guesses = vmap(logits_of, in_dims=(0, None))(weights, images[test_set])
        accuracy = (guesses.argmax(-1) == labels[test_set]).float().mean(-1)
        final = vmap(loss_of, in_dims=(0, None, None))(weights, images[train_set], labels[train_set])
    return accuracy, final


def print_row(name: str, got: Final, exact: Final, without: Final | None) -> None:
    print(f"    {name:30s}", end="")
    for index, (scale, digits) in enumerate(((100, 2), (1, 4))):
        value = got[index] * scale
        print(f"  {value.mean():7.{digits}f}", end="")
        for reference in (exact, without):
            if reference is not None:
                difference = value - reference[index] * scale
                error = difference.std() / math.sqrt(len(difference))
                print(f" ({difference.mean():+.{digits}f} +- {error:.{digits}f})", end="")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=250)
    arguments = parser.parse_args()
    print(f"{RANKS} ranks, {arguments.seeds} seeds, {arguments.steps} steps; accuracy (test, %), loss (training)")
    for optimizer in OPTIMIZERS:
        for case in CASES:
            print(f"{optimizer}, lost: {case.name}")
            lossless = replace(case, loss=(0.0,) * RANKS)
            exact = train(WAYS[0], optimizer, lossless, arguments.seeds, arguments.steps)
            print(f"    {'nothing lost':30s}  {exact[0].mean() * 100:7.2f}  {exact[1].mean():7.4f}")
            without: Final | None = None
            for way in WAYS:
                got = train(way, optimizer, case, arguments.seeds, arguments.steps)
                print_row(way.name, got, exact, None if way.returns == "nothing" else without)
                without = got if way.returns == "nothing" else without


if __name__ == "__main__":
    main()
