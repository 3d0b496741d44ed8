"""Files of a run directory that somebody made by hand are refused with one line, and before they take memory."""

import json
import os
import resource
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_api import QUIET, tiny
from test_checkpoint import arrays_files, write_index

import paramnoise as pn
from paramnoise.runs import checkpoint, reading
from paramnoise.validation import UsageError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    tiny().learn(40, log_dir=path, eval_every=20, **QUIET)
    return path


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def complaint(path) -> str:
    with pytest.raises(UsageError) as caught:
        pn.load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_config(run, change) -> Path:
    held = json.loads((run / "config.json").read_text())
    change(held["config"])
    (run / "config.json").write_text(json.dumps(held))
    return run


@pytest.mark.parametrize(
    ("part", "field", "value", "named"),
    [
        (None, "seed", "0", "seed must be int, not '0'"),
        (None, "steps", 40.5, "steps must be int, not 40.5"),
        (None, "num_envs", True, "num_envs must be int, not True"),
        (None, "env", ["CartPole-v1"], "env must be str, not ['CartPole-v1']"),
        (None, "env_kwargs", [], "env_kwargs must be"),
        (None, "env_is_id", "no", "env_is_id must be bool, not 'no'"),
        (None, "replay_on", 3, "replay_on must be"),
        (None, "algorithm", ["dqn"], "not a run's config"),
        (None, "agent", "dqn", "not a run's config"),
        (None, "unknown", 1, "a run has no setting 'unknown'"),
        ("agent", "gamma", "0.99", "gamma must be float, not '0.99'"),
        ("agent", "gamma", float("nan"), "gamma must be a finite number, not nan"),
        ("agent", "hidden_sizes", 8, "hidden_sizes must be"),
        ("agent", "hidden_sizes", [8.5], "hidden_sizes must be"),
        ("agent", "batch_size", 10**30, "batch_size must be at most"),
        ("exploration", "delta", [0.1], "delta must be"),
        ("exploration", "kind", {}, "not a run's config"),
    ],
)
def test_a_stored_setting_of_another_type_is_refused_as_the_constructor_does(part, field, value, named, run):
    with_config(run, lambda config: (config if part is None else config[part]).update({field: value}))
    assert named in complaint(run)


def test_json_that_is_too_deep_too_large_or_no_object_is_refused(run, monkeypatch):
    index = run / "checkpoint" / checkpoint.INDEX
    for text in ('{"a":' * 200_000, '{"a":' * 60 + "1" + "}" * 60):
        (run / "config.json").write_text(text)
        assert "config.json is damaged" in complaint(run)
    (run / "config.json").write_text("[]")
    assert "not a JSON object" in complaint(run)
    monkeypatch.setattr(reading, "MOST_JSON", 10)
    with pytest.raises(UsageError, match="larger than"):
        reading.read_json(index)


@pytest.mark.parametrize("name", ["config.json", "progress.csv", f"checkpoint/{checkpoint.INDEX}", "arrays"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(name, run):
    path = arrays_files(run / "checkpoint")[0] if name == "arrays" else run / name
    path.unlink()
    os.mkfifo(path)
    assert "is not a plain file" in complaint(run)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "is not a plain file" in complaint(run)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../elsewhere.npz"},
        {"file": ["a"]},
        {"sha256": 3},
        {"facts": []},
        {"facts": {"step": "40", "wall_time": 0.0}},
        {"facts": {"step": 40, "wall_time": "long"}},
        {"facts": {"step": 40, "wall_time": 0.0, "digests": "none"}},
    ],
)
def test_an_index_of_other_types_is_refused(change, run):
    path = run / "checkpoint" / checkpoint.INDEX
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert "is not a checkpoint's index" in complaint(run)


def rewritten(run, change) -> Path:
    """The run with other arrays in its checkpoint, whose index agrees."""
    (data,) = arrays_files(run / "checkpoint")
    with np.load(data) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(data, **arrays)
    write_index(run / "checkpoint", data)
    return run


@pytest.mark.parametrize("name", ["own/starts", "own/running_return", "own/seeds", "state/step"])
def test_an_array_that_is_missing_is_refused(name, run):
    assert "does not fit its config" in complaint(rewritten(run, lambda arrays: arrays.pop(name)))


def test_an_array_of_other_environments_is_refused(run):
    longer = {"own/env/episode": np.zeros(7, np.int64)}
    assert "of 7 environments" in complaint(rewritten(run, lambda arrays: arrays.update(longer)))


def test_an_array_that_declares_more_than_the_file_holds_takes_no_memory(run):
    (data,) = arrays_files(run / "checkpoint")
    with np.load(data) as file:
        arrays = dict(file)
    with zipfile.ZipFile(data, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as part:
                shape = (10**12,) if name == "own/starts" else array.shape
                header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(part, header)
                part.write(array.tobytes())
    write_index(run / "checkpoint", data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "cannot be read" in complaint(run)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


def test_a_compressed_archive_is_refused_before_it_is_unpacked(run):
    (data,) = arrays_files(run / "checkpoint")
    with np.load(data) as file:
        arrays = dict(file)
    np.savez_compressed(data, **{**arrays, "own/bomb": np.zeros(10**7)})
    write_index(run / "checkpoint", data)
    assert "cannot be read" in complaint(run)


@pytest.mark.parametrize("row", ["40,1", "40" + ",x" * 30, "40," + "9" * 200_000, "41" + "," * 60])
def test_a_row_that_is_none_is_refused(row, run):
    with open(run / "progress.csv", "a") as file:
        file.write(f"{row}\n")
    assert "progress.csv is damaged" in complaint(run)


def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    os.mkfifo(tmp_path / "device")
    with pytest.raises(OSError, match="not a plain file"):
        checkpoint.write_atomically(tmp_path / "device", lambda file: file.write(b"new"))
    assert (tmp_path / "device").is_fifo()


@pytest.mark.parametrize("folder", ["checkpoint", "best", "tensorboard"])
def test_a_folder_that_is_a_link_is_not_written_through(folder, run, tmp_path):
    agent = pn.load(run)
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(run / folder, ignore_errors=True)
    (run / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        agent.learn(20, log_dir=run, eval_every=20, **QUIET)
    with pytest.raises(UsageError, match="is a link"):
        agent.save(run)
    assert not list((tmp_path / "elsewhere").iterdir())
