"""Training: one run directory and one trainer for each kind of model."""
