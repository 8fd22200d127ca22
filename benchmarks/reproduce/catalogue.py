"""Every figure that is measured, with the grids of the papers; the small run has a few points of each."""

from dataclasses import replace

from benchmarks.reproduce.figures import AUTO, CONSTANT, EPSILON, NO_PRIVACY, ROWS, Figure, Panel, Series

CENSUS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # DP-AGD: .05 to 1.6, DP-BLSGD: .025 to .8
SOME = (0.05, 0.2, 0.8)
BINARY_GRID, DIGITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), (0.1, 0.2, 0.5, 1, 2, 4)  # Bolt-on §4.3
ERM_GRID = (0.1, 0.5, 1, 2)  # output perturbation, Table 3
MNIST, COVERTYPE, KDD = "mnist50", "covertype_part", "kdd"
FEW_DIGITS, FEW_COVERTYPE, FEW_KDD = "mnist50:rows=20000", "covertype_part", "kdd:rows=40000"
DBDP = Series("dbdp (default)", AUTO)
BEST, MAJORITY = Series("without privacy", NO_PRIVACY), Series("larger class", CONSTANT)
COLUMNS = Series("dbdp (default, columns declared)", "columns")
JAX = Series("DP-SGD of JAX-Privacy, tuned", "peer:JAX-Privacy")
PUBLISHED = Series("bolt-on, noise as published (void)", "published_bolt_on", void=True)


def named(**labels: str) -> tuple[Series, ...]:
    """Return dbdp's algorithms with their own defaults, by their labels in the paper."""
    return tuple(Series(label, f"dbdp:{name}") for name, label in labels.items())


AGD = named(
    dp_agd="DP-AGD", objective_perturbation="ObjPert", output_perturbation_gd="OutPert", privgene="PrivGene",
    sgd_adv="SGD-Adv", dp_sgd="SGD-MA",
)  # fmt: skip
RSGD_PAPER = Series("RSGD-AR, λ and batch of the paper", "dbdp:rsgd_ar", {"regularisation": 0.001, "batch_size": 4000})
RSGD = (
    *named(
        rsgd_ar="RSGD-AR", nsgd="NSGD", objective_perturbation="ObjPert", output_perturbation_gd="OutPert-GD",
        dp_agd="DP-AGD", dp_sgd="SGD-MA",
    ),
    RSGD_PAPER,
)  # fmt: skip
BLSGD = named(
    dp_blsgd="DP-BLSGD", dp_blsgd_ac="DP-BLSGD-AC", dp_blgd="DP-BLGD", dp_agd="DP-AGD", dp_sgd="DP-SGD",
    rsgd_ar="OUTPERT-RSGD", output_perturbation_gd="OUTPERT-GD", objective_perturbation="OBJPERT", privgene="PrivGene",
)  # fmt: skip
ENDS = (BEST, MAJORITY)
MEAN = Series("mean", CONSTANT)
EVERY = named(
    bolt_on="bolt_on", nsgd="nsgd", rsgd_ar="rsgd_ar", output_perturbation_gd="output_perturbation_gd",
    objective_perturbation="objective_perturbation", scs13="scs13", bst14="bst14", dp_sgd="dp_sgd", dp_adam="dp_adam",
    sgd_adv="sgd_adv", rrpsgd="rrpsgd", preconditioned_gd="preconditioned_gd", dp_agd="dp_agd", dp_blgd="dp_blgd",
    dp_blsgd="dp_blsgd", dp_blsgd_ac="dp_blsgd_ac", privgene="privgene",
)  # fmt: skip


def census(series: tuple[Series, ...], loss: str = "logistic") -> tuple[Panel, ...]:
    """Return accuracy and objective of Adult and Bank against ε."""
    peers = (JAX,) if loss == "logistic" else ()
    return tuple(
        Panel(f"{dataset}: {metric}", dataset, EPSILON, CENSUS, shown, metric, loss, small=SOME)
        for metric, shown in (("accuracy", (DBDP, *series, *peers, *ENDS)), ("objective", (DBDP, *series, BEST)))
        for dataset in ("adult", "bank")
    )


