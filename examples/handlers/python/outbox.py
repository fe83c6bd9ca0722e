"""A service that handles messages for relais in the database of relais.

It writes its messages to relais_outbox itself, in the transaction of its own changes and its mark, and
answers 204. PORT, DATABASE_FILE and RELAIS_SECRET configure it. Needs nothing but Python.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["RELAIS_SECRET"].removeprefix("whsec_"))


def is_signed(headers, body):
    """Checks the signature as Standard Webhooks defines it."""
    call_id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
    signed = f"{call_id}.{at}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256))
    signatures = headers.get("webhook-signature", "").encode().split()
    known = any(hmac.compare_digest(expected, one) for one in signatures)
    return known and abs(time.time() - int(at)) < 300


def connect():
    return sqlite3.connect(os.environ["DATABASE_FILE"], timeout=5, isolation_level=None)


def is_valid(order):
    """Any JSON may come: what is no order must become an answer, not an exception."""
    return (
        isinstance(order, dict)
        and isinstance(order.get("orderId"), str)
        and isinstance(order.get("total"), int)
        and order["total"] >= 0
    )


def handle(call_id, message_id, order):
    """Writes the invoice, its message and the mark in one commit, once for each message."""
    with contextlib.closing(connect()) as db:
        db.execute("BEGIN IMMEDIATE")
        marked = db.execute(
            "INSERT INTO handled_call (id) VALUES (?) ON CONFLICT (id) DO NOTHING", (call_id,)
        )
        if marked.rowcount == 1:
            db.execute(
                "INSERT INTO invoices (order_id, cents) VALUES (?, ?)",
                (order["orderId"], order["total"]),
            )
            invoice = {"orderId": order["orderId"], "cents": order["total"]}
            db.execute(
                """INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination,
                                              payload, causation_id)
                   VALUES ('Order', ?, 'InvoiceCreated', 'mail', ?, ?)""",
                (order["orderId"], json.dumps(invoice), message_id),
            )
        db.execute("COMMIT")


class Calls(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_signed(self.headers, body):
            return self.answer(401)
        order = json.loads(body)
        if not is_valid(order):
            return self.answer(422)  # a dead letter
        try:
            handle(self.headers["idempotency-key"], self.headers["message-id"], order)
            self.answer(204)
        except sqlite3.OperationalError:  # relais waits, and no attempt is used
            self.answer(503)

    def do_HEAD(self):  # `relais check --connect`
        self.answer(404)

    def answer(self, status):
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


with contextlib.closing(connect()) as db:
    db.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT NOT NULL, cents BIGINT NOT NULL)")
    db.execute("CREATE TABLE IF NOT EXISTS handled_call (id TEXT PRIMARY KEY)")
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Calls)
print("listening on", server.server_address[1], flush=True)
server.serve_forever()
