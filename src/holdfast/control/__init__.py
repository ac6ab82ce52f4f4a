"""Which numbers to use: pure functions of measurements.

In: what operations reported. Out: parameters for later operations, each with a sentence that says why.
May import `config`, `errors` and `outcome` only: no clock, no socket, no torch.

Reading order: `hard_bound` (t_B), `change` (when to measure it again), `early_timeout` (t_C), `early_wait` (x),
`incast` (credit), `shards` (who sums how much), `hadamard_switch` (whether gradients are encoded).
"""
