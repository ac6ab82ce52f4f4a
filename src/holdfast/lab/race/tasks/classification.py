"""Training to tell images apart: what `digits` and `fashion` share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from holdfast.lab.race.orders import Score
from holdfast.lab.race.tasks import shuffle
from holdfast.lab.race.tasks.training import Place


@dataclass(frozen=True)
class Images:
    """Shaped (count, 1, height, width), and what they show."""

    pixels: torch.Tensor
    labels: torch.Tensor


class Classification:
    def __init__(
        self, network: nn.Module, train: Images, test: Images, place: Place, *, batch_size: int, learning_rate: float
    ) -> None:
        self.model = network
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=0.9)
        self._train, self._test = train, test
        self._place, self._batch_size = place, batch_size

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        place = self._place
        chosen = shuffle.batch(
            step,
            size=self._batch_size,
            rank=place.rank,
            num_ranks=place.num_ranks,
            num_examples=len(self._train.labels),
            seed=place.seed,
        )
        return nn.functional.cross_entropy(model(self._train.pixels[chosen]), self._train.labels[chosen])

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> Score:
        model.eval()
        scores = model(self._test.pixels)
        model.train()
        accuracy = (scores.argmax(dim=1) == self._test.labels).float().mean()
        return Score(accuracy.item(), nn.functional.cross_entropy(scores, self._test.labels).item())
