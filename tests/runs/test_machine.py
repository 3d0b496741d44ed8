"""What a run takes of this machine: threads by the size of its products, and no more devices than there are."""

import dataclasses
import os

import pytest

from paramnoise.runs import machine
from paramnoise.runs.config import make_config


@pytest.mark.parametrize(
    ("agent", "units", "batch_size", "large"),
    [("td3", 64, 128, False), ("sac", 256, 256, True), ("ddpg", 128, 128, False), ("trpo", 256, 5_000, False)],
)
def test_only_large_products_of_replayed_batches_get_more_than_one_thread(agent, units, batch_size, large):
    config = make_config(agent, "Pendulum-v1", agent={"hidden_sizes": (units, units), "batch_size": batch_size})
    assert machine._has_large_products(config) == large


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, None)])
def test_large_products_get_one_thread_where_there_is_one_core(monkeypatch, cores, threads):
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.setattr(machine, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(machine, "cores", lambda: cores)
    config = make_config("td3", "Pendulum-v1", agent={"hidden_sizes": (256, 256), "batch_size": 256})
    machine.set_up_process(config, "Pendulum-v1")
    assert os.environ.pop("PJRT_NPROC", None) == threads


def test_a_run_may_be_resumed_on_another_number_of_devices_and_is_where_there_are_fewer():
    here = make_config("pqn", "paramnoise/Chain-v0")
    elsewhere = dataclasses.replace(here, devices=8)
    assert elsewhere.digest() == here.digest()
    assert machine.fitting_here(elsewhere) == here  # a machine with one device
    assert machine.fitting_here(here) is here
