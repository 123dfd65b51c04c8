"""Fences: what they guard refuses a stale token, and nothing of it is written."""

from __future__ import annotations

import sqlite3
import threading

import leasehold_lock as lh
import pytest
from leasehold_lock import fence


def test_a_gate_admits_no_lower_token():
    gate = fence.Gate(3)
    gate.admit(3)
    gate.admit(7)
    for stale in (6, 3):
        with pytest.raises(lh.Fenced, match=f"token {stale} is fenced: 7 was seen"):
            gate.admit(stale)
    assert gate.seen == 7
    with pytest.raises(lh.Invalid, match="has no token.*layout=classic"):
        gate.admit(None)
    for no_token in (float("nan"), 8.5, "8"):
        with pytest.raises(TypeError):
            gate.admit(no_token)


def test_a_gate_is_shared_by_threads():
    gate, refused, tokens = fence.Gate(), [], range(1, 200)

    def admit(token):
        try:
            gate.admit(token)
        except lh.Fenced:
            refused.append(token)

    threads = [threading.Thread(target=admit, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gate.seen == tokens[-1] and tokens[-1] not in refused


def test_a_count_that_nobody_knows_guards_nothing():
    with pytest.raises(ValueError, match="fences nothing"):
        fence.check(sqlite3.connect(":memory:").cursor())


def test_statements_of_sqlalchemy_are_guarded():
    from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine
    from sqlalchemy import delete, select, update

    columns = Column("id", Integer), Column("state", String), Column("token", Integer)
    orders = Table("orders", MetaData(), *columns)
    engine = create_engine("sqlite://")
    orders.metadata.create_all(engine)
    order = update(orders).where(orders.c.id == 42)
    with engine.begin() as connection:
        connection.execute(orders.insert(), [{"id": 42, "state": "new", "token": 0}])

        def write(state, token):
            guarded = fence.statement(order.values(state=state), orders.c.token, token)
            return fence.check(connection.execute(guarded))

        assert write("paid", 7) == 1 and write("sent", 7) == 1
        with pytest.raises(lh.Fenced):
            write("cancelled", 6)
        gone = delete(orders).where(orders.c.id == 42)
        with pytest.raises(lh.Fenced):
            fence.check(connection.execute(fence.statement(gone, orders.c.token, 6)))
        assert connection.execute(select(orders.c.state, orders.c.token)).all() == [("sent", 7)]
        assert fence.check(connection.execute(fence.statement(gone, orders.c.token, 8))) == 1


def test_a_query_set_of_django_is_guarded(tmp_path):
    import django
    from django.conf import settings

    # One in memory is never closed.
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "orders"}
    settings.configure(DATABASES={"default": sqlite}, INSTALLED_APPS=[])
    django.setup()
    from django.db import connection, models

    class Order(models.Model):
        state = models.TextField()
        token = models.BigIntegerField(default=0)

        class Meta:
            app_label = "orders"

    with connection.schema_editor() as editor:
        editor.create_model(Order)
    Order.objects.create(id=42, state="new")
    orders = Order.objects.filter(id=42)
    assert fence.update(orders, 7, state="paid") == 1
    with pytest.raises(lh.Fenced, match="no row was changed"):
        fence.update(orders, 6, state="cancelled")
    assert orders.values_list("state", "token").get() == ("paid", 7)
    with pytest.raises(lh.Invalid):
        fence.update(orders, None, state="cancelled")
    connection.close()
