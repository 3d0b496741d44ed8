"""SwimmerGather (Duan et al. 2016; sec. 4.2): a swimmer that gathers apples and avoids bombs, seen within a range.

The body, the fluid and the rules are those of rllab.
"""

import math
from typing import Any

import gymnasium as gym
import numpy as np

try:
    import mujoco
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
except (ImportError, gym.error.DependencyNotInstalled) as error:
    raise gym.error.DependencyNotInstalled("MuJoCo is not installed: run `pip install 'paramnoise[mujoco]'`") from error

TIMESTEP, FRAME_SKIP = 0.001, 50
MAX_TORQUE = 50.0
WALL = 7
"""The walls' distance from the origin; they are 1 thick."""
NUM_APPLES = NUM_BOMBS = 8
CELLS = np.array([(x, y) for x in range(-6, 5, 2) for y in range(-6, 5, 2) if math.hypot(x, y) >= 2], float)
"""Where objects may lie."""
IS_BOMB = np.repeat([0, 1], [NUM_APPLES, NUM_BOMBS])
"""Which objects are bombs: the last ones."""
REWARD = np.array([1.0, -1.0])
"""For an apple and for a bomb."""
CATCH_DISTANCE = 1.0
NUM_BINS = 10
SENSOR_RANGE = 6.0
SENSOR_SPAN = math.pi
COLORS = ((0.2, 0.7, 0.2, 1.0), (0.8, 0.2, 0.2, 1.0))
CAMERA = {"distance": 19.0, "azimuth": 90.0, "elevation": -90.0, "lookat": np.zeros(3)}


def mjcf(solid_walls: bool) -> str:
    """The model: three links of length 1 in a plane, the first free to move, in a fluid between four walls.

    Links touch neither each other nor the floor.
    """
    reach, touch = WALL + 0.5, int(solid_walls)
    return f"""
<mujoco model="swimmer_gather">
  <option timestep="{TIMESTEP}" density="4000" viscosity="0.1" integrator="Euler" iterations="1000">
    <flag warmstart="disable"/>
  </option>
  <default>
    <geom contype="0" conaffinity="0"/>
    <default class="link">
      <geom type="capsule" size="0.1" density="1000" contype="1" condim="1" rgba="0.8 0.6 0.4 1"/>
    </default>
    <default class="wall"><geom type="box" conaffinity="{touch}" condim="3" rgba="0.5 0.6 0.5 1"/></default>
    <default class="bend"><joint type="hinge" axis="0 0 1" limited="true" range="-100 100"/></default>
    <motor ctrllimited="true" ctrlrange="{-MAX_TORQUE} {MAX_TORQUE}"/>
  </default>
  <asset>
    <texture name="water" type="2d" builtin="checker" rgb1="0.8 0.87 0.92" rgb2="0.7 0.8 0.85" width="64" height="64"/>
    <material name="water" texture="water" texrepeat="1 1" texuniform="true"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="0 0 -1" diffuse="0.8 0.8 0.8"/>
    <geom name="floor" type="plane" pos="0 0 -0.1" size="{reach} {reach} 0.1" material="water"/>
    <geom name="south" class="wall" pos="0 {-WALL} 0" size="{reach} 0.5 1"/>
    <geom name="north" class="wall" pos="0 {WALL} 0" size="{reach} 0.5 1"/>
    <geom name="west" class="wall" pos="{-WALL} 0 0" size="0.5 {reach} 1"/>
    <geom name="east" class="wall" pos="{WALL} 0 0" size="0.5 {reach} 1"/>
    <body name="torso">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <joint name="heading" type="hinge" axis="0 0 1"/>
      <geom class="link" fromto="1.5 0 0 0.5 0 0" rgba="0.9 0.5 0.2 1"/>
      <body name="mid" pos="0.5 0 0">
        <joint name="front_bend" class="bend"/>
        <geom class="link" fromto="0 0 0 -1 0 0"/>
        <body name="back" pos="-1 0 0">
          <joint name="back_bend" class="bend"/>
          <geom class="link" fromto="0 0 0 -1 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="front_bend"/>
    <motor joint="back_bend"/>
  </actuator>
</mujoco>"""


def readings(position: np.ndarray, heading: float, objects: np.ndarray, is_bomb: np.ndarray) -> np.ndarray:
    """What the sensors show: in each bin the nearest apple and the nearest bomb, as 1 - distance / range, 0 for none.

    Args:
        position: where the sensors are (2,).
        heading: the angle that they look along; bins go from its right to its left.
        objects: where the objects are (n, 2).
        is_bomb: 0 for an apple, 1 for a bomb (n,).

    Returns:
        Readings (2, bins), of the apples first.
    """
    dx, dy = (objects - position).T
    distance = np.hypot(dx, dy)
    angle = (np.arctan2(dy, dx) - heading + math.pi) % (2 * math.pi) - math.pi
    seen = (distance <= SENSOR_RANGE) & (np.abs(angle) <= SENSOR_SPAN / 2)
    place = ((angle[seen] + SENSOR_SPAN / 2) / (SENSOR_SPAN / NUM_BINS)).astype(int)
    place = np.minimum(place, NUM_BINS - 1)  # an object exactly to the left belongs to the last bin
    shown = np.zeros((2, NUM_BINS))
    np.maximum.at(shown, (is_bomb[seen], place), 1 - distance[seen] / SENSOR_RANGE)
    return shown


