"""A small transformer that predicts the next byte: what `text` and `finetune` share (1.7 MB)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from holdfast.lab.race.orders import Score
from holdfast.lab.race.tasks import corpus
from holdfast.lab.race.tasks.training import Place

CONTEXT = 64
WIDTH = 128
NUM_BLOCKS = 2
NUM_HEADS = 4
BATCH_SIZE = 4
NUM_VALIDATION_WINDOWS = 96


class LanguageTraining:
    def __init__(self, half: corpus.Half, place: Place, *, batch_size: int, learning_rate: float) -> None:
        self.model: nn.Module = Transformer()
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        self._place, self._batch_size = place, batch_size
        self._text = corpus.symbols(half, validation=False)
        validation = corpus.symbols(half, validation=True)
        self._validation = _windows(validation, np.linspace(0, len(validation) - CONTEXT - 1, NUM_VALIDATION_WINDOWS))

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        chance = np.random.default_rng([self._place.seed, self._place.rank, step])
        return _loss(model, _windows(self._text, chance.integers(len(self._text) - CONTEXT, size=self._batch_size)))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> Score:
        loss = _loss(model, self._validation).item()
        return Score(loss, loss)


class Transformer(nn.Module):
    """Pre-norm blocks, learned positions, input and output embedding shared."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(corpus.NUM_SYMBOLS, WIDTH)
        self.places = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(NUM_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.symbols.weight, std=0.02)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.blocks(self.symbols(symbols) + self.places))
        return nn.functional.linear(hidden, self.symbols.weight)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(self.norm_attention(hidden)).unflatten(-1, (3, NUM_HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.norm_mlp(hidden))  # type: ignore[no-any-return]


def _windows(text: npt.NDArray[np.uint8], starts: npt.ArrayLike) -> torch.Tensor:
    """A context and the byte after it, from each start on."""
    places = np.asarray(starts).astype(np.int64)[:, None] + np.arange(CONTEXT + 1)
    return torch.from_numpy(text[places].astype(np.int64))


def _loss(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    predicted = model(windows[:, :-1])
    return nn.functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
