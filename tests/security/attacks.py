"""The attacks that were tried. A test names its attack by a mark: `@pytest.mark.attack("rollback")`.

Each attack has a key, the attempt and the result. docs/attacks.py writes docs/reference/attacks.md from this table
and the marks of the tests. A test that shows that an attack works without its defence has the mark `control`.
"""

ATTACKS: dict[str, dict[str, tuple[str, str]]] = {
    "Undoing a charge": {
        "rollback": (
            "`ROLLBACK`, `AND CHAIN`, savepoints, caught exceptions, nested subtransactions, cursors with and without"
            " hold, prepared statements, triggers, deferred triggers, defaults, serializable",
            "the charge stays, once for each training run",
        ),
        "prepared-charge": (
            "two-phase commit of a training run or of a charge",
            "refused because of the temporary tables. The charge stays",
        ),
        "prepared-registration": (
            "two-phase commit of a registration",
            "no dataset until it commits. Only registrations of the same table or name wait",
        ),
        "re-registration": (
            "drop, register again, train, roll back",
            "refused: the transaction could undo the new budget",
        ),
        "stop": (
            "cancel and `statement_timeout` at 800 random moments",
            "no model without a charge, no table or half-written row left",
        ),
        "own-kill": (
            "`pg_cancel_backend`, `pg_terminate_backend` by the same role",
            "no model without a charge, no table or half-written row left",
        ),
        "eight-sessions": (
            "eight sessions on one budget, with rollbacks and cancels",
            "spent to the unit, never overdrawn",
        ),
        "kill": (
            "`kill -9` of the backend or of the server",
            "the charge is there. Packed rows are gone from the disk",
        ),
        "forged-plan": (
            "forged plans to `dbdp_internal.charge`: negative, NaN, infinite, nested without end",
            "refused before anything is spent",
        ),
        "odometer": (
            "dropping, recreating, restarting or setting an odometer, or the tables of the ledger",
            "no privilege",
        ),
        "two-registrations": (
            "two registrations of one table or name at once",
            "one dataset, and the other call is refused",
        ),
    },
    "Stopping others": {
        "advisory-locks": (
            "holding every advisory lock",
            "calls do not wait for one",
        ),
        "open-transaction": (
            "staying in a transaction after a training run",
            "stops no other session",
        ),
        "connection-limit": (
            "a connection limit",
            "parallel training is refused before its charge",
        ),
        "error-bytes": (
            "an owner's code that raises an error with a text that is not UTF-8. This left Python's calls running and"
            " crashed the server",
            "an error, as for any other text",
        ),
        "encoding": (
            "a database with another encoding. A column name outside ASCII crashed the server",
            "refused by name",
        ),
        "file-room": (
            "a nameless file of packed rows beyond `temp_file_limit`, or on a disk without room",
            "refused before the charge, by public sizes",
        ),
        "forged-states": (
            "forged states, blocks, rows and descriptions (thousands)",
            "errors. The backend lives",
        ),
    },
    "The environment": {
        "serializable": (
            "a serializable transaction, to read in `pg_locks` which rows were read, or to multiply charges by retries",
            "refused before the charge by each function that spends, amends or reads rows",
        ),
        "version": (
            "a version of PostgreSQL with counters that were never reviewed",
            "refused",
        ),
        "pool": (
            "clients that share a pool of sessions",
            "each trains for one charge, and no setting stays in a session",
        ),
        "output-settings": (
            "settings of a role or a database that change the text of results",
            "the same output",
        ),
    },
    "The code of a table's owner": {
        "planner": (
            "functions in indexes, predicates, CHECK constraints and extended statistics, which the planner evaluates",
            "run as the table's owner, CHECK constraints not at all. A plain query of `dbdp_owner` would lend it "
            "every registered table",
        ),
        "planner-client": (
            "the same functions against a client, also a superuser's",
            "run as the table's owner, CHECK constraints not at all",
        ),
        "row-oracle": (
            "the check of the rows, or reading rows through the server, as an oracle",
            "only for roles that may read the table. Views and tables with row-level security are refused",
        ),
        "defaults": (
            "defaults, generated columns, triggers, rules, policies",
            "do not run, or the table is refused",
        ),
        "replacement": (
            "a view, another table or another type that takes the table's name while a training run waits for a lock",
            "runs as the owner, or is refused",
        ),
        "spending-code": (
            "code that trains, explains or drops datasets while the analyst's session reads the table",
            "refused",
        ),
        "maintenance": (
            "the same code in a superuser's `ANALYZE`, `REINDEX`, `VACUUM`, foreign-key check, and autovacuum",
            "refused",
        ),
        "maintenance-ledger": (
            "code there that reads the ledger as the superuser who logged in",
            "sees its own role's part",
        ),
        "left-path": (
            "a `search_path` set by such code, with operators and functions before the server's",
            "undone before the next statement",
        ),
        "changed-table": (
            "renaming, replacing, retyping, inheriting, emptying or closing the table after registration",
            "followed by its number, or refused before the charge",
        ),
        "owners-error": (
            "an error of such code with SQLSTATE `DP001`, a text and hint like dbdp's own, or control characters",
            "the reader gets a fixed text with the SQLSTATE, and never `DP001`",
        ),
        "owners-messages": (
            "messages of such code, at every level, also `raise info`. Then an error or a cancel within it",
            "no message reaches the reader, who hears the session again afterwards. A session that is terminated "
            "meanwhile closes without the server's words",
        ),
        "owners-locks": (
            "advisory locks that such code takes, or gives up, in the reader's session",
            "its own locks are released when the call ends. The reader's locks stay, each with the same count",
        ),
        "cursors": (
            "a cursor of the reader, with or without hold, of a loop or a driver, read by such code",
            "refused. The cursor that runs, and the reader's own tables, do not count",
        ),
        "leftovers": (
            "everything else that such code could leave: `LISTEN`, prepared statements, temporary objects, held "
            "cursors, roles, libraries, settings, a read-only transaction",
            'refused in restricted mode, or undone: see "Code of an owner" in [Known limits](../known-limits.md)',
        ),
        "sources": (
            "views, materialised views, foreign and temporary tables, sequences, indexes, functions as the source",
            "refused",
        ),
        "column-types": (
            "domains, enums, composites, ranges, collations with casts, operators and checks of the owner's",
            "refused, or their code does not run",
        ),
        "partitions": (
            "partition keys and partitions with code, and swapping partitions",
            "run as the owner of the partitioned table",
        ),
        "group-table": (
            "a table of a group",
            "read as the group, which gets no right",
        ),
        "event-triggers": (
            "event triggers, default privileges, another version of an interface",
            "no privilege",
        ),
        "foreign-place": (
            "another person's file, or an address, as the place of a dataset that others may train on",
            "the client opens nothing, and no charge is made, unless its user allows the place",
        ),
        "odd-place": (
            "places with `..`, escapes, braces, users, hosts, other schemes and control characters",
            "refused by the server and by the client",
        ),
    },
    "Copies of hosted tables": {
        "trigger-on-copy": (
            "an `enable always` trigger of a data owner on a copy that `dbdp follow` made, which PostgreSQL 15 would"
            " run as the superuser that subscribes",
            "the copy belongs to that superuser. A copy that was given away is refused, and `dbdp doctor` reports it",
        ),
        "trigger-on-snapshot": (
            "a trigger of a data owner on a copy that another role writes by `--snapshot`",
            "refused: only the owner of the copy writes it",
        ),
        "password-of-source": (
            "the password of the hosted role in errors, the log, `pg_stat_activity`, or `pg_subscription` as another"
            " role",
            "in none of them. Only a superuser reads `pg_subscription.subconninfo`",
        ),
    },
    "The role in force, and old snapshots": {
        "traps": (
            "others' triggers (deferred, of partitions, truncate, on your own tables and on superusers'), views, a "
            "view that is dropped while it is read, casts of types and of rows, cursors, defaults, generated columns,"
            " CHECK, rules, indexes, statistics, policies. They run with their own rights or those of the role that "
            "fires them: an owner, a superuser, an analyst",
            "refused",
        ),
        "hidden-traps": (
            "the trap belongs to a group, or is newer than the snapshot",
            "refused",
        ),
        "types": (
            "another role's type within your own type, at any depth, and random graphs of types, functions, operators"
            " and relations",
            "refused exactly if another role's code can be reached",
        ),
        "set-role": (
            "code of a role that the session took by `SET ROLE`: in an index during `ANALYZE`, `REINDEX`, `VACUUM`, "
            "`CREATE INDEX`, a refresh, or a `SECURITY DEFINER` function",
            "sees its own role's part",
        ),
        "definer": (
            "code with its owner's rights reads the ledger, or predicts, in another role's session",
            "only its owner's part",
        ),
        "own-code": (
            "your own code and tables",
            "allowed",
        ),
        "superuser-change": (
            "a renewal or correction by a superuser",
            "the dataset stays its owner's",
        ),
        "old-snapshots": (
            "old snapshots after a revocation, a lower limit, a drop, a renewal, a correction, a lost membership, by "
            "each interface",
            "refused, and the budget is unchanged",
        ),
        "open-revocation": (
            "staying in a revocation",
            "stalls only that role",
        ),
    },
    "Names of roles": {
        "reused-name": (
            "a new role with the former name of a renamed owner, analyst, or team",
            "sees nothing, trains nothing, grants nothing. The renamed role keeps all",
        ),
        "swapped-names": (
            "two roles that swap names",
            "each keeps its allowance, spending, models and names of models",
        ),
        "recreated-role": (
            "a role that is dropped and created again",
            "has no right of the former role",
        ),
        "rename-inside": (
            "a rename in the middle of a transaction",
            "the session goes on as the renamed role",
        ),
        "new-table-owner": (
            "`alter table … owner`, `reassign owned`",
            "move the table, not the dataset",
        ),
        "successor": (
            "taking over the rights of a dropped role",
            "a superuser decides",
        ),
        "mark-name": (
            "a role named like a mark of the views",
            "gains nothing",
        ),
        "restored-dump": (
            "a dump that is restored on a server with other roles under the same names or numbers",
            "no role has any right until it is confirmed",
        ),
        "confirmation": (
            "an owner of a table that confirms a role with rights on others' tables",
            "refused",
        ),
        "former-dump": (
            "a dump of a version that had names only",
            "the same as any dump",
        ),
        "any-sequence": (
            "any sequence of these",
            "each role has the rights that its person has",
        ),
        "rights-without-role": (
            "rights that no role has",
            "listed for the owner",
        ),
    },
    "Names planted before a client's": {
        "planted-names": (
            "operators, functions, aggregates, casts, types and relations for every one of the server's, in `public`,"
            ' in `"$user"` and first on the path, for every command, the page, and in-memory data',
            "no planted object is used",
        ),
        "lent-connections": (
            "the same, and temporary ones, on connections that are lent (psycopg, SQLAlchemy, a transaction)",
            "no planted object is used, and the path is the user's again. A connection in pipeline mode is refused",
        ),
        "sql-as-name": (
            "SQL as a name",
            "quoted",
        ),
    },
    "Watching": {
        "printed-plans": (
            "`debug_print_plan` and every message level: plans hold exact models as constants",
            "silence",
        ),
        "server-log": (
            "making the server's log hold them",
            "it does not",
        ),
        "counters": (
            "the number of sampled rows, and the pages of wide rows, by `EXPLAIN (ANALYZE, BUFFERS, WAL)`, by "
            "statistics of tables or by the numbers of commands, transactions and objects (`cmin`, `xmin`, OIDs) that"
            " a run takes, for every algorithm",
            "no counter differs between neighbours or runs",
        ),
        "row-count": (
            "how many rows a dataset with a capacity has, by the same counters, below and above the capacity",
            "no counter depends on it",
        ),
        "explain-analyze": (
            "`EXPLAIN ANALYZE`",
            "one row",
        ),
        "recorders": (
            "loading `auto_explain`, that of an administrator, and `pg_stat_statements` of all nested statements",
            "loading is refused. No record reaches an analyst",
        ),
        "sizes": (
            "batches and passes without a row, one row or unit more, values in line and out of line, by the next "
            "portal and the next subtransaction, cursors, and locks of the own session and a second one, for every "
            "call",
            "no count differs between neighbours",
        ),
        "activity": (
            "`pg_stat_activity`, `pg_locks`, `pg_cursors`, memory contexts",
            "a role's own calls, and locks that follow from the declaration. Another role's calls not at all",
        ),
        "temporary-tables": (
            "the temporary tables of a training run, by name, number or size",
            "not listed. In a client they are closed, to superusers too",
        ),
        "column-statistics": (
            "`pg_stats`, `pg_statistic`, `EXPLAIN` of the table",
            "closed",
        ),
        "selectable": (
            "every relation that an analyst may select from, searched for a row's numbers",
            "no number of a row",
        ),
        "channels": (
            "`LISTEN`, large objects, `COPY`, files, logs, temporary files, replication slots",
            "closed, or the caller's own",
        ),
        "languages": (
            "PL/Python, libraries, C and internal functions, the environment",
            "closed",
        ),
        "raw-bytes": (
            "raw bytes by `array_bytes` and `row_bytes`",
            "the argument's own, without the memory in between",
        ),
        "table-sizes": (
            "the size of a table and its use, which PostgreSQL shows everybody",
            "a leak: see [Known limits](../known-limits.md). The remedy there closes it",
        ),
    },
    "Settings, names and arguments": {
        "parameters": (
            "each parameter that a role may set, at the ends of its range",
            "the same plan, or a refusal before the charge",
        ),
        "parameters-neighbours": (
            "the same, on neighbours with rows stored out of line, and with 9,000 rows more of one person",
            "both answer, or both are refused before the charge",
        ),
        "no-temporary-files": (
            "`temp_file_limit = 0`, `work_mem = 64kB` for a person with many rows",
            "both neighbours train. A plain count fails for one of them",
        ),
        "wide-page": (
            "135 rows of 8 MB on one page, and the neighbour with a short first row",
            "both answer",
        ),
        "array-length": (
            "arrays of another length than declared, compressed or not",
            "neither fetched nor unpacked: zero rows",
        ),
        "instructions": (
            "one label that moves all slopes from 0, and denormal models and rows",
            "the same instructions. Denormals are flushed, and the server is left as it was",
        ),
        "public-times": (
            "switching off the public times of answers, escaping them by an old snapshot, a cancel",
            "refused, then 40001 without a charge, then the charge stands",
        ),
        "superusers-settings": (
            "parameters that only superusers set, such as `session_replication_role`",
            "refused",
        ),
        "control-characters": (
            "control characters, C1 controls and changes of direction in every kind of name, by every command",
            "escaped",
        ),
        "compression": (
            "equal rows in blocks on Spark, by the size of compressed data",
            "not smaller than random bytes",
        ),
        "seed": (
            "`setseed`",
            "decides nothing",
        ),
        "shadowing": (
            "functions, operators, types and tables with our names in `pg_temp`, `public` and a schema before "
            "`pg_catalog`",
            "not used",
        ),
        "odd-arguments": (
            "NaN, infinities, extremes in every number, SQL, Unicode, 1 MB, deep JSON in every text of every interface",
            "refused in our words or PostgreSQL's, or taken literally. The budget is unchanged",
        ),
        "proportions": (
            "counts, sizes and objectives out of all proportion: 2³¹ − 1 outputs for no model, 10⁹ classes or bins, "
            "parameters beyond any memory, empty and huge blocks, a million candidates",
            "refused before anything is allocated",
        ),
        "repetitions": (
            "an event of repetitions within repetitions, with a cost that would take hours to compute",
            "refused",
        ),
        "request-length": (
            "requests to the page with a doubtful length: both headers, pieces, several lengths, signs, other digits,"
            " bodies of pages",
            "refused unread. 50 MB were read before",
        ),
        "slow-request": (
            "silence, headers without end, a body byte by byte",
            "closed after 20 seconds",
        ),
        "predictions": (
            "predictions of every kind, to find the model behind them",
            "determine a linear model: it is released",
        ),
        "odd-rows": (
            "odd rows to predict",
            "null or an error",
        ),
        "internal-functions": (
            "calling functions that pack, train, sum and store, as an analyst or a stranger, or as another owner",
            "no privilege",
        ),
        "wrapper": (
            "a `SECURITY DEFINER` function around an interface, for others",
            "refused",
        ),
        "forged-description": (
            "a forged description of a model to `dbdp_internal.learn`, or a forged number of a name, also by code "
            "that a view runs with its reader's rights",
            "refused, or forgotten. A session learns only descriptions that it vouched for itself "
            "(`dbdp_internal.vouched`)",
        ),
        "block-table": (
            "SQL as the name of the table for blocks",
            "a name, or refused",
        ),
        "row-values": (
            "rows with nulls, NaN, 1e308, other lengths, 8 MB, in each encoder",
            "the same words, the same receipt",
        ),
        "long-values": (
            "a text of 100 MB, of which 1.1 MB are stored, or the most extreme value of another type, in every part "
            "of a declaration",
            "takes no memory",
        ),
        "row-time": (
            "the time that such a row takes",
            "a leak: see [Known limits](../known-limits.md)",
        ),
    },
}
