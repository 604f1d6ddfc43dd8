"""The models that transformers sees: a configuration and a network for each kind, caches, losses and heads."""
