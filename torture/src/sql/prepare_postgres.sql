CREATE TABLE shop_order (name text PRIMARY KEY);
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
