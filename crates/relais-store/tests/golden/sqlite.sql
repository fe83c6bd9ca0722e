CREATE TABLE relais_adopted_change (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    adopted_by  TEXT NOT NULL,
    adopted_key TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('reset', 'unwritten')),
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

CREATE INDEX relais_adopted_change_row ON relais_adopted_change (adopted_by, adopted_key);

CREATE TABLE relais_attempt (
    id            INTEGER PRIMARY KEY,
    origin        TEXT NOT NULL CHECK (origin IN ('inbox', 'outbox')),
    origin_id     INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    at            TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    outcome       TEXT NOT NULL CHECK (outcome IN ('retry', 'failed', 'ignored', 'delivered')),
    error_code    TEXT CHECK (length(error_code) <= 200),
    error_message TEXT CHECK (length(error_message) <= 2000),
    worker        TEXT NOT NULL
) STRICT;

CREATE INDEX relais_attempt_origin ON relais_attempt (origin, origin_id, id);

CREATE TABLE relais_audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX relais_audit_actor ON relais_audit (actor, id);

CREATE INDEX relais_audit_target ON relais_audit (target, id);

CREATE TABLE relais_bulk_job (
    id            TEXT PRIMARY KEY NOT NULL,
    destination   TEXT NOT NULL CHECK (destination <> ''),
    remote_id     TEXT,
    phase         TEXT NOT NULL DEFAULT 'PLANNED'
                  CONSTRAINT relais_bulk_job_phase
                  CHECK (phase IN ('PLANNED', 'CREATING', 'CREATED', 'UPLOADING', 'UPLOADED', 'CLOSING',
                                   'CLOSED', 'FINISHED', 'RECONCILED', 'ABANDONED')),
    row_count     INTEGER NOT NULL,
    owner         TEXT,
    epoch         INTEGER NOT NULL DEFAULT 1,
    lease_until   TEXT,
    created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    finished_at   TEXT,
    error_message TEXT CHECK (length(error_message) <= 2000),
    -- Raised when the job sets rows free and when it ends: what watching workers notice.
    moved         INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT relais_bulk_job_end
    CHECK ((finished_at IS NOT NULL) = (phase IN ('RECONCILED', 'ABANDONED')))
) STRICT;

