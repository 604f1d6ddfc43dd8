"""The languages of FLaRe (Butoi et al. 2025): strings to accept or to reject."""
