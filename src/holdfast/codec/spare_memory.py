"""Memory for one tensor per bucket under way, used again from step to step."""

from __future__ import annotations

import torch


class SpareMemory:
    """Fresh memory costs a page fault every 4 KiB. As many pieces are held as buckets are ever open at once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._spare: list[torch.Tensor] = []

    def take(self, count: int) -> torch.Tensor:
        fitting = [index for index, spare in enumerate(self._spare) if spare.numel() >= count]
        if fitting:
            return self._spare.pop(min(fitting, key=lambda index: self._spare[index].numel()))[:count]
        if self._spare:
            self._spare.pop()  # too small for what comes now: replaced, not added to
        return torch.empty(count, dtype=self.dtype)

    def give_back(self, piece: torch.Tensor) -> None:
        """It must not be used any more."""
        self._spare.append(piece if piece._base is None else piece._base)