class SwimmerGatherEnv(gym.Env[np.ndarray, np.ndarray], gym.utils.EzPickle):
    """The swimmer among 8 apples (+1) and 8 bombs (-1), which it catches within 1 of its centre of mass.

    An observation (33) is qpos (x, y, heading, two bends), qvel, the centre of mass (x, y, z), and 10 readings each of
    apples and bombs. An action is two torques. An episode ends when all objects are gone.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self, *, solid_walls: bool = True, render_mode: str | None = None, width: int = 480, height: int = 480
    ):
        """Makes the environment.

        Args:
            solid_walls: whether the walls hold the swimmer; rllab draws them, but its swimmer passes through.
            render_mode: None or "rgb_array".
            width: of a frame.
            height: of a frame.
        """
        gym.utils.EzPickle.__init__(self, solid_walls=solid_walls, render_mode=render_mode, width=width, height=height)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (13 + 2 * NUM_BINS,), np.float64)
        self.action_space = gym.spaces.Box(-MAX_TORQUE, MAX_TORQUE, (2,), np.float32)
        self.model = mujoco.MjModel.from_xml_string(mjcf(solid_walls))
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = width, height
        self.data = mujoco.MjData(self.model)
        self._renderer: Any = MujocoRenderer(self.model, self.data, CAMERA, width, height)
        self._objects = np.zeros((NUM_APPLES + NUM_BOMBS, 2))
        self._is_bomb = IS_BOMB

    @property
    def apples(self) -> np.ndarray:
        """Where the apples are that are left (n, 2)."""
        return self._objects[self._is_bomb == 0]

    @property
    def bombs(self) -> np.ndarray:
        """Where the bombs are that are left (n, 2)."""
        return self._objects[self._is_bomb == 1]

    def place(self, apples: np.ndarray, bombs: np.ndarray) -> None:
        """Puts these apples (n, 2) and bombs (m, 2) in the place of all objects."""
        self._objects = np.concatenate([np.reshape(apples, (-1, 2)), np.reshape(bombs, (-1, 2))]).astype(float)
        self._is_bomb = np.repeat([0, 1], [len(apples), len(bombs)])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode near the origin, nearly at rest and stretched out, among new objects."""
        super().reset(seed=seed)
        cells = self.np_random.choice(CELLS, NUM_APPLES + NUM_BOMBS, replace=False)
        self.place(cells[:NUM_APPLES], cells[NUM_APPLES:])
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.np_random.normal(scale=0.01, size=self.model.nq)
        self.data.qvel[:] = self.np_random.normal(scale=0.1, size=self.model.nv)
        self._locate()
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Applies the torques, clipped to their bounds, for 0.05 seconds, then catches what is near."""
        self.data.ctrl[:] = np.clip(action, -MAX_TORQUE, MAX_TORQUE)
        mujoco.mj_step(self.model, self.data, nstep=FRAME_SKIP)
        self._locate()
        reward = self._catch()
        return self._observe(), reward, len(self._objects) == 0, False, {}

    def render(self) -> np.ndarray | None:
        """The arena from above: apples green, bombs red."""
        if self.render_mode is None:
            return None
        if self._renderer.viewer is None:
            self._renderer.render(self.render_mode)  # the first call makes the viewer, which then takes the objects
        for (x, y), is_bomb in zip(self._objects, self._is_bomb, strict=True):
            ball = {"type": mujoco.mjtGeom.mjGEOM_SPHERE, "pos": np.array([x, y, 0.5]), "size": np.full(3, 0.4)}
            self._renderer.viewer.add_marker(**ball, rgba=np.array(COLORS[is_bomb]))
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Frees what rendering took."""
        self._renderer.close()

    @property
    def _center(self) -> np.ndarray:
        # As the torso is the root, its subtree is the swimmer: rllab's "centre of mass of the torso" is that of all.
        return self.data.subtree_com[1]

    def _locate(self) -> None:
        # A step leaves the centre of mass as it was before the last integration.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    def _catch(self) -> float:
        left = np.hypot(*(self._objects - self._center[:2]).T) >= CATCH_DISTANCE
        if left.all():
            return 0.0
        reward = REWARD[self._is_bomb[~left]].sum()
        self._objects, self._is_bomb = self._objects[left], self._is_bomb[left]
        return float(reward)

    def _observe(self) -> np.ndarray:
        center = self._center
        shown = readings(center[:2], self.data.qpos[2], self._objects, self._is_bomb)
        return np.concatenate([self.data.qpos, self.data.qvel, center, shown.ravel()])
