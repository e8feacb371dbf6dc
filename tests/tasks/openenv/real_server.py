"""Three environments on OpenEnv's interfaces, served by the package itself.

    python real_server.py NAME PORT       # NAME: higher-lower, guess, lights

For a Python that has the package `openenv`; nothing of shoal is imported.
"""
# mypy: ignore-errors

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Say(Action):
    message: str


class FeedbackObservation(Observation):
    text: str


class Press(Action):
    row: int
    column: int


class Board(Observation):
    board: list[str]
    lit: int


class HigherLower(Environment):
    """Find one of 31 numbers in five guesses; the reply to a wrong guess names the direction."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        chance = random.Random(seed)
        first = chance.randint(1, 69)
        self.secret, self.left = first + chance.randrange(31), 5
        self.episode = State(episode_id=episode_id)
        return FeedbackObservation(
            text=f"Find my number, from {first} to {first + 30}, in 5 guesses."
        )

    def step(self, action, timeout_s=None, **kwargs):
        text = action.message.strip()
        guess = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
        if guess == self.secret:
            return FeedbackObservation(text="Right!", reward=1.0, done=True)
        self.left -= 1
        if not self.left:
            return FeedbackObservation(text=f"Wrong. It was {self.secret}.", reward=0.0, done=True)
        if guess is None:
            return FeedbackObservation(text="Not a number.", reward=0.0)
        return FeedbackObservation(text="Higher." if guess < self.secret else "Lower.", reward=0.0)

    @property
    def state(self):
        return self.episode


class Guess(HigherLower):
    """Repeat a word; with OpenEnv's default of a single session at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = False

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.word = random.Random(seed).choice(["cod", "eel", "ray"])
        self.episode = State(episode_id=episode_id)
        return FeedbackObservation(text=f"Say {self.word}.")

    def step(self, action, timeout_s=None, **kwargs):
        if not action.message:
            raise ValueError("no guess was sent")
        return FeedbackObservation(
            text="Thanks.", reward=float(action.message == self.word), done=True
        )


class Lights(Environment):
    """Nine lamps; pressing one turns it and its neighbours. 64 turns, actions of two fields."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        chance = random.Random(seed)
        self.lamps = [[False] * 3 for _ in range(3)]
        for _ in range(4):
            self._press(chance.randrange(3), chance.randrange(3))
        self.turns = 0
        self.episode = State(episode_id=episode_id)
        return self._seen()

    def step(self, action, timeout_s=None, **kwargs):
        self._press(action.row % 3, action.column % 3)
        self.turns += 1
        return self._seen()

    def _press(self, row, column):
        for down, right in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)):
            r, c = row + down, column + right
            if 0 <= r < 3 and 0 <= c < 3:
                self.lamps[r][c] = not self.lamps[r][c]

    def _seen(self):
        lit = sum(map(sum, self.lamps))
        board = ["".join("#."[not lamp] for lamp in row) for row in self.lamps]
        done = not lit or self.turns >= 64
        return Board(board=board, lit=lit, reward=float(not lit), done=done)

    @property
    def state(self):
        return self.episode


GAMES = {
    "higher-lower": (HigherLower, Say, FeedbackObservation, 8),
    "guess": (Guess, Say, FeedbackObservation, 1),
    "lights": (Lights, Press, Board, 8),
}

if __name__ == "__main__":
    environment, action, observation, sessions = GAMES[sys.argv[1]]
    app = create_app(environment, action, observation, max_concurrent_envs=sessions)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
