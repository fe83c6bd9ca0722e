-- An outbox without an index or a trigger on a column that a settlement changes. Rows that wait are also in a
-- table of their own; each destination has a position up to which no row is fresh.
-- Differs from postgres: SQLite cannot drop a CHECK, so the table is written again. Its columns are in
-- another order: a read of a small column does not have to walk over a large payload.

CREATE TABLE relais_outbox_lean (
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
    headers         TEXT NOT NULL DEFAULT '{}'
                    CONSTRAINT relais_outbox_headers_are_an_object
                    CHECK (headers = '{}' OR json_valid(headers) AND json_type(headers) = 'object'),
    -- A settlement does not change it, so SQLite does not check it again.
    payload         TEXT NOT NULL CHECK (json_valid(payload)),
    CONSTRAINT relais_outbox_message UNIQUE (message_id, destination)
) STRICT;

-- Rows that wait: for a time, in a bulk job, or behind another row or a parked key. A pending row that is here
-- stays here until it is settled.
CREATE TABLE relais_waiting (
    -- The id of the outbox row.
    id          INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    msg_key     TEXT NOT NULL,
    -- When it can be sent; NULL behind an obstacle, and in a bulk job.
    due_at      TEXT,
    -- Whether later rows of its key wait for it. They do not wait for a row that was sent with a delay.
    holds_key   INTEGER NOT NULL CHECK (holds_key IN (0, 1)),
    job_id      TEXT
) STRICT;
CREATE INDEX relais_waiting_due ON relais_waiting (destination, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX relais_waiting_key ON relais_waiting (destination, msg_key);
CREATE INDEX relais_waiting_job ON relais_waiting (job_id) WHERE job_id IS NOT NULL;

-- The id up to which a destination has no fresh row: none that is pending and not in relais_waiting.
CREATE TABLE relais_outbox_position (
    destination TEXT PRIMARY KEY NOT NULL,
    position    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO relais_outbox_lean (
    id, message_id, destination, msg_key, status, attempts, lost_workers, next_attempt_at, created_at,
    dispatched_at, category, aggregate_type, aggregate_id, event_type, event_version, job_id, causation_id,
    correlation_id, adopted_by, adopted_key, error_code, error_message, headers, payload)
SELECT id, message_id, destination, coalesce(msg_key, aggregate_id), status, attempts, lost_workers,
       next_attempt_at, created_at, dispatched_at, category, aggregate_type, aggregate_id, event_type,
       event_version, job_id, causation_id, correlation_id, adopted_by, adopted_key, error_code, error_message,
       headers, payload
FROM relais_outbox
ORDER BY id;
-- No id is used twice.
DELETE FROM sqlite_sequence WHERE name = 'relais_outbox_lean';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'relais_outbox_lean', max(seq) FROM sqlite_sequence WHERE name = 'relais_outbox' HAVING max(seq) IS NOT NULL;

INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key, job_id)
SELECT o.id, o.destination, o.msg_key,
       CASE WHEN o.job_id IS NULL THEN o.next_attempt_at
            WHEN j.id IS NULL THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
       o.attempts > 0 OR o.job_id IS NOT NULL OR o.error_code IS NOT NULL,
       j.id
FROM relais_outbox_lean AS o
LEFT JOIN relais_bulk_job AS j ON j.id = o.job_id AND j.finished_at IS NULL
WHERE o.status = 'PENDING' AND o.next_attempt_at IS NOT NULL;
INSERT INTO relais_outbox_position (destination, position)
SELECT destination,
       coalesce(min(CASE WHEN status = 'PENDING' AND next_attempt_at IS NULL THEN id END) - 1, max(id))
FROM relais_outbox_lean
GROUP BY destination;

DROP TABLE relais_outbox;
-- Views of a user that read relais_outbox stay as they are.
PRAGMA legacy_alter_table = ON;
ALTER TABLE relais_outbox_lean RENAME TO relais_outbox;
PRAGMA legacy_alter_table = OFF;
-- Of each destination in the order of the ids, which SQLite adds to each entry.
CREATE INDEX relais_outbox_destination ON relais_outbox (destination);
-- What a message caused.
CREATE INDEX relais_outbox_cause ON relais_outbox (causation_id) WHERE causation_id IS NOT NULL;
-- Dead letters whose outbox row is FAILED.
CREATE INDEX relais_dead_letter_failed ON relais_dead_letter (origin, origin_id)
    WHERE resolved_at IS NULL OR resolution = 'discarded';
-- The ordering key defaults to the aggregate. Fires only for writers that give none.
CREATE TRIGGER relais_outbox_key AFTER INSERT ON relais_outbox
    WHEN NEW.msg_key IS NULL
BEGIN
    UPDATE relais_outbox SET msg_key = NEW.aggregate_id WHERE id = NEW.id;
END;
