"""Print how far the sum of many 16-bit averages is from that of exact ones, by how the gradient was rounded.

python benchmarks/rounding_error.py            the table of docs/decisions/0012, some seconds

Every rank has a gradient of its own, the same in every step but for noise. Contributions are rounded by the code that
rounds DDP's buckets; the mean is taken in float32 and rounded to nearest once, as the owner of a shard does. Plain
rounding to nearest, which Holdfast does not offer, is there to compare with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from holdfast.codec.cast import Cast
from holdfast.config import RoundingName, WireName

RANKS, ELEMENTS = 4, 20_000
LAYOUT = (("weight", ELEMENTS),)
Round = Callable[[int, torch.Tensor], torch.Tensor]


def rounding_to_nearest(dtype: torch.dtype) -> Round:
    return lambda _rank, gradient: gradient.to(dtype).float()


def rounding_by(wire: WireName, rounding: RoundingName) -> Round:
    casts = [Cast(wire, rounding, rank) for rank in range(RANKS)]

    def rounded(rank: int, gradient: torch.Tensor) -> torch.Tensor:
        arrived = torch.empty_like(gradient)
        casts[rank].widen(casts[rank].narrow(gradient, LAYOUT), arrived)
        return arrived

    return rounded


def relative_errors(rounded: Round, dtype: torch.dtype, noise: float, steps: int) -> tuple[float, float]:
    """Of one step, on average, and of the sum of all."""
    generator = torch.Generator().manual_seed(1)
    steady = 1e-3 * torch.randn(RANKS, ELEMENTS, generator=generator)
    exact_sum = torch.zeros(ELEMENTS, dtype=torch.float64)
    difference_sum = torch.zeros(ELEMENTS, dtype=torch.float64)
    of_a_step = 0.0
    for _ in range(steps):
        gradients = steady + noise * 1e-3 * torch.randn(RANKS, ELEMENTS, generator=generator)
        mean = torch.stack([rounded(rank, gradient) for rank, gradient in enumerate(gradients)]).mean(0)
        exact = gradients.double().mean(0)
        difference = mean.to(dtype).double() - exact
        of_a_step += float(difference.norm() / exact.norm()) / steps
        exact_sum += exact
        difference_sum += difference
    return of_a_step, float(difference_sum.norm() / exact_sum.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    wires: dict[WireName, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
    print(f"{RANKS} ranks, {steps} steps; relative error of one step and of their sum")
    for wire, dtype in wires.items():
        for noise in (0.0, 0.1, 1.0):
            print(f"{wire}  noise {noise:3.1f} of the gradient", end="")
            ways = {
                "nearest": rounding_to_nearest(dtype),
                "stochastic": rounding_by(wire, "stochastic"),
                "feedback": rounding_by(wire, "feedback"),
            }
            for name, rounded in ways.items():
                one, total = relative_errors(rounded, dtype, noise, steps)
                print(f"   {name} {one:.1e} {total:.1e}", end="")
            print()


if __name__ == "__main__":
    main()
