"""What more workers bring: steps per second of ES and of a sweep, what travels, and what that predicts for a cluster.

Run it with `make bench-scaling`, on a machine that does nothing else: settings are measured in turn, round by round,
and ratios are of the same round. The costs that predictions are made of are CPU time, which other work disturbs less.
The tables are in Markdown, as docs/scaling.md has them.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import math
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np
from harness import describe_machine
from rich import box
from rich.console import Console
from rich.table import Table

from paramnoise.envs import env_factory
from paramnoise.experience.returns import Broadcast, Episode, noise_table, num_parameters
from paramnoise.loops.members import MemberEvaluator, Setting
from paramnoise.loops.population import Population
from paramnoise.parallel.process import cores
from paramnoise.parallel.ray_cluster import connect
from paramnoise.parallel.sweep import Line, run_all
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.loop import make_loop

ENV = "HalfCheetah-v4"
EPISODE = 1_000
"""Steps of an episode there, always."""
ROUNDS = 3
NEVER = 10**9
LINK = 125e6
"""Bytes per second from the driver to its workers in the predictions: a network of 1 Gbit/s."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A piece of a sweep: a run that is timed once it is warm."""

    seed: int
    warm_up: int = 2_000
    seconds: float = 10.0


def train_for_a_while(window: Window, line: Line) -> bool:
    """Trains DDPG with parameter noise, and reports the steps per second after the first steps."""
    loop = make_loop([make_config("ddpg", ENV, exploration="parameter", seed=window.seed)], ENV)
    for _ in loop.run(NEVER, eval_every=NEVER, eval_episodes=1, should_stop=lambda: loop.step >= window.warm_up):
        pass
    first, started = loop.step, time.perf_counter()
    until = started + window.seconds
    for _ in loop.run(NEVER, eval_every=NEVER, eval_episodes=1, should_stop=lambda: time.perf_counter() >= until):
        pass
    rate = (loop.step - first) / (time.perf_counter() - started)
    line.report(lambda: rate)
    loop.close()
    return True


def sweep_rate(workers: int) -> float:
    """Steps per second of as many runs at once, all together."""
    with tempfile.TemporaryDirectory() as folder:
        windows = [Window(seed=seed) for seed in range(workers)]
        events = list(run_all(train_for_a_while, windows, workers, lambda: False, Path(folder) / "log"))
    rates = [event.detail for event in events if event.state == "progress"]
    assert len(rates) == workers, [event for event in events if event.state == "failed"]
    return sum(rates)


def es_config(**agent: object) -> RunConfig:
    """ES on the task, with eight environments in each worker."""
    return make_config("es", ENV, agent=agent, num_envs=8)


class WarmRun:
    """A run of ES that is kept between rounds, so that its workers are warm."""

    def __init__(self, **agent: object):
        """Starts the workers, with one generation."""
        self.loop = make_loop([es_config(**agent)], ENV)
        self.rate()

    def rate(self) -> float:
        """Steps per second of one generation."""
        first, started = self.loop.step, time.perf_counter()
        self.loop.collector.advance(lambda step: None, lambda: False, first + 1)
        return (self.loop.step - first) / (time.perf_counter() - started)


