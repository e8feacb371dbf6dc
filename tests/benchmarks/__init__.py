"""Tests of the benchmarks' measuring code."""
