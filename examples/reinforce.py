"""Learns to balance a pole on a cart by REINFORCE, a policy gradient method (Williams 1992).

    python -m gt.torch examples/reinforce.py    # on GT
    python examples/reinforce.py                # on PyTorch

A small network gives the probabilities of pushing left and right. After each episode the log-probability of every
action is increased in proportion to the discounted return that followed it.
"""

import argparse
import math
import random

import torch
from torch import nn, optim
from torch.distributions import Categorical
from torch.nn import functional as F


class Pole:
    """The cart-pole environment (Barto, Sutton & Anderson 1983), in steps of 1/50 s.

    The state is `[position, velocity, angle, angular velocity]`; action 0 pushes left, action 1 right.
    """

    GRAVITY, CART, POLE, LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    ANGLE_MAX, POSITION_MAX = 12 * math.pi / 180, 2.4

    def __init__(self, seed: int, steps_max: int) -> None:
        self.random = random.Random(seed)
        self.steps_max = steps_max

    def reset(self) -> list[float]:
        """Starts an episode near the upright position, and returns the state."""
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        """Applies an action; returns the next state, the reward, and whether the episode is over."""
        x, dx, angle, spin = self.state
        force = self.FORCE if action == 1 else -self.FORCE
        mass = self.CART + self.POLE
        push = (force + self.POLE * self.LENGTH * spin**2 * math.sin(angle)) / mass
        lever = self.LENGTH * (4 / 3 - self.POLE * math.cos(angle) ** 2 / mass)
        angular_acceleration = (self.GRAVITY * math.sin(angle) - math.cos(angle) * push) / lever
        acceleration = push - self.POLE * self.LENGTH * angular_acceleration * math.cos(angle) / mass
        self.state = [
            x + self.TICK * dx,
            dx + self.TICK * acceleration,
            angle + self.TICK * spin,
            spin + self.TICK * angular_acceleration,
        ]
        self.steps += 1
        fallen = abs(self.state[0]) > self.POSITION_MAX or abs(self.state[2]) > self.ANGLE_MAX
        return self.state, 1.0, fallen or self.steps >= self.steps_max


class Policy(nn.Module):
    """A network with one hidden layer: states `(batch, 4)` to probabilities of the actions `(batch, 2)`."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.affine1 = nn.Linear(4, hidden)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(hidden, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def play(environment: Pole, policy: Policy) -> tuple[list[torch.Tensor], list[float]]:
    """Plays an episode; returns the log-probabilities of the actions taken, and the rewards."""
    state, log_probs, rewards, done = environment.reset(), [], [], False
    while not done:
        probs = policy(torch.tensor(state).float().unsqueeze(0))
        choice = Categorical(probs)
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        state, reward, done = environment.step(action.item())
        rewards.append(reward)
    return log_probs, rewards


def returns_of(rewards: list[float], gamma: float) -> torch.Tensor:
    """Returns the discounted sum of the rewards from each step on, normalised to mean 0 and variance 1."""
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + torch.finfo(torch.float32).eps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--steps-max", type=int, default=500)
    parser.add_argument("--goal", type=float, default=300.0, help="stop at this running mean of steps")
    parser.add_argument("--seed", type=int, default=543)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    environment = Pole(args.seed, args.steps_max)
    policy = Policy(args.hidden)
    optimizer = optim.Adam(policy.parameters(), lr=args.lr)
    running = 10.0
    for episode in range(1, args.episodes + 1):
        log_probs, rewards = play(environment, policy)
        returns = returns_of(rewards, args.gamma)
        losses = [-log_prob * value for log_prob, value in zip(log_probs, returns, strict=True)]
        optimizer.zero_grad()
        loss = torch.cat(losses).sum()
        loss.backward()
        optimizer.step()
        running = 0.05 * len(rewards) + 0.95 * running
        if episode % args.log_interval == 0:
            print(f"episode {episode:4d}   steps {len(rewards):4d}   running mean {running:.1f}")
        if running > args.goal:
            print(f"the pole stands: running mean {running:.1f} after {episode} episodes")
            break


if __name__ == "__main__":
    main()
