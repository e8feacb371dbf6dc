"""Tests of shoal_lab.judge_report."""
