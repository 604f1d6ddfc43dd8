"""The backends that run a scan, and the choice between them."""
