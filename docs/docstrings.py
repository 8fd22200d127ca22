"""Reads our docstrings for the site: what follows `name :` is the meaning, the type is that of the signature."""

from typing import Any

from griffe import DocstringSectionKind, Extension, Object

import dbdp

_SHOWN = {*dbdp.__all__, "Model"}
_NAMED = (DocstringSectionKind.parameters, DocstringSectionKind.attributes)


class Meanings(Extension):
    """Puts the text of parameters and attributes, which the parser took for their types, where it belongs."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Correct the docstring of an object."""
        is_shown = not obj.is_alias and {obj.name, obj.parent and obj.parent.name} & _SHOWN
        for section in obj.docstring.parsed if is_shown and obj.docstring else ():
            for item in section.value if section.kind in _NAMED else ():
                if not item.description:
                    item.description, item.annotation = str(item.annotation), _type_of(obj, item.name)


def _type_of(obj: Object, name: str) -> Any:
    """Return the type of a function's parameter, or of an attribute; None where the signature tells none."""
    if obj.is_function:
        return obj.parameters[name].annotation if name in obj.parameters else None
    return obj.members[name].annotation if name in obj.members and obj.members[name].is_attribute else None
