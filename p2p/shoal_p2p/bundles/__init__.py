"""Transfers task files: peers that share a family serve its files, and joining nodes fetch them."""
