"""1F1B, the fault-free schedule everything is compared with (spec section 1)."""

from __future__ import annotations

from holdfast.reroute.workload import FORWARD, INPUT_GRAD, Orders, Workload


def one_forward_one_backward(work: Workload) -> Orders:
    """Warm up with S - s - 1 forwards, then alternate forward and fused backward, then drain.

    A memory limit below 1F1B's own need of S - s micro-batches shortens the warm-up. Only for jobs without failures:
    with re-routed micro-batches the strict order could wait for itself.
    """
    job = work.job
    stages, microbatches = job.shape.stages, job.shape.microbatches
    warm_ups: list[int] = []
    for stage, cost in enumerate(job.costs):
        warm_up = min(stages - stage - 1, microbatches)
        if cost.room is not None and cost.held:
            warm_up = min(warm_up, cost.room // cost.held - 1)
        # A stage cannot wait for more forwards than the stage before it sends without a gradient in return.
        warm_ups.append(min([warm_up, *warm_ups]))
    sequence = {}
    for worker, cells in work.cells_of().items():
        warm_up = warm_ups[worker % stages]
        ops = [3 * cell + FORWARD for cell in cells[:warm_up]]
        for index in range(microbatches):
            if index + warm_up < microbatches:
                ops.append(3 * cells[index + warm_up] + FORWARD)
            ops.append(3 * cells[index] + INPUT_GRAD)
        sequence[worker] = ops
    return Orders(sequence, bytearray(b"\x01" * work.num_cells))
