"""Reads the files of finished jobs and sums them up as tables and figures."""
