"""The sparse tasks in the Box2D engine (app. B): rllab's worlds with the rewards of VIME (Houthooft et al. 2016).

A time limit of 500 steps comes with their Gymnasium ids.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paramnoise.envs.box2d import (
    NO_CONTACTS,
    SKIN,
    BodyState,
    Box2DEnv,
    Clock,
    new_world,
    push,
    rectangle,
    solid,
    terrain,
    twist,
    write_state,
)
from paramnoise.envs.drawing import View


class CartpoleScene(NamedTuple):
    """A pole hinged on top of a cart."""

    world: Any
    cart: Any
    pole: Any


class SparseCartpoleSwingupEnv(Box2DEnv):
    """Swing the pole up and hold it: 1 for each step with cos(angle) > 0.8, on a track that ends 3 from the middle.

    The observation is the cart's position and velocity, the pole's angle (0 upright, not wrapped) and its angular
    velocity; the action is the force on the cart.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # as Gymnasium declares it
    clock = Clock(time_step=0.05)
    limit = 10.0
    observations = 4
    view = View(centre=(0.0, 0.9), width=8.0)
    marks = (((-3.0, -0.2), (-3.0, 0.0)), ((3.0, -0.2), (3.0, 0.0)))

    CART_WIDTH = 4 / math.sqrt(12)
    CART_HEIGHT = 3 / math.sqrt(12)
    TRACK_END = 3.0
    UPRIGHT_COSINE = 0.8
    TRACK = solid(rectangle(half_width=100.0, bottom=-0.2, top=0.0), groupIndex=NO_CONTACTS)
    CART = solid(rectangle(CART_WIDTH / 2, -CART_HEIGHT / 2, CART_HEIGHT / 2), density=1.0, friction=5e-4)
    POLE = solid(rectangle(half_width=0.05, bottom=0.0, top=1.0), density=1.0, groupIndex=NO_CONTACTS)
    START_LOW = (-1.0, -2.0, math.pi - 1, -3.0)
    START_HIGH = (1.0, 2.0, math.pi + 1, 3.0)

    def _build(self) -> CartpoleScene:
        world = new_world()
        track = world.CreateStaticBody(fixtures=self.TRACK)
        cart = world.CreateDynamicBody(position=(0.0, self.CART_HEIGHT / 2), fixtures=self.CART)
        pole = world.CreateDynamicBody(position=(0.0, self.CART_HEIGHT), fixtures=self.POLE)
        world.CreateRevoluteJoint(bodyA=cart, bodyB=pole, anchor=pole.position)
        world.CreatePrismaticJoint(bodyA=track, bodyB=cart, anchor=cart.position, axis=(1.0, 0.0))
        return CartpoleScene(world, cart, pole)

    def _draw_start(self) -> Sequence[float]:
        return self.np_random.uniform(self.START_LOW, self.START_HIGH).tolist()

    def _place(self, start: Sequence[float]) -> None:
        x, x_velocity, angle, angular_velocity = start
        cart = BodyState(x, self.CART_HEIGHT / 2, x_velocity=x_velocity)
        write_state(self._scene.cart, cart)
        write_state(self._scene.pole, cart.hinge((0.0, self.CART_HEIGHT / 2), angle, angular_velocity))

    def _act(self, control: float) -> None:
        push(self._scene.cart, control)

    def _observe(self) -> np.ndarray:
        _, cart, pole = self._scene
        moving = (cart.position.x, cart.linearVelocity.x, pole.angle, pole.angularVelocity)
        return np.array(moving, np.float32)

    def _judge(self) -> tuple[float, bool]:
        if abs(self._scene.cart.position.x) > self.TRACK_END:
            return 0.0, True
        return float(math.cos(self._scene.pole.angle) > self.UPRIGHT_COSINE), False


class PendulumScene(NamedTuple):
    """Two links, the first hinged to a pivot at the world's origin, the second to the end of the first."""

    world: Any
    links: tuple[Any, Any]
    elbow: Any


