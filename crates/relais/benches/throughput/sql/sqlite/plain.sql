-- The tables of the raw limit. The outbox of a sender has five columns and a primary key. The one that is
-- relayed has the columns of an outbox row and the usual partial index on what is pending.
CREATE TABLE plain_send (
    id          INTEGER PRIMARY KEY,
    destination TEXT,
    msg_key     TEXT,
    event_type  TEXT,
    payload     TEXT
);
CREATE TABLE plain_relay (
    id              INTEGER PRIMARY KEY,
    message_id      TEXT,
    category        TEXT,
    aggregate_type  TEXT,
    aggregate_id    TEXT,
    event_type      TEXT,
    event_version   INTEGER,
    payload         TEXT,
    headers         TEXT,
    destination     TEXT,
    msg_key         TEXT,
    created_at      TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    status          TEXT DEFAULT 'PENDING',
    attempts        INTEGER DEFAULT 0,
    next_attempt_at TEXT,
    dispatched_at   TEXT,
    causation_id    TEXT,
    correlation_id  TEXT
);
CREATE INDEX plain_relay_pending ON plain_relay (id) WHERE status = 'PENDING';
-- The columns of an inbox row.
CREATE TABLE plain_inbox (
    id                 INTEGER PRIMARY KEY,
    message_id         TEXT,
    source_system      TEXT,
    topic              TEXT,
    partition_num      INTEGER,
    offset_num         INTEGER,
    key_str            TEXT,
    msg_key            TEXT,
    aggregate_id       TEXT,
    event_type         TEXT,
    payload            TEXT,
    headers            TEXT,
    raw_payload_base64 TEXT,
    event_ts           TEXT,
    received_at        TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    status             TEXT DEFAULT 'RECEIVED',
    attempts           INTEGER DEFAULT 0,
    next_attempt_at    TEXT,
    processed_at       TEXT,
    error_stage        TEXT,
    error_code         TEXT,
    error_message      TEXT
);
-- The user's own row of each transaction.
CREATE TABLE business (
    id       INTEGER PRIMARY KEY,
    order_id TEXT,
    note     TEXT
);
-- The position of a source.
CREATE TABLE plain_position (
    source   TEXT PRIMARY KEY,
    position INTEGER
);
