"""One model in two implementations that other people wrote, compared on the command line: `python -m tests.real.run`."""