class SparseDoublePendulumEnv(Box2DEnv):
    """Swing two links up by the joint between them: 1 for each step with the tip within 1 of the upright point (0, 2).

    The observation is sine, cosine (of the angle to the vertical, 0 hanging) and angular velocity of each link; the
    action is the torque between the links. No state ends the episode. rllab and VIME compute the tip with a sign slip
    that mirrors the lower link; ours is the true tip unless told otherwise (docs/tasks.md).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    clock = Clock(time_step=0.01, velocity_iterations=20, position_iterations=20, frame_skip=2)
    limit = 50.0
    observations = 6
    view = View(centre=(0.0, 0.0), width=6.0)
    marks = (((-0.1, 2.0), (0.1, 2.0)), ((0.0, 1.9), (0.0, 2.1)))

    LENGTH = 1.0
    GOAL = (0.0, 2.0)
    GOAL_RADIUS = 1.0
    PIVOT = solid(rectangle(half_width=0.1, bottom=-0.1, top=0.1), groupIndex=NO_CONTACTS)
    LINK = solid(rectangle(half_width=0.05, bottom=-LENGTH, top=0.0), density=5.0, groupIndex=NO_CONTACTS)
    START_SCALE = (0.1, 0.1, 0.01, 0.01)
    """Standard deviations of the two angles and the two angular velocities."""

    def __init__(self, vime_rule: bool = False, render_mode: str | None = None):
        """Makes the task; with `vime_rule` the tip is VIME's, that of the lower link mirrored from left to right."""
        super().__init__(render_mode)
        self.vime_rule = vime_rule

    def _build(self) -> PendulumScene:
        world = new_world()
        pivot = world.CreateStaticBody(fixtures=self.PIVOT)
        upper = world.CreateDynamicBody(position=(0.0, 0.0), fixtures=self.LINK)
        lower = world.CreateDynamicBody(position=(0.0, -self.LENGTH), fixtures=self.LINK)
        world.CreateRevoluteJoint(bodyA=pivot, bodyB=upper, anchor=upper.position)
        elbow = world.CreateRevoluteJoint(bodyA=upper, bodyB=lower, anchor=lower.position, enableMotor=True)
        return PendulumScene(world, (upper, lower), elbow)

    def _draw_start(self) -> Sequence[float]:
        return self.np_random.normal(0.0, self.START_SCALE).tolist()

    def _place(self, start: Sequence[float]) -> None:
        upper_angle, lower_angle, upper_velocity, lower_velocity = start
        upper = BodyState(0.0, 0.0, upper_angle, angular_velocity=upper_velocity)
        write_state(self._scene.links[0], upper)
        write_state(self._scene.links[1], upper.hinge((0.0, -self.LENGTH), lower_angle, lower_velocity))

    def _act(self, control: float) -> None:
        twist(self._scene.elbow, control)

    def _observe(self) -> np.ndarray:
        upper, lower = self._scene.links
        a, b = upper.angle, lower.angle
        turns = (math.sin(a), math.cos(a), upper.angularVelocity, math.sin(b), math.cos(b), lower.angularVelocity)
        return np.array(turns, np.float32)

    def _judge(self) -> tuple[float, bool]:
        lower = self._scene.links[1]
        tip = lower.GetWorldPoint((0.0, -self.LENGTH))
        x = 2 * lower.position.x - tip.x if self.vime_rule else tip.x
        return float(math.dist((x, tip.y), self.GOAL) < self.GOAL_RADIUS), False


class CarScene(NamedTuple):
    """A box in a valley."""

    world: Any
    car: Any


class SparseMountainCarEnv(Box2DEnv):
    """Swing a car, too weak to climb, out of a valley: 1 at the goal, x >= 0.6, which ends the episode.

    The observation is the car's position and velocity along x; the action is the force on the car. The episode ends
    without a reward where the car leaves the valley on the left, at x <= -2; VIME pays that too.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    clock = Clock(time_step=0.05)
    limit = 1.0
    observations = 2
    view = View(centre=(0.0, 1.1), width=4.4)

    HALF_WIDTH, HALF_HEIGHT = 0.2, 0.1
    GOAL = 0.6
    VALLEY_END = 2.0
    VALLEY = tuple((2 * i / 100, 1 + math.sin((i / 100 - 0.5) * math.pi)) for i in range(-100, 101))
    REST_HEIGHT = VALLEY[110][1] + HALF_HEIGHT + SKIN
    """The height of the car's middle at x 0, where it stands on the valley with its corners at x +-0.2."""
    GROUND = terrain(VALLEY)
    CAR = solid(rectangle(HALF_WIDTH, -HALF_HEIGHT, HALF_HEIGHT), density=5.0, friction=5e-4)
    MAX_START_VELOCITY = 1.0
    marks = ((VALLEY[130], (GOAL, 1.2)), ((GOAL, 1.2), (0.8, 1.1)), ((0.8, 1.1), (GOAL, 1.0)))

    def __init__(self, vime_rule: bool = False, render_mode: str | None = None):
        """Makes the task; with `vime_rule` the exit on the left pays 1 too."""
        super().__init__(render_mode)
        self.vime_rule = vime_rule

    def _build(self) -> CarScene:
        world = new_world()
        world.CreateStaticBody(fixtures=self.GROUND)
        car = world.CreateDynamicBody(position=(0.0, self.REST_HEIGHT), fixtures=self.CAR)
        return CarScene(world, car)

    def _draw_start(self) -> Sequence[float]:
        x_velocity = self.np_random.uniform(-self.MAX_START_VELOCITY, self.MAX_START_VELOCITY)
        return BodyState(0.0, self.REST_HEIGHT, x_velocity=x_velocity)

    def _place(self, start: Sequence[float]) -> None:
        write_state(self._scene.car, BodyState(*start))

    def _act(self, control: float) -> None:
        push(self._scene.car, control)

    def _observe(self) -> np.ndarray:
        car = self._scene.car
        return np.array((car.position.x, car.linearVelocity.x), np.float32)

    def _judge(self) -> tuple[float, bool]:
        x = self._scene.car.position.x
        if x >= self.GOAL:
            return 1.0, True
        if x <= -self.VALLEY_END:
            return float(self.vime_rule), True
        return 0.0, False
