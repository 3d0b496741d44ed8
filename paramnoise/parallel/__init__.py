"""Pools of workers: processes of this machine, or a Ray cluster."""
