-- Other programs may give NULL for headers, and for the ordering key of a received message.
-- Differs from postgres: SQLite cannot change a NOT NULL, so both tables are written again.

CREATE TABLE relais_outbox_next (
    id              INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id > 0),
    -- One UUID is one message however its letters are written.
    message_id      TEXT NOT NULL COLLATE NOCASE DEFAULT (lower(
                        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
                        || substr(hex(randomblob(2)), 2) || '-'
                        || substr('89AB', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2)
                        || '-' || hex(randomblob(6))))
                    CONSTRAINT relais_outbox_message_is_uuid
                    CHECK (message_id GLOB '????????-????-????-????-????????????'
                           AND message_id NOT GLOB '*[^0-9a-fA-F-]*'
                           AND length(replace(message_id, '-', '')) = 32),
    destination     TEXT NOT NULL CHECK (destination <> ''),
    -- Filled by the trigger below when a writer gives none; never NULL once the INSERT is over.
    msg_key         TEXT,
    -- Computed when it is read.
    lane            INTEGER GENERATED ALWAYS AS ((
                        coalesce(unicode(substr(msg_key, -1, 1)), 0)
                        + 7 * coalesce(unicode(substr(msg_key, -2, 1)), 0)
                        + 31 * coalesce(unicode(substr(msg_key, -3, 1)), 0)
                        + 61 * coalesce(unicode(substr(msg_key, -4, 1)), 0)
                        + 13 * coalesce(unicode(substr(msg_key, 1, 1)), 0)
                        + 3 * length(msg_key)) % 64) VIRTUAL,
    status          TEXT NOT NULL DEFAULT 'PENDING'
                    CONSTRAINT relais_outbox_status
                    CHECK (status IN ('PENDING', 'DISPATCHED', 'FAILED')),
    attempts        INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0 AND attempts < 1000000),
    -- Workers that were lost while the row was in flight.
    lost_workers    INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT
                    CHECK (next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:*Z'),
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    dispatched_at   TEXT,
    category        TEXT NOT NULL DEFAULT 'event' CHECK (category IN ('event', 'command', 'reply')),
    aggregate_type  TEXT NOT NULL,
    aggregate_id    TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    event_version   INTEGER NOT NULL DEFAULT 1,
    job_id          TEXT,
    causation_id    TEXT,
    correlation_id  TEXT,
    -- The adopted table of a copied row, and the primary key of the row there, as text.
    adopted_by      TEXT,
    adopted_key     TEXT,
    error_code      TEXT CHECK (length(error_code) <= 200),
    error_message   TEXT CHECK (length(error_message) <= 2000),
    -- NULL means none.
    headers         TEXT NOT NULL ON CONFLICT REPLACE DEFAULT '{}'
                    CONSTRAINT relais_outbox_headers_are_an_object
                    CHECK (headers = '{}' OR json_valid(headers) AND json_type(headers) = 'object'),
    -- A settlement does not change it, so SQLite does not check it again.
    payload         TEXT NOT NULL CHECK (adopted_by IS NOT NULL OR json_valid(payload)),
    CONSTRAINT relais_outbox_message UNIQUE (message_id, destination)
) STRICT;
INSERT INTO relais_outbox_next (
    id, message_id, destination, msg_key, status, attempts, lost_workers, next_attempt_at, created_at,
    dispatched_at, category, aggregate_type, aggregate_id, event_type, event_version, job_id, causation_id,
    correlation_id, adopted_by, adopted_key, error_code, error_message, headers, payload)
SELECT
    id, message_id, destination, msg_key, status, attempts, lost_workers, next_attempt_at, created_at,
    dispatched_at, category, aggregate_type, aggregate_id, event_type, event_version, job_id, causation_id,
    correlation_id, adopted_by, adopted_key, error_code, error_message, headers, payload
FROM relais_outbox
ORDER BY id;
-- No id is used twice.
DELETE FROM sqlite_sequence WHERE name = 'relais_outbox_next';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'relais_outbox_next', max(seq) FROM sqlite_sequence WHERE name = 'relais_outbox' HAVING max(seq) IS NOT NULL;
DROP TABLE relais_outbox;

