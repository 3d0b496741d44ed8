"""Your own network, optimizer, schedule and clipping; saved by name, and loaded.

    python examples/own_parts.py [STEPS]

docs/api.md, "Your own network, optimizer, schedules", says what fits.
"""

import sys

import equinox as eqx
import jax
import numpy as np
import optax

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000


@pn.register_network("normed")  # the name that a saved agent finds it by
def normed(observation_shape, outputs, key):
    """Layer norm before the nonlinearity, so that one sigma fits every layer (sec. 3 of the paper)."""
    first, last = jax.random.split(key)
    layers = [eqx.nn.Linear(*observation_shape, 64, key=first), eqx.nn.LayerNorm(64), eqx.nn.Lambda(jax.nn.gelu)]
    return eqx.nn.Sequential([*layers, eqx.nn.Linear(64, outputs, key=last)])


pn.register_optimizer("decayed", optax.adamw(optax.cosine_decay_schedule(1e-3, decay_steps=STEPS)))

agent = pn.DQN(
    "CartPole-v1",
    network="normed",
    optimizer="decayed",
    max_grad_norm=10.0,
    exploration=pn.ParameterNoise(delta=pn.schedules.linear(0.5, 0.05, STEPS)),
    learning_starts=50,
    seed=0,
)
agent.learn(STEPS, eval_episodes=5)
print({name: round(agent.history[-1][name], 4) for name in ("sigma", "distance", "delta")})

agent.save("own")
again = pn.load("own")  # both parts are found by their names
state = np.array([0.0, 0.1, -0.02, 0.0], np.float32)
print("the same action:", agent.predict(state)[0] == again.predict(state)[0])
