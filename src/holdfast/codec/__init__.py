"""What is sent of a bucket: how its float32 elements become coefficients or 16 bits, and float32 again.

In: a bucket's gradient as a flat tensor, and which parameters are in it. Out: the tensor that goes over the wire. May
import torch; knows nothing of DDP, operations and peers.
"""
