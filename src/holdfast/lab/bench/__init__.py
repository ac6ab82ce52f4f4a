"""How long an all-reduce takes: every peer in one run, taking turns, so that noise hits all of them alike."""
