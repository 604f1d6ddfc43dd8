"""McCoy et al. (2020)."""
