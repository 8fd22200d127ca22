"""The module of each command of `dbdp`: `PLACES` maps a command's name to its module."""

_MODULES = {
    "machine": ("demo", "install", "uninstall", "doctor", "web", "server"),
    "owner": (
        *("register", "redeclare", "renew", "answer-at-multiples", "grant-training", "revoke-training", "allowances"),
        *("grant-prediction", "revoke-prediction", "bounds", "baseline"),
    ),
    "listing": ("datasets", "models", "budget", "ledger", "check-ledger"),
    "training": ("explain", "train", "train-groups", "tune"),
    "scores": ("score", "confusion", "class-balance", "summarize", "predict"),
    "plots.command": ("plot",),
}
PLACES = {command: module for module, commands in _MODULES.items() for command in commands}
