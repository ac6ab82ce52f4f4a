"""The task `digits`: scikit-learn's handwritten digits and a small convolutional network with BatchNorm (0.6 MB)."""

from __future__ import annotations

import torch
from torch import nn

from holdfast.lab.race.tasks import digits_file
from holdfast.lab.race.tasks.classification import Classification, Images
from holdfast.lab.race.tasks.training import Place

NUM_TEST_IMAGES = 360


def begin(place: Place) -> Classification:
    pixels, digits = digits_file.images_and_labels()
    images, labels = torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(digits)
    # The same split whatever the seed: figures of different seeds are then about the same images.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1797))
    test, train = order[:NUM_TEST_IMAGES], order[NUM_TEST_IMAGES:]
    return Classification(
        _network(),
        Images(images[train], labels[train]),
        Images(images[test], labels[test]),
        place,
        batch_size=16,
        learning_rate=0.002,
    )


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
