r"""A service that pays orders for jobs that hold a lock. Each sends its token along:

    PGDATABASE=shop python3 django_view.py runserver

    leasehold run -S postgres://app@pg1/shop payments -- sh -c \
        'curl --fail -X POST -H "Lease-Token: $LEASEHOLD_TOKEN" http://127.0.0.1:8000/orders/42/pay'

A job that was paused, and whose request comes after that of a later holder, gets 409 Conflict.
"""

from __future__ import annotations

import os
import sys

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        # The rest is that of PGHOST, PGUSER. The role needs no right to the records of the locks.
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": os.environ["PGDATABASE"],
            }
        },
    )
    django.setup()

from django.db import DatabaseError, connection, models, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_POST


class Order(models.Model):
    # The annotation is for mypy with django-stubs only.
    state: models.TextField[str, str] = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"
        managed = False


# For your own jobs only: whoever may call it with a high token locks out all others.
@require_POST
def pay(request: HttpRequest, order: int) -> HttpResponse:
    token = int(request.headers["Lease-Token"])
    try:
        # Durable: a transaction, not a savepoint in the one of somebody who catches the error.
        with transaction.atomic(durable=True):
            with connection.cursor() as cursor:
                # First of all, also before what is read.
                cursor.execute("select leasehold.guard(%s, %s)", ["payments", token])
            Order.objects.filter(id=order).update(state="paid")
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) != "LH001":
            raise
        return HttpResponse(f"order {order} is not paid: {error}", status=409)
    return HttpResponse(f"order {order} is paid")


urlpatterns = [path("orders/<int:order>/pay", pay)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
