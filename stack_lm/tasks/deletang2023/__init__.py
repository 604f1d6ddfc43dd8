"""The fifteen tasks of Delétang et al. (2023), "Neural Networks and the Chomsky Hierarchy"."""