def cup(series: tuple[Series, ...], delta: float = 1e-12) -> tuple[Panel, ...]:
    """Return accuracy on KDD Cup 1999 against ε, for both losses."""
    return tuple(
        Panel(f"KDD'99, {name}", KDD, EPSILON, SOME, (DBDP, *series, *ENDS), loss=loss, delta=delta, small=(0.05, 0.2),
              small_dataset=FEW_KDD)
        for name, loss in (("logistic", "logistic"), ("Huber SVM", "huber_svm"))
    )  # fmt: skip


def with_options(series: tuple[Series, ...], **options: float) -> tuple[Series, ...]:
    """Return series with options."""
    return tuple(replace(each, options={**each.options, **options}) for each in series)


# --- Bolt-on ---------------------------------------------------------------------------------------------------

CONVEX = {"schedule": "constant", "step_size": 0.004, "batch_size": 50}  # 1/√m, and b of §4.3
AT_FOUR = Series("dbdp (default), ε = 4", AUTO, epsilon=4, fixed=True)
PROJECTED = {"projection_seed": 2017}
PASSES = tuple({"epochs": passes} for passes in (5, 10))
GRID = tuple({**each, "regularisation": strength} for each in PASSES for strength in (0.0001, 0.001, 0.01))


def tests(dataset: str, small: str, grid: tuple[float, ...], some: tuple[float, ...], delta: float, loss: str,
          method: str = "dbdp:") -> tuple[Panel, ...]:  # fmt: skip
    """Return the four tests of Bolt-on §4.3: convex or strongly convex, pure or not."""
    prefix = "" if method == "dbdp:" else "tuned "
    panels = []
    for number, (kind, options, given) in enumerate(
        (("convex, pure ε", CONVEX, 0.0), ("convex, (ε, δ)", CONVEX, delta), ("strongly convex, pure ε", {}, 0.0),
         ("strongly convex, (ε, δ)", {}, delta)), 1,
    ):  # fmt: skip
        tuned = {"candidates": PASSES if options else GRID} if prefix else {}
        noisy = [Series(f"{prefix}SCS13", f"{method}scs13", tuned)]
        if given:
            noisy.append(Series(f"{prefix}BST14", f"{method}bst14", tuned))
        void = [PUBLISHED] if number > 2 and method == "dbdp:" and "mnist" not in dataset else []
        ours = Series(f"{prefix}bolt-on", f"{method}bolt_on", options | tuned)
        title = f"{dataset}, test {number}: {kind}{', tuned privately' if prefix else ''}"
        panels.append(
            Panel(title, dataset, EPSILON, grid, (DBDP, ours, *noisy, *void, *ENDS), loss=loss, delta=given, small=some,
                  small_dataset=small)
        )  # fmt: skip
    return tuple(panels)


