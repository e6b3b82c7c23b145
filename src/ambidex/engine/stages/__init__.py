"""The stages behind the forward pass, and the float64 formulas of what a model is trained with."""
