"""The architectures: one module each, with ``ARCH``, ``build`` and ``FAULTS``."""
