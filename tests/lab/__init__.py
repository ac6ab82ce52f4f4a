"""The lab: real hosts, a real switch, real kills; skipped with a reason where namespaces are not to be had."""