BOLT_ON = (
    Figure(
        "bolt_on-accuracy",
        "Bolt-on, Figure 3: accuracy against ε in the four tests",
        "Each algorithm with dbdp's defaults, which follow from public facts alone and stand for the paper's tuning "
        "on public data; convex ones with steps of 1/√m and b = 50, as there. δ = 1/m² as in the paper. MNIST is ten "
        "models with one noise for all ten, where the paper splits the budget into ten.",
        (*tests(COVERTYPE, FEW_COVERTYPE, BINARY_GRID, (0.05, 0.4), 1.8e-10, "logistic"),
         *tests(MNIST, FEW_DIGITS, DIGITS, (0.5, 4), 2.8e-10, "logistic")),
        repeats=10,
    ),
    Figure(
        "bolt_on-private-tuning",
        "Bolt-on, Figure 6: accuracy with private tuning",
        "Algorithm 3 of the paper: candidates on disjoint portions, among 5 and 10 passes, if strongly convex with λ "
        "= 0.0001, 0.001, 0.01. dp_tune does it for bolt-on; for SCS13 and BST14, which it does not offer, each "
        "portion is trained by itself. dbdp's default is not tuned: it trains on all rows.",
        (*tests(COVERTYPE, FEW_COVERTYPE, BINARY_GRID, (0.05, 0.4), 1.8e-10, "logistic", "tune:")[1::2],
         *tests(MNIST, FEW_DIGITS, DIGITS, (4,), 2.8e-10, "logistic", "tune:")[3:]),
        repeats=10,
    ),
    Figure(
        "bolt_on-huber",
        "Bolt-on, Figure 7: accuracy with the Huber SVM",
        "As Figure 3, loss huber_svm with h = 0.5; the paper's h is not in our text of it.",
        (*tests(COVERTYPE, FEW_COVERTYPE, BINARY_GRID, (0.05, 0.4), 1.8e-10, "huber_svm")[1::2],
         *tests(MNIST, FEW_DIGITS, DIGITS, (4,), 2.8e-10, "huber_svm")[3:]),
        repeats=10,
    ),
    Figure(
        "bolt_on-kdd",
        "Bolt-on, Figures 8 and 9: KDD Cup 1999, with public and with private tuning",
        "The 10 % file, one fifth of it for testing.",
        (*tests(KDD, FEW_KDD, BINARY_GRID, (0.05, 0.4), 6e-12, "logistic")[1::2],
         *tests(KDD, FEW_KDD, BINARY_GRID, (0.05, 0.4), 6e-12, "logistic", "tune:")[3:]),
        repeats=5,
    ),
    Figure(
        "bolt_on-passes",
        "Bolt-on, Figure 4: accuracy against passes and batch size",
        "MNIST in 50 dimensions, b = 50. More passes cost a convex training noise, a strongly convex one none.",
        (
            Panel("convex, pure ε: passes", MNIST, "epochs", (1, 5, 10, 20),
                  (AT_FOUR, *(Series(f"bolt-on, ε = {e}", "dbdp:bolt_on",
                                     CONVEX, e) for e in (1, 4))),
                  delta=0.0, small=(1, 10, 20), small_dataset=FEW_DIGITS),
            Panel("strongly convex, (ε, δ): passes", MNIST, "epochs", (1, 5, 10, 20),
                  (AT_FOUR, *(Series(f"bolt-on, ε = {e}", "dbdp:bolt_on", {"batch_size": 50}, e) for e in (1, 4))),
                  delta=2.8e-10, small=(1, 10, 20), small_dataset=FEW_DIGITS),
            Panel("convex, pure ε, 20 passes: batch size", MNIST, "batch_size", (1, 10, 50, 100),
                  (AT_FOUR, *(Series(f"bolt-on, ε = {e}", "dbdp:bolt_on",
                                     {**CONVEX, "epochs": 20}, e) for e in (1, 4))),
                  delta=0.0, small=(10, 50), small_dataset=FEW_DIGITS),
        ),
        repeats=10,
    ),
    Figure(
        "bolt_on-batch-size",
        "Bolt-on, Figure 10: accuracy against batch size",
        "MNIST in 50 dimensions, strongly convex, (4, 1/m²).",
        (
            Panel("strongly convex, (ε, δ)", MNIST, "batch_size", (50, 100, 150, 200),
                  (Series("dbdp (default)", AUTO, fixed=True),
                   *named(bolt_on="bolt-on", scs13="SCS13", bst14="BST14"), *ENDS),
                  epsilon=4, delta=2.8e-10, small=(50, 200), small_dataset=FEW_DIGITS),
        ),
        repeats=10,
    ),
    Figure(
        "projection",
        "Accuracy against the dimension of a random projection",
        "MNIST, 784 pixels. The paper projects to 50 dimensions; the projection's matrix is public.",
        (
            *(Panel(f"MNIST, ε = {epsilon}{', δ = 1/m²' if delta else ''}", "mnist", "projection_dimension",
                    (10, 25, 50, 100, 200, 400),
                    (Series("dbdp (default), projected", AUTO, PROJECTED),
                     Series("dbdp (default), all 784", AUTO, fixed=True),
                     *(Series(each.label, each.method, PROJECTED) for each in noisy), *ENDS),
                    epsilon=epsilon, delta=delta, small=(10, 50, 200), small_dataset="mnist:rows=20000")
              for epsilon, delta, noisy in ((1, 2.8e-10, named(bolt_on="bolt-on", scs13="SCS13", bst14="BST14")),
                                            (4, 0.0, named(bolt_on="bolt-on", scs13="SCS13")))),
        ),
        repeats=5,
    ),
)  # fmt: skip
JAX_PULLED = Series("DP-SGD of JAX-Privacy, rows pulled", "pulled:jax_privacy")
TIMED = (
    *named(bolt_on="bolt-on", scs13="SCS13", bst14="BST14"),
    Series("noiseless", "dbdp:bolt_on", epsilon=1e5),
)
RUN_TIMES = (
    Figure(
        "run-time",
        "Bolt-on, Figures 2 and 5: run time against passes, batch size, rows; and shards",
        "Seconds of one call in the database, the shuffle and packing of the rows included, on generated rows of 50 "
        "numbers; 250,000 or 500,000 where the axis is another. Noiseless is bolt-on at ε = 10⁵, whose noise nobody "
        "would see. JAX-Privacy's DP-SGD with the pull of the rows and its compilation. What takes less than .2 s "
        "waits until its charge is on disk: PostgreSQL's WAL writer sleeps so long.",
        (
            Panel("passes, b = 10", "synthetic:rows=500000", "epochs", (1, 5, 10, 15, 20),
                  with_options(TIMED, batch_size=10), "training_seconds", delta=1e-10, small=(1, 10, 20),
                  small_dataset="synthetic:rows=250000"),
            Panel("batch size, one pass", "synthetic:rows=500000", "batch_size", (1, 10, 100, 500),
                  with_options(TIMED, epochs=1), "training_seconds", delta=1e-10,
                  small_dataset="synthetic:rows=250000"),
            Panel("rows, b = 10, one pass", "synthetic", ROWS, (50_000, 200_000, 500_000, 1_000_000),
                  (*with_options((*TIMED, JAX_PULLED), epochs=1, batch_size=10), DBDP), "training_seconds", delta=1e-10,
                  small=(50_000, 100_000, 250_000)),
            Panel("shards, b = 10, 10 passes", "synthetic:rows=200000", "shards", (1, 2, 4),
                  (Series("bolt-on", "dbdp:bolt_on", {"batch_size": 10}),), "training_seconds", delta=1e-10,
                  small_dataset="synthetic:rows=250000", small=(1, 2)),
        ),
        repeats=4,
    ),
    Figure(
        "rsgd_ar-time",
        "RSGD-AR, Figure 3: processing time of subsamples of KDD Cup 1999",
        "Seconds of one call in the database with each algorithm's defaults; diffprivlib, JAX-Privacy (ten passes in "
        "samples of a twentieth) and scikit-learn with the pull of the rows out of the database. A charge may take "
        ".2 s to be on disk.",
        (
            Panel("ε = 0.4", KDD, ROWS, (50_000, 100_000, 150_000, 200_000, 250_000),
                  (DBDP, *named(rsgd_ar="RSGD-AR", objective_perturbation="ObjPert", nsgd="NSGD", dp_sgd="SGD-MA",
                                output_perturbation_gd="OutPert-GD", dp_agd="DP-AGD"),
                   Series("diffprivlib, rows pulled", "pulled:diffprivlib"),
                   JAX_PULLED,
                   Series("scikit-learn, rows pulled", "pulled:sklearn")),
                  "training_seconds", epsilon=0.4, delta=1e-12, small=(50_000, 100_000, 200_000)),
        ),
        repeats=4,
    ),
)  # fmt: skip

