"""Writes an order and its message in one transaction: python order_sqlite.py ID TOTAL [fail]

DATABASE_FILE, for example shop.db, says where. Needs nothing but Python.
"""

import json
import os
import sqlite3
import sys


def check():
    if len(sys.argv) > 3:
        raise RuntimeError("the order cannot be placed")


order_id, total = sys.argv[1], int(sys.argv[2])

db = sqlite3.connect(os.environ["DATABASE_FILE"], timeout=5, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
try:
    db.execute("INSERT INTO orders (id, total) VALUES (?, ?)", (order_id, total))
    db.execute(
        """INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
           VALUES ('Order', ?, 'OrderCreated', 'orders', ?)""",
        (order_id, json.dumps({"orderId": order_id, "total": total})),
    )
    check()
    db.execute("COMMIT")
except BaseException:
    if db.in_transaction:
        db.execute("ROLLBACK")
    raise