def in_turn(settings: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """The rates of each setting, one per round."""
    rates: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(ROUNDS):
        for name, measure in settings.items():
            rates[name].append(measure())
    return rates


def rate_table(title: str, rates: dict[str, list[float]]) -> Table:
    """Median rates, and ratios to the first setting."""
    base = next(iter(rates.values()))
    rows = []
    for name, values in rates.items():
        ratios = [value / first for value, first in zip(values, base, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((name, f"{statistics.median(values):,.0f}", spread))
    return table((title, "steps/s", "ratio to the first (least to greatest)"), rows)


def messages(hidden: tuple[int, ...], size: int = 8) -> tuple[int, int, int, int]:
    """Parameters, and the bytes of the broadcast, of a chunk's numbers and of its answer, pickled."""
    loop = make_loop([es_config(hidden_sizes=hidden)], ENV)
    state = loop.state().learner
    theta = np.zeros(num_parameters(loop.learner.init), np.float32)
    broadcast = Broadcast(0, theta, type(state.statistics)(*map(np.asarray, state.statistics)))
    sums = np.random.default_rng(0).normal(size=(2, 17))
    answer = [Episode(number, 1234.5, EPISODE, *sums) for number in range(size)]
    loop.close()
    sent, asked, answered = (len(pickle.dumps(message)) for message in (broadcast, range(8, 8 + size), answer))
    return len(theta), sent, asked, answered


def episode_rate(num_envs: int) -> float:
    """Steps per second of CPU time of one evaluator with so many environments."""
    loop = make_loop([es_config()], ENV)
    seen = loop.state().learner.statistics
    theta = np.zeros(num_parameters(loop.learner.init), np.float32)
    broadcast = Broadcast(0, theta, type(seen)(*map(np.asarray, seen)))
    evaluator = MemberEvaluator(Setting(loop.learner, env_factory(ENV), 0, num_envs, EPISODE))
    started = time.process_time()
    steps = sum(e.length for ended in evaluator.evaluate(broadcast, range(16)) for e in ended)
    taken = time.process_time() - started
    evaluator.close()
    loop.close()
    return steps / taken


def update_seconds(pairs: int) -> float:
    """Seconds that the driver is busy after all episodes of a generation are in."""
    loop = make_loop([es_config(pairs=pairs)], ENV)
    collector = loop.collector
    assert isinstance(collector, Population)
    noise_table(loop.learner.config.table_size)
    values = np.random.default_rng(0).normal(size=(2 * pairs, 17))
    episodes = [Episode(i, float(values[i, 0]), EPISODE, values[i], values[i] ** 2) for i in range(2 * pairs)]
    collector._improve(episodes)
    started = time.process_time()
    for _ in range(3):
        collector._improve(episodes)
    return (time.process_time() - started) / 3


def answer_seconds() -> float:
    """CPU seconds of the driver to read a chunk's answer and write the next numbers."""
    sums = np.random.default_rng(0).normal(size=(2, 17))
    answer = pickle.dumps([Episode(number, 1234.5, EPISODE, *sums) for number in range(8)])
    started = time.process_time()
    for _ in range(2_000):
        pickle.loads(answer)
        pickle.dumps(range(8, 16))
    return (time.process_time() - started) / 2_000


def ray_call_seconds() -> float:
    """CPU seconds of the driver per call of a Ray actor."""
    import ray

    connect(None, cores())

    class Echo:
        def hear(self, place: int, progress: object) -> bool:
            return False

    echo = ray.remote(num_cpus=0)(Echo).remote()
    ray.get(echo.hear.remote(0, None))
    started = time.process_time()
    ray.get([echo.hear.remote(place, (1_000, 1.0, 100.0)) for place in range(2_000)])
    return (time.process_time() - started) / 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """What was measured, and what the predictions are made of."""

    rates: dict[int, float]
    """Steps per second of a worker by its number of environments."""
    update: dict[int, float]
    """Seconds of an update by the size of the population."""
    per_chunk: float
    """Seconds of the driver for a chunk's messages."""
    broadcast: int
    answer: int

    def generation_seconds(self, members: int, workers: int) -> float:
        """A generation: the most that a worker has to run, the messages, which the driver handles alone, the update."""
        chunk = min(8, math.ceil(members / workers))
        rate = self.rates[8] if chunk == 8 else self.rates[1]
        rounds = math.ceil(math.ceil(members / chunk) / workers)
        busy = min(workers, math.ceil(members / chunk))
        chunks = math.ceil(members / chunk)
        sent = (busy * self.broadcast + chunks * self.answer) / LINK
        return rounds * chunk * EPISODE / rate + chunks * self.per_chunk + sent + self.update[members]


def prediction(costs: Costs) -> Table:
    """Steps per second for more workers than there are here."""
    rows = []
    for members in costs.update:
        one = costs.generation_seconds(members, 1)
        for workers in (1, 10, 100, 1_000):
            seconds = costs.generation_seconds(members, workers)
            rate = members * EPISODE / seconds
            gain = one / seconds
            share = costs.update[members] / seconds
            cells = (f"{members:,}", f"{workers:,}", f"{seconds:.2f}", f"{rate:,.0f}", f"{gain:.1f}", f"{share:.0%}")
            rows.append(cells)
    return table(("population", "workers", "s a generation", "steps/s", "times 1 worker", "in the update"), rows)


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table in Markdown."""
    made = Table(*names, box=box.MARKDOWN)
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        made.add_row(*row)
    return made


def measure_costs() -> Costs:
    """All that the predictions need."""
    _, broadcast, _, answer = messages((64, 64))
    per_chunk = ray_call_seconds() if importlib.util.find_spec("ray") else answer_seconds()
    return Costs(
        rates={num_envs: episode_rate(num_envs) for num_envs in (1, 8)},
        update={2 * pairs: update_seconds(pairs) for pairs in (20, 200, 2_000)},
        per_chunk=per_chunk,
        broadcast=broadcast,
        answer=answer,
    )


def main() -> None:
    """Measures everything and prints it."""
    gym.logger.min_level = gym.logger.ERROR
    console = Console(width=140)
    counts = sorted({1, 2, cores()})
    sweeps = in_turn({f"{count} worker(s)": functools.partial(sweep_rate, count) for count in counts})
    console.print(rate_table(f"sweep: DDPG, parameter noise, {ENV}", sweeps))
    with contextlib.ExitStack() as stack:
        populations = {f"{count} worker(s)": WarmRun(workers=count) for count in counts}
        if importlib.util.find_spec("ray"):
            populations[f"Ray, {cores()} actors"] = WarmRun(workers=cores(), engine="ray")
        for population in populations.values():
            stack.callback(population.loop.close)
        rates = in_turn({name: population.rate for name, population in populations.items()})
        console.print(rate_table(f"ES, {ENV}, 40 members", rates))
        sizes = [((64, 64), messages((64, 64))), ((256, 256), messages((256, 256)))]
        rows = [("-".join(map(str, hidden)), *(f"{count:,}" for count in counts)) for hidden, counts in sizes]
        console.print(table(("network", "parameters", "to each worker", "per chunk of 8", "back"), rows))
        costs = measure_costs()
    console.print(prediction(costs))
    console.print(f"{costs}\n{describe_machine()}", soft_wrap=True)


if __name__ == "__main__":
    main()
