"""`holdfast doctor`: probes on this machine, judgements on the facts of others. A package, so that its tests share hosts."""
