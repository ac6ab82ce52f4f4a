"""The task `finetune`: a transformer that knows one half of Python's standard library learns the other."""

from __future__ import annotations

import torch

from holdfast.lab.race.tasks import pretraining
from holdfast.lab.race.tasks.language import BATCH_SIZE, LanguageTraining
from holdfast.lab.race.tasks.training import Place

LEARNING_RATE = 1e-3


def begin(place: Place) -> LanguageTraining:
    training = LanguageTraining(1, place, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    weights = torch.load(pretraining.weights_file(place.prepared, place.seed), weights_only=True)
    training.model.load_state_dict(weights)
    return training
