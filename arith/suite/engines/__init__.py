"""Where jobs run: an engine starts what it is given and says how it ended. It decides nothing: what
is ready, what is done and what is tried again is for `arith.suite.conductor`."""
