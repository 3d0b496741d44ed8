"""Runs of the Atari figure: ordinary run directories, whose curves are of the exploring policy's games."""

import math

from paramnoise.figures.atari_results import Score
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_runs import CurveRun


class AtariRun(CurveRun):
    """One run of the figure."""

    def curve(self) -> list[Point]:
        """The mean score of the games that the exploring policy ended since the point before; NaN where none ended."""
        config = self.config
        return [
            Point(config.env, config.algorithm, self.exploration, config.seed, step, float(row["train_return_mean"]))
            for step, row in self.rows_every(config.log_every, config.eval_every)
        ]

    def scores(self) -> list[Score]:
        """The noise-free evaluations so far, up to the steps asked for."""
        config = self.config
        scores = [
            Score(
                config.env,
                self.exploration,
                config.seed,
                step,
                config.eval_episodes,
                float(row["eval_return_mean"]),
                float(row["eval_return_median"]),
            )
            for step, row in self.rows_every(config.eval_every)
        ]
        return [score for score in scores if not math.isnan(score.mean)]
