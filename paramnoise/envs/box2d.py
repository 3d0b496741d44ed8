"""Tasks in the Box2D engine: the world, its bodies, its clock, and the Gymnasium environment around them.

An episode is a function of its seed and its actions. The engine keeps more than positions and velocities (contacts, the
impulses that warm-start its solver), so every episode starts in a world built anew.
"""

import abc
import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from paramnoise.envs.drawing import Canvas, Colour, Point, View
from paramnoise.validation import require

try:
    with warnings.catch_warnings():
        # The engine's module warns of its own types, and Python crashes where warnings are errors.
        warnings.simplefilter("ignore", DeprecationWarning)
        import Box2D
except ImportError:
    raise gym.error.DependencyNotInstalled(
        "the Box2D engine is not installed: run `pip install 'paramnoise[box2d]'`"
    ) from None

GRAVITY = (0.0, -10.0)
MOTOR_SPEED = 1e5
"""A speed that no joint reaches, so that its motor always gives the whole torque."""
SKIN = 2 * Box2D.b2_polygonRadius
"""How far apart the engine keeps two touching shapes."""
NO_CONTACTS = -1
"""Bodies of this group pass through each other."""

STATIC_COLOUR: Colour = (110, 110, 110)
MARK_COLOUR: Colour = (230, 150, 60)
BODY_COLOURS: tuple[Colour, ...] = ((60, 90, 160), (190, 70, 70))


class Clock(NamedTuple):
    """How time passes in a world."""

    time_step: float
    velocity_iterations: int = 8
    position_iterations: int = 3
    frame_skip: int = 1
    """Engine steps per environment step, all with the same action."""


class BodyState(NamedTuple):
    """Where a body is and how it moves, both at its origin."""

    x: float
    y: float
    angle: float = 0.0
    x_velocity: float = 0.0
    y_velocity: float = 0.0
    angular_velocity: float = 0.0

    def hinge(self, point: Point, angle: float, angular_velocity: float) -> "BodyState":
        """The state of a second body whose origin is hinged to a point of this one."""
        turned_x = math.cos(self.angle) * point[0] - math.sin(self.angle) * point[1]
        turned_y = math.sin(self.angle) * point[0] + math.cos(self.angle) * point[1]
        return BodyState(
            self.x + turned_x,
            self.y + turned_y,
            angle,
            self.x_velocity - self.angular_velocity * turned_y,
            self.y_velocity + self.angular_velocity * turned_x,
            angular_velocity,
        )


def new_world() -> Any:
    """An empty world."""
    return Box2D.b2World(gravity=GRAVITY, doSleep=False)


def rectangle(half_width: float, bottom: float, top: float) -> list[Point]:
    """The corners of an upright rectangle around the y axis."""
    return [(-half_width, bottom), (half_width, bottom), (half_width, top), (-half_width, top)]


def solid(corners: Sequence[Point], **properties: float) -> Any:
    """A convex shape with the engine's properties (density, friction, groupIndex).

    Shapes are made once and given to the bodies of every world: the engine's module never frees one.
    """
    return Box2D.b2FixtureDef(shape=Box2D.b2PolygonShape(vertices=list(corners)), **properties)


def terrain(points: Sequence[Point]) -> Any:
    """A line of ground through the points, with the engine's own friction of 0.2."""
    return Box2D.b2FixtureDef(shape=Box2D.b2ChainShape(vertices_chain=list(points)))


def read_state(body: Any) -> BodyState:
    """The state of a body."""
    position, velocity = body.position, body.GetLinearVelocityFromLocalPoint((0.0, 0.0))
    return BodyState(position.x, position.y, body.angle, velocity.x, velocity.y, body.angularVelocity)


def write_state(body: Any, state: BodyState) -> None:
    """Moves a body to a state."""
    body.transform = (state.x, state.y), state.angle
    at_centre = state.hinge(tuple(body.localCenter), state.angle, state.angular_velocity)
    body.linearVelocity = at_centre.x_velocity, at_centre.y_velocity
    body.angularVelocity = state.angular_velocity


