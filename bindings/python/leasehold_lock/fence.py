"""Fences: what they guard refuses a token that is lower than one it has seen."""

from __future__ import annotations

import operator
import threading
from typing import Any

from ._errors import Fenced, make


class Gate:
    """Admits the highest token so far. For what this process guards, such as its own memory.

    >>> gate = lh.fence.Gate()
    >>> gate.admit(2)
    >>> try:
    ...     gate.admit(1)
    ... except lh.Fenced as stale:
    ...     print(stale)
    token 1 is fenced: 2 was seen
    """

    def __init__(self, seen: int = 0) -> None:
        self._seen, self._turn = seen, threading.Lock()

    @property
    def seen(self) -> int:
        """The highest token so far."""
        return self._seen

    def admit(self, token: int | None) -> None:
        """Remembers ``token``. Raises ``Fenced`` if a higher one was seen."""
        token = _number(token)
        with self._turn:
            if token < self._seen:
                raise Fenced(f"token {token} is fenced: {self._seen} was seen")
            self._seen = token


def statement(of: Any, column: Any, token: int | None) -> Any:
    """An ``update()`` or ``delete()`` of SQLAlchemy for rows that have seen no higher token.

    It writes the token into ``column``. Execute it, and pass what it returns to ``check``::

        order = update(orders).where(orders.c.id == 42).values(state="paid")
        fence.check(connection.execute(fence.statement(order, orders.c.token, lease.token)))
    """
    token = _number(token)
    of = of.where(column <= token)
    return of.values({column: token}) if hasattr(of, "values") else of


def check(done: Any) -> int:
    """How many rows a guarded statement has changed. Raises ``Fenced`` if there was none.

    ``done`` is what SQLAlchemy, a cursor, or ``QuerySet.update`` has returned.
    """
    count: int = getattr(done, "rowcount", done)
    if count < 0:
        raise ValueError("the driver does not know how many rows were changed: it fences nothing")
    if not count:
        raise Fenced("no row was changed: there is none, or it has seen a higher token")
    return count


def update(rows: Any, token: int | None, field: str = "token", **values: Any) -> int:
    """Updates the ``rows`` of a ``QuerySet`` of Django that have seen no higher token in ``field``.

    Returns how many these were, and raises ``Fenced`` if there was none::

        fence.update(Order.objects.filter(id=42), lease.token, state="paid")
    """
    token = _number(token)
    return check(rows.filter(**{f"{field}__lte": token}).update(**{field: token}, **values))


def _number(token: int | None) -> int:
    if token is None:
        hint = "lock the key exclusively, without layout=classic"
        raise make("Invalid", "the lease has no token to compare", hint)
    # A number that is none, such as ``nan``, is lower than no other: a fence would admit all.
    return operator.index(token)
