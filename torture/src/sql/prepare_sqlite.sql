CREATE TABLE shop_order (msg_key TEXT, number INTEGER, PRIMARY KEY (msg_key, number)) WITHOUT ROWID;

-- What must not happen: a change to a row that has come to its end.
CREATE TABLE rewritten (what TEXT NOT NULL);
CREATE TRIGGER outbox_rewritten AFTER UPDATE ON relais_outbox WHEN old.status = 'DISPATCHED'
BEGIN
    INSERT INTO rewritten VALUES ('outbox ' || old.id);
END;
CREATE TRIGGER inbox_rewritten AFTER UPDATE ON relais_inbox WHEN old.status = 'PROCESSED'
BEGIN
    INSERT INTO rewritten VALUES ('inbox ' || old.id);
END;

-- Claims of a row, if more than one: the row may be deleted when the checker runs.
CREATE TABLE takeover (
    scope TEXT, lane INTEGER, at TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')));
CREATE INDEX takeover_lane ON takeover (scope, lane, at);
CREATE TRIGGER lane_taken AFTER UPDATE ON relais_lane WHEN old.epoch <> new.epoch
BEGIN
    INSERT INTO takeover (scope, lane) VALUES (new.scope, new.lane);
END;
CREATE TABLE claim (message_id TEXT, claims INTEGER);
-- Calls that failed, whether they used an attempt or not.
CREATE TABLE failed_call (outbox_id INTEGER);
CREATE INDEX failed_call_outbox_id ON failed_call (outbox_id);
CREATE TRIGGER outbox_failed_calls AFTER UPDATE ON relais_outbox
    WHEN new.status = 'PENDING' AND new.error_code IS NOT NULL
         AND new.next_attempt_at IS NOT old.next_attempt_at
BEGIN
    INSERT INTO failed_call VALUES (new.id);
END;
CREATE TRIGGER outbox_claims AFTER UPDATE ON relais_outbox
    WHEN old.status <> 'DISPATCHED' AND new.status = 'DISPATCHED'
BEGIN
    INSERT INTO claim
    SELECT new.message_id, 1 + failed + owners
    FROM (SELECT count(*) AS owners FROM takeover
          WHERE scope = 'outbox:' || new.destination AND lane = new.lane AND at >= new.created_at),
         (SELECT count(*) AS failed FROM failed_call WHERE outbox_id = new.id)
    WHERE failed + owners > 0;
END;
