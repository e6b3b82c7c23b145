"""Discrepancies that people reported, each as a pair with its fault: see ``run``."""
