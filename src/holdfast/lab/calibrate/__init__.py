"""Checks a network of the lab from outside: what do ping, iperf3 and Gloo find of what its profile promises?

Real programs run inside the hosts, and only what they say counts. The switch's own counters never do: a switch that
loses what it did not mean to would believe itself. Its lateness is shown beside each finding, to say when to distrust it.

`programs` runs commands in hosts; `ping`, `iperf` and `gloo` are the instruments; `finding` turns what they say into a
figure with its error; `measures` knows which promise is measured how; `calibration` judges; `carrying` is about the
switch as a whole, with `udp_stream` where iperf3 is too slow.
"""
