"""Runs: a config and a directory in, progress and a checkpoint out."""
