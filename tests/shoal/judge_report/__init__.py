"""Tests of shoal.judge_report."""
