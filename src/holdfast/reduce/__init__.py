"""Who sums what: the transpose all-reduce, as Python starts it and learns how it ended.

In: an address, a count and a format. Out: an `Outcome`, or an error that names the peers. May import `link`,
`control`, `config`, `errors`, `outcome`; knows nothing of torch.
"""
