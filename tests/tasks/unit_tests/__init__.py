"""Tests of code tasks: formats, values, processes, and hostile completions."""