# --- DP-AGD, RSGD-AR, DP-BLSGD ---------------------------------------------------------------------------------


def of_setting(title: str, method: str, axis: str, values: tuple[float, ...], small: tuple[float, ...],
               epsilons: tuple[float, ...], metric: str = "accuracy") -> Panel:  # fmt: skip
    """Return accuracy on Adult against one setting, a line for each ε."""
    series = tuple(
        Series(f"ε = {each:g}", f"dbdp:{method}", epsilon=each, full=place > 0) for place, each in enumerate(epsilons)
    )
    default = Series(f"dbdp (default), ε = {epsilons[0]:g}", AUTO, epsilon=epsilons[0], fixed=True)
    return Panel(title, "adult", axis, values, (default, *series), metric, small=small)


AGD_FIGURES = (
    Figure("dp_agd-logistic", "DP-AGD, Figure 2: logistic regression by ε", "δ = 10⁻⁸; objective with λ = 0.001. "
        "dbdp's default learns without a regulariser, so its objective is not meant to be small; its accuracy is.",
           census(AGD)),
    Figure("dp_agd-svm", "DP-AGD, Figure 3: SVM by ε", "The hinge is smoothed (h = 0.5): the algorithms need a "
           "smooth loss.", census(AGD, "huber_svm")),
    Figure("dp_agd-kdd", "DP-AGD, Figure 4: KDD Cup 1999", "δ = 10⁻¹², the 10 % file; ObjPert, DP-AGD with batches "
        "of a tenth of the rows.",
           cup((Series("DP-AGD", "dbdp:dp_agd", {"batch_size": 3200}),
                *named(objective_perturbation="ObjPert", dp_sgd="SGD-MA")))),
    Figure(
        "dp_agd-settings",
        "DP-AGD, Figure 1: its settings",
        "Adult, logistic loss; all other settings are dbdp's.",
        (of_setting("splits", "dp_agd", "settings.splits", (10, 20, 40, 60, 80, 100), (10, 60), (0.1, 0.4, 1.6)),
         of_setting("γ", "dp_agd", "settings.growth", (0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.5), (0.1, 0.4, 1.6)),
         of_setting("C_grad", "dp_agd", "clip_norm", (0.25, 1, 2, 3, 4, 8, 16), (1, 4, 16), (0.1, 0.4, 1.6)),
         of_setting("C_obj", "dp_agd", "settings.loss_clip", (1, 2, 3, 4, 8, 16), (1, 16), (0.1, 0.4, 1.6))),
        repeats=10,
    ),
    Figure("rsgd_ar-logistic", "RSGD-AR, Figure 1: logistic regression by ε", "λ of the objective 0.001, as in the "
           "paper.", census(RSGD)),
    Figure("rsgd_ar-svm", "RSGD-AR, Figure 2: Huber SVM by ε", "h = 0.5.", census(RSGD, "huber_svm")),
    Figure("rsgd_ar-kdd", "RSGD-AR, Figures 1 and 2 (supplement): KDD Cup 1999", "δ = 10⁻¹², the 10 % file.",
           cup(named(rsgd_ar="RSGD-AR", nsgd="NSGD", objective_perturbation="ObjPert"))),
    Figure("dp_blsgd-logistic", "DP-BLSGD, Figure 3: logistic regression by ε", "δ = 10⁻⁸.", census(BLSGD)),
    Figure("dp_blsgd-svm", "DP-BLSGD, Figure 4: SVM by ε", "Huber SVM, h = 0.5.", census(BLSGD, "huber_svm")),
    Figure(
        "dp_blsgd-settings",
        "DP-BLSGD, Figure 1: its settings",
        "Adult, logistic loss. Noise of the search is Laplace's; the Gaussian one is not offered, since Theorem 3 is "
        "false.",
        (of_setting("α (Armijo)", "dp_blsgd", "settings.armijo", (0.1, 0.3, 0.5, 0.7, 0.9), (0.1, 0.5, 0.9),
                    (0.2, 0.05)),
         of_setting("β (shrink)", "dp_blsgd", "settings.shrink", (0.2, 0.4, 0.6, 0.8, 0.9), (0.4, 0.8), (0.2, 0.05)),
         of_setting("sampling: batch size", "dp_blsgd", "batch_size", (390, 1950, 3900, 11700, 19500), (390, 3900),
                    (0.2, 0.05)),
         of_setting("ζ (clip decay), DP-BLSGD-AC", "dp_blsgd_ac", "settings.clip_decay", (0.01, 0.05, 0.1, 0.2),
                    (0.05, 0.2), (0.2, 0.05)),
         of_setting("share of the budget for searches", "dp_blsgd", "settings.search_share", (0.1, 0.3, 0.5, 0.7),
                    (0.1, 0.5), (0.2, 0.05))),
        repeats=5,
    ),
)  # fmt: skip

