"""The presets: configurations of the papers' models, installed as `stack_lm.configs`."""
