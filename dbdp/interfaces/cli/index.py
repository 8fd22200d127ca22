"""The module of each command of `dbdp`, and the first line of its help, so that `dbdp --help` imports no command."""

_MODULES = {
    "admin": ("demo", "install", "uninstall", "doctor", "confirm-roles", "web", "reproduce", "server"),
    "owner": (
        *("register", "redeclare", "renew", "raise-capacity", "answer-at-multiples"),
        *("grant-training", "revoke-training", "allowances", "grant-prediction", "revoke-prediction"),
        *("bounds", "baseline", "check-declaration"),
    ),
    "lists": ("datasets", "models", "budget", "ledger", "check-ledger"),
    "training": ("explain", "train", "train-groups", "tune"),
    "results.figures": ("describe", "table", "quantiles"),
    "results.scores": ("score", "evaluate", "weights", "shapes", "confusion", "class-balance", "summarize", "predict"),
    "plots.command": ("plot",),
}
PLACES = {command: module for module, commands in _MODULES.items() for command in commands}
SUMMARIES = {
    "demo": "Load Adult, train at ε = 1 in SQL and in Python, and print every step.",
    "install": "Copy the extension's files to the server and create the extension.",
    "uninstall": "Drop the extension, with all datasets, budgets and models of that database.",
    "doctor": "Check this machine and a server, and print remedies. Exit code 1 if there is a fault.",
    "confirm-roles": "List the roles of a restored dump that have no rights yet, or confirm which roles they are.",
    "web": "Serve a page of datasets, budgets, models and trainings on this machine, for who opens its one-time link.",
    "reproduce": "Train the papers' experiments again, in a clone of the source. Resumes an interrupted run.",
    "server": "The private PostgreSQL of this virtual environment.",
    "register": "Register a table as a dataset: public facts and a total budget.",
    "redeclare": "Correct the declaration of a dataset. Its budget and its models do not change.",
    "renew": "End a dataset's budget and begin a new one. The guarantees of both add up.",
    "raise-capacity": "Raise the capacity of a dataset in rows or units. Budget, grants and models stay.",
    "answer-at-multiples": "Delay each charged result to a multiple of some seconds after its charge, so that its time "
    "is public.",
    "grant-training": "Grant a role the right to train on a dataset that you registered.",
    "revoke-training": "Revoke a role's grant to train on a dataset. Its spending stays.",
    "allowances": "List who may train on which dataset, with limit and spending.",
    "grant-prediction": "Allow a role to predict with a model that you released, or that was trained on your dataset.",
    "revoke-prediction": "Revoke a role's right to predict with a model.",
    "bounds": "Estimate bounds of a numeric column, with noise, as the role that registered the dataset.",
    "baseline": "Train WITHOUT privacy, by L-BFGS, for a comparison by the table's owner. It stores nothing.",
    "check-declaration": "Count rows that do not agree with the declaration, EXACTLY: for the table's owner. It "
    "charges and stores nothing.",
    "datasets": "List the datasets that you may train on.",
    "models": "List the released models that you may predict with.",
    "budget": "Show the remaining and the spent budget of a dataset, and the guarantee over all its registrations.",
    "ledger": "List the charges: role, time, purpose, amount and outcome, by period if a budget was renewed.",
    "check-ledger": "Compare ledger, odometers and limits of your registrations. Exit code 3 if they do not agree.",
    "explain": "Show plan, sensitivity and noise scale of a training, and spend nothing.",
    "train": "Train a private model on a registered dataset, and store the release.",
    "train-groups": "Train a private model for each group of rows, for one charge, and store the releases.",
    "tune": "Choose among settings privately, and store the chosen model.",
    "score": "Score a released model on a dataset, with noise, charged like a release.",
    "evaluate": "Estimate accuracy, majority fraction and AUC of a model, or RMSE and R², with noise, for one charge.",
    "weights": "List the coefficients of a linear model, with their standard errors where the noise is known.",
    "shapes": "List how much each value of a column adds to the score of a linear model, with the band of the noise.",
    "confusion": "Count rows by true and predicted class, with noise: the confusion matrix of a released model.",
    "class-balance": "Count the rows of each class, with noise.",
    "summarize": "Release a noisy second moment of rows and labels: regressions, components and correlations of it are "
    "free.",
    "describe": "Describe all declared columns for one charge: NULLs, mean, deviation, quartiles, counts of "
    "categories.",
    "table": "Count the rows of each group, and average numbers in it, with noise, for one charge.",
    "quantiles": "Estimate quantiles of a number, with noise; one charge covers all of them.",
    "predict": "Show rows of a table, each with a prediction: probability of the positive class, class, or value.",
    "plot": "Draw a plot as PNG or SVG, by the suffix of the file's name.",
}
