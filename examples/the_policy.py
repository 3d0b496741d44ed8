"""The policy as what it is: a pytree, to jit, to vmap, to perturb, to export, to copy.

    python examples/the_policy.py [STEPS]

docs/api.md, "The policy as what it is", has it in short.
"""

import copy
import sys

import jax
import numpy as np

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
agent = pn.DQN("CartPole-v1", exploration="parameter", learning_starts=50, seed=0)
agent.learn(STEPS, eval_episodes=5)


@jax.jit
def actions(policy, states):
    """The noise-free actions in a batch of states; the call of a policy takes one, and returns its Q values."""
    return policy.greedy(jax.vmap(policy)(states))


states = np.random.default_rng(0).uniform(-0.2, 0.2, (1_000, 4)).astype(np.float32)
clean = np.asarray(actions(agent.policy, states))
print("as predict does:", np.array_equal(clean, agent.predict(states)[0]))
for sigma in (0.01, 0.1):
    perturbed = agent.perturb(0, sigma)  # a policy of the same type; 0, or a key of JAX, decides the noise
    changed = np.mean(np.asarray(actions(perturbed, states)) != clean)
    print(f"noise of sigma {sigma} changes the action in {100 * changed:.0f} % of the states")

for name, array in agent.parameters.items():
    print(f"{name:<36} {array.shape}")
agent.export("weights.safetensors")  # the same arrays, for other frameworks
twin = copy.deepcopy(agent)  # replay and all: it learns on as the agent would
print("the copy stands at step", twin.learn(STEPS, eval_episodes=5).step, "and the agent at", agent.step)
