CREATE TABLE shop_order (name TEXT PRIMARY KEY);
CREATE TABLE rewritten (what TEXT NOT NULL);
CREATE TRIGGER outbox_rewritten AFTER UPDATE ON relais_outbox WHEN old.status = 'DISPATCHED'
BEGIN
    INSERT INTO rewritten VALUES ('outbox ' || old.id);
END;
CREATE TRIGGER inbox_rewritten AFTER UPDATE ON relais_inbox WHEN old.status = 'PROCESSED'
BEGIN
    INSERT INTO rewritten VALUES ('inbox ' || old.id);
END;
