"""Bytes to a peer and back: the Python face of the native endpoint.

In: peers' addresses and keys, memory to send from. Out: operation reports, notes, path figures. May import `config`,
`errors` and the native module; knows nothing of torch.
"""
