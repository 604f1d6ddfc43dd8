"""Labels of training and scoring."""

# A label that counts neither in a loss nor in a score, as in torch's cross_entropy.
IGNORED = -100