def push(body: Any, force: float) -> None:
    """Applies a force at the body's origin, along the body's own x axis, for one engine step."""
    body.ApplyForce(body.GetWorldVector((force, 0.0)), body.position, True)


def twist(joint: Any, torque: float) -> None:
    """Makes a joint's motor give a torque from now on."""
    joint.motorSpeed = MOTOR_SPEED if torque > 0 else -MOTOR_SPEED
    joint.maxMotorTorque = abs(torque)


class Box2DEnv(gym.Env[np.ndarray, np.ndarray], abc.ABC):
    """One control of a world; a task says how the world is built, where it starts, and what is seen and paid."""

    clock: ClassVar[Clock]
    limit: ClassVar[float]
    """The largest action; those beyond are clipped."""
    observations: ClassVar[int]
    """The size of an observation."""
    view: ClassVar[View]
    marks: ClassVar[Sequence[Sequence[Point]]] = ()
    """Lines that a picture shows besides the bodies."""

    def __init__(self, render_mode: str | None = None):
        """Makes the task; `render_mode` is "rgb_array" or None."""
        modes = (None, *self.metadata["render_modes"])
        require(render_mode in modes, "render_mode", render_mode, "'rgb_array' or None")
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.observations,), np.float32)
        self.action_space = gym.spaces.Box(-self.limit, self.limit, (1,), np.float32)
        self._scene = self._build()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode in a new world."""
        super().reset(seed=seed)
        return self.start_from(self._draw_start()), {}

    def start_from(self, state: Sequence[float]) -> np.ndarray:
        """Starts an episode from the numbers that the task's reset draws; returns the observation."""
        self._scene = self._build()
        self._place(state)
        return self._observe()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Applies the action for one environment step."""
        control = float(action[0])
        require(not math.isnan(control), "action", control, f"a number between {-self.limit} and {self.limit}")
        control = min(max(control, -self.limit), self.limit)
        time_step, velocity_iterations, position_iterations, frame_skip = self.clock
        for _ in range(frame_skip):
            self._act(control)
            self._scene.world.Step(time_step, velocity_iterations, position_iterations)
        reward, terminated = self._judge()
        return self._observe(), reward, terminated, False, {}

    def render(self) -> np.ndarray | None:
        """The world as a picture, (height, width, 3) uint8."""
        if self.render_mode is None:
            return None
        canvas = Canvas(self.view)
        colours = iter(BODY_COLOURS)
        for body in self._scene.world.bodies:
            colour = STATIC_COLOUR if body.type == Box2D.b2_staticBody else next(colours)
            for fixture in body.fixtures:
                paint = canvas.polyline if isinstance(fixture.shape, Box2D.b2ChainShape) else canvas.polygon
                paint([tuple(body.GetWorldPoint(vertex)) for vertex in fixture.shape.vertices], colour)
        for mark in self.marks:
            canvas.polyline(mark, MARK_COLOUR)
        return canvas.pixels

    def __getstate__(self) -> dict[str, Any]:
        """The environment without its world, which cannot be copied; a copy starts with its own and wants a reset."""
        return {name: value for name, value in self.__dict__.items() if name != "_scene"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._scene = self._build()

    @abc.abstractmethod
    def _build(self) -> Any:
        """A tuple of the world of an episode, named `world`, and its bodies, which live as long as the world."""

    @abc.abstractmethod
    def _draw_start(self) -> Sequence[float]:
        """The numbers that an episode starts from."""

    @abc.abstractmethod
    def _place(self, start: Sequence[float]) -> None:
        """Moves the bodies to a start."""

    @abc.abstractmethod
    def _act(self, control: float) -> None:
        """Applies a clipped action for one engine step."""

    @abc.abstractmethod
    def _observe(self) -> np.ndarray:
        """The observation."""

    @abc.abstractmethod
    def _judge(self) -> tuple[float, bool]:
        """The reward of the state arrived in, and whether the episode ends there."""