CREATE TABLE relais_inbox_next (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id > 0),
    message_id         TEXT NOT NULL CHECK (message_id <> ''),
    source_system      TEXT NOT NULL CHECK (source_system <> ''),
    topic              TEXT NOT NULL,
    partition_num      INTEGER NOT NULL,
    offset_num         INTEGER NOT NULL,
    key_str            TEXT,
    -- Filled by the trigger below when a writer gives none; never NULL once the INSERT is over.
    msg_key            TEXT,
    lane               INTEGER GENERATED ALWAYS AS ((
                           coalesce(unicode(substr(msg_key, -1, 1)), 0)
                           + 7 * coalesce(unicode(substr(msg_key, -2, 1)), 0)
                           + 31 * coalesce(unicode(substr(msg_key, -3, 1)), 0)
                           + 61 * coalesce(unicode(substr(msg_key, -4, 1)), 0)
                           + 13 * coalesce(unicode(substr(msg_key, 1, 1)), 0)
                           + 3 * length(msg_key)) % 64) STORED,
    aggregate_id       TEXT,
    event_type         TEXT,
    payload            TEXT CHECK (adopted_by IS NOT NULL OR json_valid(payload)),
    -- NULL means none.
    headers            TEXT NOT NULL ON CONFLICT REPLACE DEFAULT '{}' CHECK (json_valid(headers))
                       CONSTRAINT relais_inbox_headers_are_an_object
                       CHECK (NOT json_valid(headers) OR json_type(headers) = 'object'),
    raw_payload_base64 TEXT,
    event_ts           TEXT,
    received_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    status             TEXT NOT NULL DEFAULT 'RECEIVED'
                       CONSTRAINT relais_inbox_status
                       CHECK (status IN ('RECEIVED', 'RETRY', 'FAILED', 'PROCESSED', 'SERDE_ERROR')),
    attempts           INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0 AND attempts < 1000000),
    -- Workers that were lost while the row was in flight.
    lost_workers       INTEGER NOT NULL DEFAULT 0,
    next_attempt_at    TEXT
                       CHECK (next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:*Z'),
    processed_at       TEXT,
    error_stage        TEXT CHECK (error_stage IN ('CONSUMER_SERDE', 'BUSINESS')),
    error_code         TEXT CHECK (length(error_code) <= 200),
    error_message      TEXT CHECK (length(error_message) <= 2000),
    -- The name before `::` in source_system; '' is the inbox without a name.
    inbox              TEXT NOT NULL GENERATED ALWAYS AS (
                           substr(source_system, 1, max(instr(source_system, '::') - 1, 0))) STORED,
    -- Since when no live worker knows its event type.
    unknown_since      TEXT,
    -- The adopted table of a copied row, and the primary key of the row there, as text.
    adopted_by         TEXT,
    adopted_key        TEXT,
    CONSTRAINT relais_inbox_dedupe UNIQUE (source_system, message_id),
    CONSTRAINT relais_inbox_payload_or_raw CHECK (payload IS NOT NULL OR raw_payload_base64 IS NOT NULL)
) STRICT;
INSERT INTO relais_inbox_next (
    id, message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, aggregate_id,
    event_type, payload, headers, raw_payload_base64, event_ts, received_at, status, attempts, lost_workers,
    next_attempt_at, processed_at, error_stage, error_code, error_message, unknown_since, adopted_by, adopted_key)
SELECT
    id, message_id, source_system, topic, partition_num, offset_num, key_str, msg_key, aggregate_id,
    event_type, payload, headers, raw_payload_base64, event_ts, received_at, status, attempts, lost_workers,
    next_attempt_at, processed_at, error_stage, error_code, error_message, unknown_since, adopted_by, adopted_key
FROM relais_inbox
ORDER BY id;
-- No id is used twice.
DELETE FROM sqlite_sequence WHERE name = 'relais_inbox_next';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'relais_inbox_next', max(seq) FROM sqlite_sequence WHERE name = 'relais_inbox' HAVING max(seq) IS NOT NULL;
DROP TABLE relais_inbox;

-- Views of a user that read them stay as they are.
PRAGMA legacy_alter_table = ON;
ALTER TABLE relais_outbox_next RENAME TO relais_outbox;
ALTER TABLE relais_inbox_next RENAME TO relais_inbox;
PRAGMA legacy_alter_table = OFF;

CREATE INDEX relais_outbox_destination ON relais_outbox (destination);
CREATE INDEX relais_outbox_cause ON relais_outbox (causation_id) WHERE causation_id IS NOT NULL;
CREATE INDEX relais_outbox_adopted ON relais_outbox (adopted_by, adopted_key) WHERE adopted_by IS NOT NULL;
CREATE TRIGGER relais_outbox_key AFTER INSERT ON relais_outbox
    WHEN NEW.msg_key IS NULL
BEGIN
    UPDATE relais_outbox SET msg_key = NEW.aggregate_id WHERE id = NEW.id;
END;
CREATE INDEX relais_inbox_due ON relais_inbox (next_attempt_at)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL;
CREATE INDEX relais_inbox_fresh ON relais_inbox (id)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL;
CREATE INDEX relais_inbox_held ON relais_inbox (msg_key, id)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL;
CREATE INDEX relais_inbox_trouble ON relais_inbox (status, id)
    WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY');
CREATE INDEX relais_inbox_adopted ON relais_inbox (adopted_by, adopted_key) WHERE adopted_by IS NOT NULL;
-- As in the outbox, the aggregate is the key. Fires only for writers that give none.
CREATE TRIGGER relais_inbox_key AFTER INSERT ON relais_inbox
    WHEN NEW.msg_key IS NULL
BEGIN
    UPDATE relais_inbox SET msg_key = coalesce(NEW.aggregate_id, NEW.key_str, NEW.message_id) WHERE id = NEW.id;
END;
