"""One model in two implementations that other people wrote: `python -m tests.real.run`."""
