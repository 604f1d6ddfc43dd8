"""The tasks of Suzgun et al. (2019): the possible next symbols at every step."""
