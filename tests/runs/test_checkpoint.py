"""Checkpoints: bit-exact, refused when damaged, never executed, never half replaced."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.runs import checkpoint
from paramnoise.validation import UsageError


class State(NamedTuple):
    weights: dict
    key: jax.Array
    count: jax.Array


def state(value: float = 1.0, width: int = 3) -> State:
    row = jnp.arange(width, dtype=jnp.float32) * value
    return State(
        weights={"layer": (row / 3, row.at[0].set(jnp.nan)), "head": jnp.array([[-0.0, jnp.inf]], jnp.float32)},
        key=jax.random.PRNGKey(int(value)),
        count=jnp.int32(7),
    )


OWN = {"returns": np.array([0.1, np.nan, 1e300]), "none": np.zeros(0), "flags": np.array([True, False])}


def saved(directory: Path, step: int = 10, value: float = 1.0) -> Path:
    checkpoint.save(directory, state(value), OWN, {"step": step, "wall_time": 0.5})
    return directory


def arrays_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.npz"))


def write_index(directory: Path, data: Path, **changes) -> None:
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    index = {"format": checkpoint.FORMAT, "file": data.name, "sha256": digest, "facts": {"step": 10}, **changes}
    (directory / checkpoint.INDEX).write_text(json.dumps(index))


def complaint(directory: Path, template: State | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        checkpoint.load(directory, state() if template is None else template)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_round_trip_is_bit_exact(tmp_path):
    loaded, own, facts = checkpoint.load(saved(tmp_path / "new" / "checkpoint"), state(0.0))
    assert_same(loaded, state())
    assert_same(own, OWN)
    assert facts == {"step": 10, "wall_time": 0.5}


def test_a_loaded_state_may_be_donated(tmp_path):
    loaded, _, _ = checkpoint.load(saved(tmp_path), state())
    moved = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(loaded)
    assert int(moved.count) == 8
    assert_same(checkpoint.load(tmp_path, state())[0], state())


def test_saving_again_replaces_the_old_and_leaves_one_file_of_arrays(tmp_path):
    saved(tmp_path, step=10, value=1.0)
    saved(tmp_path, step=20, value=2.0)
    saved(tmp_path, step=20, value=3.0)
    loaded, _, facts = checkpoint.load(tmp_path, state())
    assert_same(loaded, state(3.0))
    assert facts["step"] == 20
    assert len(arrays_files(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 2


def truncate(data: Path) -> None:
    data.write_bytes(data.read_bytes()[:-100])


def flip_a_bit(data: Path) -> None:
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "says"), [(truncate, "checksum"), (flip_a_bit, "checksum"), (Path.unlink, "missing")]
)
def test_damaged_arrays_are_refused(tmp_path, damage, says):
    (data,) = arrays_files(saved(tmp_path))
    damage(data)
    message = complaint(tmp_path)
    assert says in message
    assert data.name in message


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b"{}", b'{"file": 3, "sha256": "", "facts": {}}']
)
def test_an_index_that_is_none_is_refused(tmp_path, content):
    (saved(tmp_path) / checkpoint.INDEX).write_bytes(content)
    assert "damaged" in complaint(tmp_path)


def test_a_checkpoint_in_the_format_of_another_version_is_refused_and_the_version_named(tmp_path):
    (data,) = arrays_files(saved(tmp_path))
    write_index(tmp_path, data, format=1)
    assert "was made by paramnoise 0.1 (format 1)" in complaint(tmp_path)
    write_index(tmp_path, data, format=7, made_by="3.2")
    assert "was made by paramnoise 3.2 (format 7)" in complaint(tmp_path)


def test_a_missing_index_is_no_checkpoint(tmp_path):
    (saved(tmp_path) / checkpoint.INDEX).unlink()
    assert "no checkpoint" in complaint(tmp_path)
    assert "no checkpoint" in complaint(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"not a zip archive"])
def test_arrays_that_are_none_are_refused_though_their_checksum_fits(tmp_path, content):
    (data,) = arrays_files(saved(tmp_path))
    data.write_bytes(content)
    write_index(tmp_path, data)
    assert "cannot be read" in complaint(tmp_path)


@pytest.mark.parametrize(
    "template",
    [
        state(width=4),
        state()._replace(count=jnp.float32(7)),
        state()._replace(weights={**state().weights, "more": jnp.zeros(1)}),
    ],
    ids=["shape", "dtype", "missing"],
)
def test_a_template_that_does_not_fit_is_refused(tmp_path, template):
    assert "does not fit" in complaint(saved(tmp_path), template)


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_the_trap_of_the_next_test_works(tmp_path):
    np.savez(tmp_path / "trap.npz", own=np.array([Trap(tmp_path / "sprung")], object))
    with np.load(tmp_path / "trap.npz", allow_pickle=True) as file:
        file["own"]
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["state/count", "own/extra"])
def test_a_pickled_object_is_refused_and_not_executed(tmp_path, name):
    (data,) = arrays_files(saved(tmp_path / "checkpoint"))
    with np.load(data) as file:
        arrays = dict(file)
    trap = np.empty((), object)
    trap[()] = Trap(tmp_path / "sprung")
    np.savez(data, **{**arrays, name: trap})
    write_index(tmp_path / "checkpoint", data)
    assert "cannot be read" in complaint(tmp_path / "checkpoint")
    assert not (tmp_path / "sprung").exists()


def crash_at(monkeypatch, name_starts_with: str) -> None:
    """From now on, a write to a file of such a name fails."""
    write = checkpoint.write_atomically

    def failing(path, content):
        if path.name.startswith(name_starts_with):
            raise OSError("no space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_atomically", failing)


@pytest.mark.parametrize("place", ["arrays", checkpoint.INDEX])
@pytest.mark.parametrize("next_step", [10, 20])
def test_a_crash_leaves_the_checkpoint_before_loadable(tmp_path, monkeypatch, place, next_step):
    saved(tmp_path, step=10, value=1.0)
    with monkeypatch.context() as patch:
        crash_at(patch, place)
        with pytest.raises(OSError, match="no space"):
            saved(tmp_path, step=next_step, value=2.0)
    loaded, _, facts = checkpoint.load(tmp_path, state())
    assert_same(loaded, state(1.0))
    assert facts["step"] == 10


def test_the_save_after_a_crash_clears_what_the_crash_left(tmp_path, monkeypatch):
    saved(tmp_path, step=10)
    with monkeypatch.context() as patch:
        crash_at(patch, checkpoint.INDEX)
        with pytest.raises(OSError, match="no space"):
            saved(tmp_path, step=20)
    saved(tmp_path, step=30, value=3.0)
    assert_same(checkpoint.load(tmp_path, state())[0], state(3.0))
    assert len(arrays_files(tmp_path)) == 1


def test_a_write_that_fails_half_way_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    checkpoint.write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"ne")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        checkpoint.write_atomically(path, fail)
    assert path.read_bytes() == b"old"


def test_a_checkpoint_of_another_format_is_refused_with_the_version_that_made_it(tmp_path):
    checkpoint.save(tmp_path, {"x": np.zeros(2)}, {}, {})
    index = json.loads((tmp_path / checkpoint.INDEX).read_text())
    old = {name: value for name, value in index.items() if name != "made_by"} | {"format": 1}  # as 0.1 wrote it
    (tmp_path / checkpoint.INDEX).write_text(json.dumps(old))
    with pytest.raises(UsageError, match=r"was made by paramnoise 0\.1 \(format 1\), and this version reads format 2"):
        checkpoint.load(tmp_path, {"x": np.zeros(2)})