CREATE INDEX relais_bulk_job_age ON relais_bulk_job (finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX relais_bulk_job_moved ON relais_bulk_job (moved);

CREATE UNIQUE INDEX relais_bulk_job_open ON relais_bulk_job (destination) WHERE finished_at IS NULL;

CREATE TABLE relais_control (
    kind           TEXT NOT NULL CHECK (kind IN ('destination', 'source', 'process_type')),
    name           TEXT NOT NULL CHECK (name <> ''),
    -- Since when it is paused; NULL if it is not.
    paused_at      TEXT,
    paused_by      TEXT,
    paused_reason  TEXT,
    -- Limits until restart: a process obeys those that were changed after it started.
    rate_calls     INTEGER CHECK (rate_calls > 0),
    rate_period_ms INTEGER CHECK (rate_period_ms > 0),
    concurrency    INTEGER CHECK (concurrency > 0),
    limits_changed INTEGER NOT NULL DEFAULT 0,
    breaker_resets INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_credential (
    name        TEXT PRIMARY KEY NOT NULL,
    version     INTEGER NOT NULL DEFAULT 0,
    sealed      TEXT,
    owner       TEXT,
    lease_until TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_dead_letter (
    id            TEXT PRIMARY KEY NOT NULL,
    origin        TEXT NOT NULL CHECK (origin IN ('inbox', 'outbox', 'process')),
    -- A process has none: message_id is its id.
    origin_id     INTEGER CHECK ((origin = 'process') = (origin_id IS NULL)),
    message_id    TEXT NOT NULL,
    source_system TEXT,
    destination   TEXT,
    event_type    TEXT,
    msg_key       TEXT NOT NULL,
    payload       TEXT,
    headers       TEXT NOT NULL DEFAULT '{}',
    failed_status TEXT NOT NULL,
    error_class   TEXT CHECK (length(error_class) <= 200),
    error_message TEXT CHECK (length(error_message) <= 2000),
    attempts      INTEGER NOT NULL DEFAULT 0,
    parked_by     TEXT NOT NULL,
    parked_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- Whether later rows of its key wait for a decision about it.
    parks_key     INTEGER NOT NULL DEFAULT 0 CHECK (parks_key IN (0, 1)),
    -- Before somebody edited it.
    original_payload TEXT,
    edited_by     TEXT,
    edited_at     TEXT,
    resolution    TEXT CHECK (resolution IN
        ('retried', 'discarded', 'resumed', 'skipped', 'compensated', 'cancelled', 'answered')),
    resolved_by   TEXT,
    resolved_at   TEXT,
    reason        TEXT
) STRICT;

CREATE INDEX relais_dead_letter_age ON relais_dead_letter (parked_at, id);

CREATE INDEX relais_dead_letter_failed ON relais_dead_letter (origin, origin_id)
    WHERE resolved_at IS NULL OR resolution = 'discarded';

CREATE INDEX relais_dead_letter_key ON relais_dead_letter (msg_key) WHERE resolved_at IS NULL;

CREATE INDEX relais_dead_letter_message ON relais_dead_letter (message_id);

CREATE INDEX relais_dead_letter_open ON relais_dead_letter (parked_at, id) WHERE resolved_at IS NULL;

CREATE INDEX relais_dead_letter_origin ON relais_dead_letter (origin, origin_id);

CREATE UNIQUE INDEX relais_dead_letter_process ON relais_dead_letter (message_id)
    WHERE origin = 'process' AND resolved_at IS NULL;

CREATE TABLE relais_handled (
    message_id   TEXT NOT NULL CHECK (message_id <> ''),
    handler      TEXT NOT NULL CHECK (handler <> ''),
    processed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (message_id, handler)
) STRICT, WITHOUT ROWID;

CREATE INDEX relais_handled_age ON relais_handled (processed_at);

CREATE TRIGGER relais_inbox_key AFTER INSERT ON relais_inbox
    WHEN NEW.msg_key IS NULL
BEGIN
    UPDATE relais_inbox SET msg_key = coalesce(NEW.aggregate_id, NEW.key_str, NEW.message_id) WHERE id = NEW.id;
END;

CREATE TABLE "relais_inbox" (
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

CREATE INDEX relais_inbox_adopted ON relais_inbox (adopted_by, adopted_key) WHERE adopted_by IS NOT NULL;

CREATE INDEX relais_inbox_due ON relais_inbox (next_attempt_at)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL;

CREATE INDEX relais_inbox_fresh ON relais_inbox (id)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL;

CREATE INDEX relais_inbox_held ON relais_inbox (msg_key, id)
    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL;

CREATE INDEX relais_inbox_trouble ON relais_inbox (status, id)
    WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY');

CREATE TABLE relais_lane (
    scope       TEXT NOT NULL,
    lane        INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 63),
    owner       TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    wanted_type TEXT,
    -- A free lane whose next owner quarantines its first rows.
    unclean     INTEGER NOT NULL DEFAULT 0 CHECK (unclean IN (0, 1)),
    PRIMARY KEY (scope, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_lease (
    worker      TEXT NOT NULL PRIMARY KEY,
    lease_until TEXT NOT NULL,
    -- Rises when the lease had expired before it was renewed: its lanes may have another owner since.
    term        INTEGER NOT NULL,
    -- Counts announced and left scopes, and lanes that were handed over; what other workers notice.
    moves       INTEGER NOT NULL DEFAULT 0,
    handed_over INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TRIGGER relais_outbox_key AFTER INSERT ON relais_outbox
    WHEN NEW.msg_key IS NULL
BEGIN
    UPDATE relais_outbox SET msg_key = NEW.aggregate_id WHERE id = NEW.id;
END;

CREATE TABLE "relais_outbox" (
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

CREATE INDEX relais_outbox_adopted ON relais_outbox (adopted_by, adopted_key) WHERE adopted_by IS NOT NULL;

CREATE INDEX relais_outbox_cause ON relais_outbox (causation_id) WHERE causation_id IS NOT NULL;

CREATE INDEX relais_outbox_destination ON relais_outbox (destination);

CREATE TABLE relais_outbox_position (
    destination TEXT PRIMARY KEY NOT NULL,
    position    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_parked_key (
    origin         TEXT NOT NULL CHECK (origin IN ('inbox', 'outbox')),
    destination    TEXT NOT NULL DEFAULT '',
    msg_key        TEXT NOT NULL,
    dead_letter_id TEXT NOT NULL REFERENCES relais_dead_letter (id),
    parked_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (origin, destination, msg_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX relais_parked_key_age ON relais_parked_key (parked_at);

CREATE INDEX relais_parked_key_dead_letter ON relais_parked_key (dead_letter_id);

CREATE TABLE relais_process (
    process_id   TEXT PRIMARY KEY NOT NULL,
    process_type TEXT NOT NULL CHECK (process_type <> ''),
    definition   INTEGER NOT NULL,
    business_key TEXT,
    status       TEXT NOT NULL
                 CHECK (status IN ('NEW', 'RUNNING', 'SUCCEEDED', 'FAILED', 'COMPENSATING', 'COMPENSATED',
                                   'PAUSED')),
    current_step TEXT,
    data         TEXT NOT NULL,
    retries      INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),
    progress     TEXT NOT NULL DEFAULT '{}',
    version      INTEGER NOT NULL,
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), key_hold TEXT NOT NULL DEFAULT 'ONCE'
    CHECK (key_hold IN ('ONCE', 'OPEN', 'RELEASED')), released_key TEXT,
    CONSTRAINT relais_process_key UNIQUE (business_key, process_type)
) STRICT;

CREATE INDEX relais_process_age ON relais_process (created_at, process_id);

CREATE INDEX relais_process_released_key
    ON relais_process (released_key, process_type, created_at, process_id)
    WHERE released_key IS NOT NULL;

CREATE INDEX relais_process_state ON relais_process (status, created_at, process_id)
    WHERE status <> 'SUCCEEDED';

CREATE INDEX relais_process_type ON relais_process (process_type, created_at, process_id);

CREATE TABLE relais_process_log (
    process_id TEXT NOT NULL REFERENCES relais_process (process_id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    event_type TEXT NOT NULL,
    event      TEXT NOT NULL,
    message_id TEXT,
    PRIMARY KEY (process_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX relais_process_log_message ON relais_process_log (message_id) WHERE message_id IS NOT NULL;

CREATE TABLE relais_report (
    worker      TEXT PRIMARY KEY NOT NULL,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT NOT NULL,
    started_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    reported_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    figures     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_schema (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    needs      INTEGER NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT
;

CREATE TABLE relais_source_position (
    source        TEXT NOT NULL,
    partition_key TEXT NOT NULL,
    position      INTEGER NOT NULL,
    updated_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (source, partition_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE relais_timer (
    process_id TEXT PRIMARY KEY NOT NULL REFERENCES relais_process (process_id) ON DELETE CASCADE,
    step       TEXT NOT NULL,
    command_id TEXT NOT NULL,
    -- How long it waits; counted from when its command has left.
    after_ms   INTEGER NOT NULL,
    due_at     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX relais_timer_due ON relais_timer (due_at);

CREATE TABLE relais_version (
    aggregate_type TEXT NOT NULL,
    aggregate_id   TEXT NOT NULL,
    version        INTEGER NOT NULL, seen_at TEXT,
    PRIMARY KEY (aggregate_type, aggregate_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX relais_version_age ON relais_version (seen_at);

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

CREATE INDEX relais_waiting_job ON relais_waiting (job_id) WHERE job_id IS NOT NULL;

CREATE INDEX relais_waiting_key ON relais_waiting (destination, msg_key);

CREATE TABLE relais_worker (
    scope      TEXT NOT NULL,
    worker     TEXT NOT NULL,
    event_types TEXT,
    PRIMARY KEY (scope, worker)
) STRICT, WITHOUT ROWID;
