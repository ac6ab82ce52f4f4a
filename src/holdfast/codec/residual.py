"""What rounding left over of each parameter's gradient, kept until the next one (error feedback).

Keyed by parameter: DDP rebuilds its buckets after the first step, and a residual must follow its parameter into the
new bucket. In memory the residuals of one bucket lie side by side as its gradients do, so that a bucket is one call to
the kernel.
"""

from __future__ import annotations

import torch

# Names and element counts of a bucket's parameters, in the bucket's order.
Layout = tuple[tuple[str, int], ...]


class Residuals:
    def __init__(self) -> None:
        self._of_layout: dict[Layout, torch.Tensor] = {}
        self._of_parameter: dict[str, torch.Tensor] = {}  # views of the former

    def of_bucket(self, layout: Layout) -> torch.Tensor:
        """The residuals of these parameters, side by side, to be read and written in place. Zero in the beginning."""
        if layout not in self._of_layout:
            self._gather(layout)
        return self._of_layout[layout]

    def of_parameter(self, name: str) -> torch.Tensor | None:
        return self._of_parameter.get(name)

    def forget(self) -> None:
        self._of_layout.clear()
        self._of_parameter.clear()

    def _gather(self, layout: Layout) -> None:
        moving = {name for name, _ in layout}
        for old in [old for old in self._of_layout if moving.intersection(name for name, _ in old)]:
            del self._of_layout[old]  # parameters that were in it and do not move now are still held by their views
        sizes = [size for _, size in layout]
        flat = torch.zeros(sum(sizes), dtype=torch.float32)
        for (name, size), place in zip(layout, torch.split(flat, sizes), strict=True):
            before = self._of_parameter.get(name)
            if before is not None and before.numel() == size:
                place.copy_(before)
            self._of_parameter[name] = place
        self._of_layout[layout] = flat
