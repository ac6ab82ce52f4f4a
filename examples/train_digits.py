"""Trains a small convolutional network on scikit-learn's digits with DistributedDataParallel.

    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --transport holdfast
    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --transport gloo

What Holdfast asks of the script is the import and the line with `holdfast.attach`. The other lines that mention the
handle report figures. Model, seed and order of the data do not depend on the transport.

Every rank evaluates, not rank 0 alone: a rank with more to do than the others is a straggler, and a bounded all-reduce
does not wait for stragglers.
"""

import argparse
import json
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import holdfast

GROUP_TIMEOUT = timedelta(minutes=3)
NUM_TEST_IMAGES = 360


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train digits on several ranks; start it with torchrun.")
    parser.add_argument("--transport", choices=("holdfast", "gloo"), default="holdfast")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    """Training set, test images, test labels: the same split on every rank and in every run."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1797))
    test, train = order[:NUM_TEST_IMAGES], order[NUM_TEST_IMAGES:]
    return TensorDataset(images[train], labels[train]), images[test], labels[test]


def build_network() -> nn.Module:
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


@torch.no_grad()
def evaluate(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Loss and accuracy on the test set."""
    network.eval()
    scores = network(images)
    network.train()
    accuracy = (scores.argmax(dim=1) == labels).float().mean()
    return nn.functional.cross_entropy(scores, labels).item(), accuracy.item()


def report(**figures: float | str) -> None:
    if dist.get_rank() == 0:
        print("  ".join(f"{name} {value}" for name, value in figures.items()), flush=True)


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)

    train_set, test_images, test_labels = load_data()
    sampler = DistributedSampler(train_set, seed=arguments.seed)
    loader = DataLoader(train_set, batch_size=arguments.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(build_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    handle = holdfast.attach(model, optimizer) if arguments.transport == "holdfast" else None

    step_ms: list[float] = []
    test_loss: list[float] = []
    test_accuracy: list[float] = []
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            started = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step_ms.append((time.perf_counter() - started) * 1e3)
        loss, accuracy = evaluate(model.module, test_images, test_labels)
        test_loss.append(loss)
        test_accuracy.append(accuracy)
        report(epoch=epoch + 1, loss=round(loss, 4), accuracy=round(accuracy, 4))

    figures = {
        "transport": arguments.transport,
        "ranks": dist.get_world_size(),
        "seed": arguments.seed,
        "epochs": arguments.epochs,
        "steps_per_epoch": len(loader),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "step_ms": step_ms,
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "holdfast": None if handle is None else {**handle.summary().as_dict(), "explain": handle.explain().split("\n")},
    }
    if handle is not None:
        handle.detach()  # makes the replicas equal once more, then closes the link
    figures["accuracy"] = evaluate(model.module, test_images, test_labels)[1]
    report(done=arguments.transport, accuracy=round(figures["accuracy"], 4))
    if arguments.json is not None and dist.get_rank() == 0:
        arguments.json.write_text(json.dumps(figures) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
