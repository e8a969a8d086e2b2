"""Verdicts and stories."""
