CREATE TABLE shop_order (msg_key text, number integer, PRIMARY KEY (msg_key, number));

-- What must not happen: a change to a row that has come to its end.
CREATE TABLE rewritten (what text NOT NULL);
CREATE FUNCTION note_rewritten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rewritten VALUES (TG_TABLE_NAME || ' ' || old.id);
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_rewritten AFTER UPDATE ON relais_outbox
    FOR EACH ROW WHEN (old.status = 'DISPATCHED') EXECUTE FUNCTION note_rewritten();
CREATE TRIGGER inbox_rewritten AFTER UPDATE ON relais_inbox
    FOR EACH ROW WHEN (old.status = 'PROCESSED') EXECUTE FUNCTION note_rewritten();

-- Claims of a row, if more than one: the row may be deleted when the checker runs.
CREATE TABLE takeover (scope text, lane integer, at timestamptz DEFAULT clock_timestamp());
CREATE INDEX takeover_lane ON takeover (scope, lane, at);
CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO takeover (scope, lane) VALUES (new.scope, new.lane);
    RETURN NULL;
END $$;
CREATE TRIGGER lane_taken AFTER UPDATE ON relais_lane
    FOR EACH ROW WHEN (old.epoch <> new.epoch) EXECUTE FUNCTION note_takeover();
CREATE TABLE claim (message_id text, claims integer);
-- Calls that failed, whether they used an attempt or not.
CREATE TABLE failed_call (outbox_id bigint);
CREATE INDEX failed_call_outbox_id ON failed_call (outbox_id);
CREATE FUNCTION note_failed_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO failed_call VALUES (new.id);
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_failed_calls AFTER UPDATE ON relais_outbox
    FOR EACH ROW WHEN (new.status = 'PENDING' AND new.error_code IS NOT NULL
                       AND new.next_attempt_at IS DISTINCT FROM old.next_attempt_at)
    EXECUTE FUNCTION note_failed_call();
CREATE FUNCTION note_claims() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owners integer := (SELECT count(*) FROM takeover
                       WHERE scope = 'outbox:' || new.destination AND lane = (hashtext(coalesce(new.msg_key, new.aggregate_id)) & 63)
                         AND at >= new.created_at);
    failed integer := (SELECT count(*) FROM failed_call WHERE outbox_id = new.id);
BEGIN
    IF failed + owners > 0 THEN
        INSERT INTO claim VALUES (new.message_id::text, 1 + failed + owners);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_claims AFTER UPDATE ON relais_outbox
    FOR EACH ROW WHEN (old.status <> 'DISPATCHED' AND new.status = 'DISPATCHED')
    EXECUTE FUNCTION note_claims();
