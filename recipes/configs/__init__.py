"""The presets: configurations of the papers' models, which install as `stack_lm.configs`."""
