"""Models and tokenizers as scorers of sentences."""
