"""A view of Django that one request at a time runs for each order, on all machines together.

    LEASEHOLD_STORE=redis://db1/ python3 django_view.py runserver

The update compares the token in the database. So a request that was paused for longer than its
lease changes nothing after a later one: it gets 409.
"""

from __future__ import annotations

import os
import sys

import django
from django.conf import settings

if not settings.configured:
    name = os.environ.get("DATABASE", "shop.sqlite3")
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": name}},
    )
    django.setup()

from django.db import connection, models
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_POST

import leasehold_lock as lh

# One for each process. Workers that are forked after this line connect by themselves.
client = lh.connect(os.environ.get("LEASEHOLD_STORE", "local:"))


class Order(models.Model):
    # The annotations are for mypy with django-stubs only.
    state: models.TextField[str, str] = models.TextField()
    token: models.BigIntegerField[int, int] = models.BigIntegerField(default=0)

    class Meta:
        app_label = "shop"


@require_POST
def pay(request: HttpRequest, order: int) -> HttpResponse:
    try:
        with client.mutex(f"orders/{order}", timeout=5) as lease:
            charge(order, lease)
            lh.fence.update(Order.objects.filter(id=order), lease.token, state="paid")
    except (lh.Timeout, lh.Unavailable) as error:
        return HttpResponse(f"try again: {error}", status=503)
    except (lh.Lost, lh.Fenced) as error:
        return HttpResponse(f"look at order {order}: {error}", status=409)
    return HttpResponse(f"order {order} is paid")


def charge(order: int, lease: lh.Lease) -> None:
    """The long part. Send the token along if the other side compares it."""
    lease.check()


urlpatterns = [path("orders/<int:order>/pay", pay)]


def create_table() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    Order.objects.create(id=42, state="new")


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    if Order._meta.db_table not in connection.introspection.table_names():
        create_table()
    execute_from_command_line(sys.argv)
