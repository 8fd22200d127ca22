if "dbdp" not in SD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp
        from dbdp.interfaces.sql import @module@, scoring
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="start a new session; if that does not help, run `dbdp install` on the server's machine: it fills "
            "MODULE_PATHNAME",
        )
    if dbdp.__version__ != "@version@":
        plpy.error(
            f"extension dbdp is @version@, its Python package in the server is {dbdp.__version__}",
            hint="run `dbdp install` with one version on the server's machine, then start a new session",
        )
    scoring.forget()  # a new function may belong to a new extension, with other models
    SD["dbdp"] = @module@.@function@
return SD["dbdp"](*args)
