"""Writes an order and its message in one transaction: python order.py ID TOTAL [fail]

DATABASE_URL, for example postgres://shop@localhost/shop, says where.
"""

import json
import os
import sys

import psycopg


def check():
    if len(sys.argv) > 3:
        raise RuntimeError("the order cannot be placed")


dsn, order_id, total = os.environ["DATABASE_URL"], sys.argv[1], int(sys.argv[2])

with psycopg.connect(dsn) as db:          # commits at the end, rolls back on an exception
    db.execute("INSERT INTO orders (id, total) VALUES (%s, %s)", (order_id, total))
    db.execute(
        """INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
           VALUES ('Order', %s, 'OrderCreated', 'orders', %s)""",
        (order_id, json.dumps({"orderId": order_id, "total": total})),
    )
    check()
