"""Pays the orders whose numbers come on standard input, one transaction each, as the command of a lock:

    leasehold run -S postgres://app@pg1/shop payments -- python3 psycopg_job.py <orders

The database is that of PGHOST, PGUSER, PGDATABASE. The role needs no right to the records of the locks.
"""

import os
import sys

import psycopg

# Of `leasehold run`.
KEY = os.environ["LEASEHOLD_KEY"]
TOKEN = int(os.environ["LEASEHOLD_TOKEN"])


def pay(database: psycopg.Connection, order: int) -> None:
    with database.transaction():
        # First of all, also before what is read.
        database.execute("select leasehold.guard(%s, %s)", (KEY, TOKEN))
        database.execute("update orders set state = 'paid' where id = %s", (order,))


def main() -> None:
    # With autocommit each transaction() is a transaction; else it may be a savepoint of one.
    with psycopg.connect(autocommit=True) as database:
        for order in map(int, sys.stdin):
            try:
                pay(database, order)
            except psycopg.DatabaseError as error:
                if error.sqlstate != "LH001":
                    raise
                # A later holder has been there, and does the work now.
                sys.exit(f"order {order} is not paid: {error}")
            print(f"order {order} is paid", flush=True)


if __name__ == "__main__":
    main()
