"""Dyck languages with options."""
