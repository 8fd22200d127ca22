"""Generated tables: a public family of tables that no default was chosen on."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Family:
    """Settings of a generated table.

    `share` is the share of positive rows, `correlation` that of each column's variance which one common factor
    explains, `density` the share of values that are not 0, and `tails` > 0 makes values heavy-tailed.
    """

    rows: int = 20_000
    features: int = 20
    share: float = 0.5
    correlation: float = 0.0
    density: float = 1.0
    tails: float = 0.0
    noise: float = 0.5
    seed: int = 1

    @classmethod
    def parse(cls, text: str) -> "Family":
        """Return the family of settings such as `rows=5000:share=.1`.

        Raises
        ------
        ValueError
            If a setting is unknown.
        """
        kinds = {field.name: int if field.type in (int, "int") else float for field in fields(cls)}
        settings = dict(setting.split("=", 1) for setting in text.split(":") if setting)
        if unknown := settings.keys() - kinds.keys():
            raise ValueError(f"a generated table has no {', '.join(sorted(unknown))}: use {', '.join(kinds)}")
        return cls(**{name: kinds[name](value) for name, value in settings.items()})

    @property
    def bound(self) -> float:
        """Return the largest absolute value of a column: 4 deviations, or what the tails make of them."""
        return 4.0 if self.tails == 0 else float(np.sinh(4 * self.tails))

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Return columns, shape (rows, features), and labels 0 or 1, shape (rows,)."""
        random = np.random.default_rng(self.seed)
        latent = self._latent(random)
        weights = random.normal(size=self.features) / np.sqrt(1 + np.arange(self.features))
        scores = latent @ weights
        scores = scores / scores.std() + self.noise * random.normal(size=self.rows)
        labels = scores > np.quantile(scores, 1 - self.share)
        values = np.sinh(self.tails * latent) if self.tails else latent
        return values.clip(-self.bound, self.bound), labels.astype(int)

    def _latent(self, random: np.random.Generator) -> np.ndarray:
        """Return the values before their tails, shape (rows, features)."""
        common = random.normal(size=(self.rows, 1)) * random.choice([-1, 1], self.features)
        own = random.normal(size=(self.rows, self.features))
        mixed = np.sqrt(self.correlation) * common + np.sqrt(1 - self.correlation) * own
        return mixed * (random.random(mixed.shape) < self.density)