# --- networks, output perturbation, all systems ------------------------------------------------------------------


def networks(network: str, small: str) -> Panel:
    """Return accuracy of a network on MNIST against ε."""
    series = tuple(
        Series(label, f"dbdp:{name}", {"network": network, "clip_norm": 3.0}, full=full)
        for name, label, full in (
            ("auto", "dbdp (default: dp_adam)", False), ("dp_sgd", "DP-SGD", False),
            ("dp_blsgd", "DP-BLSGD", False), ("rrpsgd", "RRPSGD", False), ("dp_agd", "DP-AGD", True),
        )
    )  # fmt: skip
    return Panel(f"MNIST, {network}", "mnist", EPSILON, (1, 2, 4, 8), series, small=(8,), small_dataset=small)


OTHERS = (
    Figure("networks", "DP-BLSGD, Figure 5; RRPSGD on networks", "MNIST, δ = 10⁻⁸, clip 3. The small run has fewer "
        "rows and units.",
           (networks("mlp:64", "mnist:rows=10000"), *(
               Panel(each.title, each.dataset, each.axis, each.values, each.series, full=True)
               for each in (networks("mlp:1000", ""), networks("cnn:6,16:256,128", ""))),
           ), repeats=5),
    Figure(
        "output_perturbation-error",
        "Output perturbation, Table 3: optimisation error",
        "Objective above its least value; δ = 0.001. At μ = 0 the algorithms have no regulariser, and the objective "
        "drawn has λ = 0.001; at μ > 0 both have it. WINE and BIKE: Huber regression.",
        tuple(
            Panel(f"{dataset}, {label}", dataset, EPSILON, ERM_GRID,
                  (Series("output perturbation GD", "dbdp:output_perturbation_gd", options),
                   Series("BST14, batches of 50", "dbdp:bst14", {"batch_size": 50, **options}),
                   *(() if options else (DBDP,))),
                  "excess", loss, delta=0.001, small=(0.1, 1))
            for dataset, loss, least in (("bank", "logistic", .1), ("adult", "logistic", .1),
                                         ("creditcard", "logistic", .1), ("wine", "huber_regression", .5),
                                         ("bike", "huber_regression", .5))
            for label, options in (("μ = 0", {}), (f"μ = {least}", {"regularisation": least}))
        ),
    ),
    Figure(
        "output_perturbation-time",
        "Output perturbation, Table 3: run time",
        "Seconds of one call in the database.",
        tuple(
            Panel(f"{dataset}, μ = 0", dataset, EPSILON, ERM_GRID,
                  (Series("output perturbation GD", "dbdp:output_perturbation_gd"),
                   Series("BST14, batches of 50", "dbdp:bst14", {"batch_size": 50}), DBDP),
                  "training_seconds", loss, delta=0.001, small=(0.1, 1))
            for dataset, loss in (("bank", "logistic"), ("creditcard", "logistic"), ("wine", "huber_regression"))
        ),
    ),
    Figure(
        "systems",
        "dbdp's default beside other systems",
        "The same rows, bounds and categories taken as public. diffprivlib's, JAX-Privacy's and tuned Boosted "
        "AdaSSP's settings are the best on the test rows, which is not charged. JAX-Privacy's noise is that of "
        "dp_accounting's privacy loss distribution for one row replaced, as dbdp's guarantee is. DP-EBM, AdaSSP and "
        "Boosted AdaSSP protect one row more or less, which is weaker. diffprivlib's proof needs the exact minimum, "
        "and L-BFGS stops before it: void as run.",
        (
            *(Panel(dataset, dataset, EPSILON, (0.1, 0.4, 1.6),
                    (COLUMNS, DBDP, PUBLISHED, Series("diffprivlib (void as run)", "peer:diffprivlib", void=True),
                     JAX, Series("DP-EBM", "peer:DP-EBM"), *ENDS),
                    small=(0.1, 1.6), full=dataset == "covertype_part")
              for dataset in ("adult", "bank", "creditcard", "covertype_part")),
            *(Panel(f"{dataset}: RMSE", dataset, EPSILON, (0.1, 1),
                    (COLUMNS, DBDP, Series("diffprivlib (columns moved)", "peer:diffprivlib"),
                     JAX, Series("DP-EBM", "peer:DP-EBM"),
                     Series("AdaSSP", "peer:AdaSSP"), Series("Boosted AdaSSP", "peer:BoostedAdaSSP"),
                     Series("Boosted AdaSSP, tuned", "peer:BoostedAdaSSP-tuned"), BEST, MEAN),
                    "rmse", "squared", delta=1e-6) for dataset in ("wine", "bike")),
        ),
        repeats=10,
    ),
    Figure("algorithms", "Every algorithm of dbdp, by its own defaults", "δ = 10⁻⁸.",
           tuple(Panel(f"{dataset}, {loss}", dataset, EPSILON, CENSUS,
                 (DBDP, *EVERY, *((JAX,) if loss == "logistic" else ()), *ENDS), loss=loss, small=SOME,
                       full=loss != "logistic")
                 for loss in ("logistic", "huber_svm") for dataset in ("adult", "bank")), repeats=10),
)  # fmt: skip
FIGURES = (*AGD_FIGURES, *OTHERS, *RUN_TIMES, *BOLT_ON)
BY_NAME = {figure.name: figure for figure in FIGURES}
