"""Models from and for the Hugging Face hub."""
