"""A cloud on one machine: what is measured, and against whom.

In: which peers, sizes and ranks. Out: rows of figures. Its tasks may import everything, torch included.
"""
