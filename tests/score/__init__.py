"""The quality figure: good pairs of models, mutants with planted faults, and the score over them."""
