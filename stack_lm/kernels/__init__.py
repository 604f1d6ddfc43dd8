"""What runs a scan: the backends, and which of them runs where."""
