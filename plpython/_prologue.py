if "dbdp" not in GD:
    import sys

    if "MODULE_PATHNAME" not in sys.path:
        sys.path.insert(0, "MODULE_PATHNAME")
    try:
        import dbdp.server
    except ImportError as error:
        plpy.error(
            f"PL/Python cannot import dbdp: {error}",
            hint="run `dbdp install` on the server's machine; it fills MODULE_PATHNAME",
        )
    dbdp.server.check_version("@version@")
    GD["dbdp"] = dbdp.server
