"""The fifteen tasks of Delétang et al. (2023)."""
