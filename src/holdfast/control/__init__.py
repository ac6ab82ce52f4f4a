"""Which numbers to use: pure functions of measurements.

In: what operations reported. Out: parameters for later operations. May import `config`, `errors` and `outcome` only.
"""
