"""What each command of the command line does."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from paramnoise.agents.base import Spaces
from paramnoise.api import Agent, load
from paramnoise.claims import CLAIMS, judge
from paramnoise.claims import report as claims_report
from paramnoise.envs.listing import env_lines, found_lines
from paramnoise.figures.base import NOT_DRAWN, can_draw
from paramnoise.figures.run_curves import find_runs, read_curves
from paramnoise.parallel.process import INTERRUPTED, Device, use_device
from paramnoise.parallel.ray_cluster import connect
from paramnoise.report.films import write_facts
from paramnoise.report.site import write_report
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import settings_lines
from paramnoise.runs.machine import fitting_here, set_up_process
from paramnoise.runs.run import run
from paramnoise.runs.video import check_path
from paramnoise.runs.which_delta import PROBES, which_delta
from paramnoise.validation import UsageError, require


def train(
    config: RunConfig,
    run_dir: Path | None,
    *,
    resume: bool,
    or_start: bool = False,
    checkpoint_seconds: float,
    tensorboard: bool,
    device: Device | None,
) -> int:
    """`paramnoise train`; without `run_dir` the run has a directory below runs/.

    With `or_start` the run is resumed if there is one, and started if not.
    """
    path = run_dir or _default_run_dir(config, resume or or_start)
    resume = resume or (or_start and RunDirectory(path).exists())
    set_up_process(config, config.env)
    if device is not None:
        use_device(device)
    if getattr(config.agent, "engine", None) == "ray":
        connect(config.agent.ray_address, config.agent.workers)  # an error before anything is written
    summary = run(
        config,
        path,
        resume=resume,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        on_start=lambda loop: _print_settings(config, loop.learner.spaces, path),
    )
    if summary["status"] == "interrupted":
        print(f"interrupted at step {summary['steps']:,}; go on with paramnoise resume {path}")
        return INTERRUPTED + summary["signal"]
    print(
        f"finished: {summary['steps']:,} steps in {summary['wall_time']:.1f} s; noise-free evaluation "
        f"{summary['final_eval_return_mean']:.1f}, best {summary['best_eval_return_mean']:.1f}; {path}"
    )
    return 0


def _default_run_dir(config: RunConfig, resume: bool) -> Path:
    """runs/AGENT/ENV/EXPLORATION/seed-S; a second run of the same gets -2, and so on; `resume` takes the last."""
    base = Path("runs") / config.algorithm / config.env / config.exploration.kind / f"seed-{config.seed}"
    last, path, number = base, base, 1
    while path.exists():
        last, number = path, number + 1
        path = base.with_name(f"{base.name}-{number}")
    return last if resume else path


def _print_settings(config: RunConfig, spaces: Spaces, path: Path) -> None:
    print("\n".join([*settings_lines(config, spaces), f"  directory: {path}"]), flush=True)


def resume(
    run_dir: Path, steps: int | None, *, checkpoint_seconds: float, device: Device | None, trust_env: bool
) -> int:
    """`paramnoise resume`: the settings are those that the directory holds, but for `steps`, which may be more."""
    directory = RunDirectory(run_dir)
    if not directory.exists():
        raise UsageError(f"nothing to resume: {run_dir} holds no run")
    if device is not None:
        use_device(device)
    config = fitting_here(directory.config())
    if not trust_env:
        directory.check_env(config)
    if not config.env_is_id:
        raise UsageError(
            f"{run_dir} was made with an environment object ({config.env}): load it in Python, and learn on"
        )
    with directory.naming_plugins():  # the environment may be a plug-in's
        return train(
            config if steps is None else dataclasses.replace(config, steps=steps),
            run_dir,
            resume=True,
            checkpoint_seconds=checkpoint_seconds,
            tensorboard=directory.tensorboard.exists(),
            device=device,
        )


def evaluate(
    run_dir: Path, episodes: int, seed: int, video: Path | None, device: Device | None, trust_env: bool
) -> int:
    """`paramnoise evaluate`."""
    require(episodes >= 1, "episodes", episodes, "at least 1")
    if video is not None:
        check_path(video)
    agent = _load(run_dir, device, trust_env)
    filmed = agent.record(video, seed=seed) if video is not None else None
    print(f"{agent.algorithm} on {agent.config.env} after {agent.step:,} steps, noise-free:")
    print(agent.evaluate(episodes, seed))
    if filmed is not None:
        print(f"{video}: the first episode, with a return of {filmed.mean:.1f}")
    return 0


def _load(run_dir: Path, device: Device | None, trust_env: bool) -> Agent:
    """The agent of a run directory, or of `agent.save`, on a device."""
    if device is not None:
        use_device(device)
    return load(run_dir, RunDirectory(run_dir).config().env if trust_env else None)


def claims(results: Path, out: Path | None, readme: tuple[Path, ...]) -> int:
    """`paramnoise claims`."""
    if not results.is_dir():
        raise UsageError(f"{results} is not a directory: give one that holds results of figures with --results")
    path = out or results / claims_report.JSON
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory: --out takes a file in one that is there")
    outcomes = [judge(claim, results) for claim in CLAIMS]
    pages = {page: claims_report.with_tables(page, outcomes) for page in readme}
    for page, text in pages.items():
        claims_report.write_text(text, page)
    claims_report.write_json(outcomes, path)
    claims_report.print_table(outcomes)
    print(path)
    return 0


def report(results: Path | None, runs: tuple[Path, ...], out: Path) -> int:
    """`paramnoise report`."""
    default = Path("results")
    if results is None and default.is_dir():
        results = default
    if results is not None and not results.is_dir():
        raise UsageError(f"{results} is not a directory: give one that holds results of figures with --results")
    if results is None and not runs:
        raise UsageError("nothing to report on: name your runs with --runs, or a directory of results with --results")
    write_report(out, results, runs)
    print(out / "index.html")
    return 0


def film(
    run_dir: Path,
    out: Path,
    perturbed: int,
    sigma: float | None,
    seed: int,
    max_steps: int | None,
    device: Device | None,
    trust_env: bool,
) -> int:
    """`paramnoise film`."""
    check_path(out)
    require(perturbed >= 1, "perturbed", perturbed, "at least 1")
    require(max_steps is None or max_steps >= 1, "max_steps", max_steps, "at least 1")
    agent = _load(run_dir, device, trust_env)
    if sigma is None:
        if getattr(agent.config.exploration, "scaling", "adaptive") != "adaptive":
            raise UsageError(f"{run_dir} explored by natural steps, which no one sigma describes: choose one, --sigma")
        sigma = _last_sigma(RunDirectory(run_dir))
    filmed = agent.record(out, seed=seed, perturbed=perturbed, sigma=sigma, max_steps=max_steps)
    facts = {"algorithm": agent.algorithm, "env": agent.config.env, "steps": agent.step, "sigma": sigma, "seed": seed}
    command = f"paramnoise film {run_dir} --out {out} --perturbed {perturbed} --sigma {sigma:.4g} --seed {seed}"
    command += f" --max-steps {max_steps}" if max_steps else ""
    write_facts(out, {**facts, "returns": filmed.returns, "command": command})
    clean, *others = filmed.returns
    print(
        f"{out}: clean {clean:,.1f}, perturbed with sigma {sigma:.3g}: {', '.join(f'{each:,.1f}' for each in others)}"
    )
    return 0


def _last_sigma(directory: RunDirectory) -> float:
    """The noise that a run explored with at its end."""
    found = [row["sigma"] for row in directory.rows() if row.get("sigma") not in ("", "nan", None)]
    if not found:
        raise UsageError(f"{directory.path} has no sigma in its progress: say how large the noise is with --sigma")
    return float(found[-1])


def delta(
    run_dir: Path, sigmas: Sequence[float], states: int, seed: int, device: Device | None, trust_env: bool
) -> int:
    """`paramnoise delta`."""
    if device is not None:
        use_device(device)
    report = which_delta(run_dir, sigmas, states=states, seed=seed, trust_env=trust_env)
    config = report.config
    print(
        f"{config.algorithm} on {config.env} after {report.step:,} steps, in {report.states:,} states of noise-free "
        f"episodes, {PROBES} perturbations of each sigma:"
    )
    columns: dict[str, list[str]] = {
        "sigma": [f"{row.sigma:g}" for row in report.rows],
        "distance": [f"{row.distance:.3g}" for row in report.rows],
        "quartiles": [f"{row.low:.3g} to {row.high:.3g}" for row in report.rows],
    }
    if report.matches is not None:
        matched = [row.matched for row in report.rows]
        columns[f"as {report.matches}"] = ["-" if value is None else f"{value:.3g}" for value in matched]
    changed = [row.changed for row in report.rows if row.changed is not None]
    if changed:
        columns["actions changed"] = [f"{100 * value:.1f} %" for value in changed]
    shown = list(zip(*([name, *cells] for name, cells in columns.items()), strict=True))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        print("  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    print("delta is the distance to keep: --exploration parameter delta:VALUE (docs/delta.md)")
    return 0


def plot_runs(paths: Sequence[Path], out: Path) -> int:
    """`paramnoise plot RUN_DIR ...`."""
    if out.suffix != ".png":
        raise UsageError(f"the picture's name must end in .png, not {out.name!r}")
    curves = read_curves(find_runs(paths))
    if not can_draw():
        raise UsageError(NOT_DRAWN)
    from paramnoise.figures.plots_of_runs import plot_curves

    plot_curves(curves, out)
    print(out)
    return 0


def envs(search: str) -> int:
    """`paramnoise envs`; with `search`, of what has it in its id or in its line of help."""
    print("\n".join(found_lines(search) if search else env_lines()))
    return 0
