"""A service that handles messages for relais and keeps its own database.

It stores each answer with its own mark, and gives the same answer again when relais repeats a call.
PORT, DATABASE_FILE and RELAIS_SECRET configure it. Needs nothing but Python.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
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


def handle(call_id, order):
    """Returns the answer. The invoice, the mark and the answer are one commit."""
    if not is_valid(order):
        return {"outcome": "fail", "code": "INVALID_ORDER", "message": "no orderId or no total"}
    number = secrets.token_hex(8)  # another one in each call: only the stored answer is the same
    invoice = {"orderId": order["orderId"], "number": number, "cents": order["total"]}
    message = {"destination": "mail", "event_type": "InvoiceCreated", "payload": invoice}
    answer = {"outcome": "done", "messages": [message]}
    with contextlib.closing(connect()) as db:
        db.execute("BEGIN IMMEDIATE")
        marked = db.execute(
            "INSERT INTO handled_call (id, answer) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
            (call_id, json.dumps(answer)),
        )
        if marked.rowcount == 0:  # relais repeats the call: the same answer, and no second invoice
            db.execute("ROLLBACK")
            found = db.execute("SELECT answer FROM handled_call WHERE id = ?", (call_id,))
            return json.loads(found.fetchone()[0])
        db.execute(
            "INSERT INTO invoices (order_id, number, cents) VALUES (?, ?, ?)",
            (order["orderId"], number, order["total"]),
        )
        db.execute("COMMIT")
    return answer


class Calls(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_signed(self.headers, body):
            return self.answer(401, {"error": "the signature does not match"})
        try:
            self.answer(200, handle(self.headers["idempotency-key"], json.loads(body)))
        except sqlite3.OperationalError as error:  # relais waits, and no attempt is used
            self.answer(503, {"error": str(error)})

    def do_HEAD(self):  # `relais check --connect`
        self.answer(404, None)

    def answer(self, status, value):
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


with contextlib.closing(connect()) as db:
    db.execute(
        "CREATE TABLE IF NOT EXISTS invoices (order_id TEXT NOT NULL, number TEXT NOT NULL, cents BIGINT NOT NULL)"
    )
    db.execute("CREATE TABLE IF NOT EXISTS handled_call (id TEXT PRIMARY KEY, answer TEXT NOT NULL)")
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Calls)
print("listening on", server.server_address[1], flush=True)
server.serve_forever()
