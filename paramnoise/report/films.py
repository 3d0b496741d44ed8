"""Films of a results directory: videos, each with a file of facts beside it that `paramnoise film` wrote."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from paramnoise.validation import UsageError

VIDEOS = "videos"
"""Below a results directory."""


class Film(NamedTuple):
    """A video and what is known of it."""

    path: Path
    title: str
    caption: str
    command: str


def write_facts(video: Path, facts: dict[str, Any]) -> None:
    """Writes what a video shows, beside it."""
    video.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n")


def films(results: Path) -> list[Film]:
    """The films of a results directory, by name."""
    found = sorted(path for path in (results / VIDEOS).glob("*.mp4") if path.with_suffix(".json").exists())
    return [_film(path) for path in found]


def _film(path: Path) -> Film:
    try:
        facts = json.loads(path.with_suffix(".json").read_text())
        clean, *others = facts["returns"]
        noise = f" and {len(others)} with parameter noise of sigma {facts['sigma']:.2g}" if others else ""
        perturbed = f"; perturbed {', '.join(f'{value:,.1f}' for value in others)}" if others else ""
        return Film(
            path,
            facts["env"],
            f"{facts['algorithm'].upper()} after {facts['steps']:,} steps: the clean policy{noise}, on the same "
            f"episode. Returns: clean {clean:,.1f}{perturbed}.",
            facts["command"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path.with_suffix('.json')} is damaged: it does not say what {path.name} shows") from None
