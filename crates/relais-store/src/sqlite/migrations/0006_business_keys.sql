-- A business key can be used again after its process ended, if its definition says so.

-- ONCE: the process keeps its key. OPEN: until it ends. RELEASED: it has ended; the key is in released_key and
-- business_key is NULL, so that another process can have it.
ALTER TABLE relais_process ADD COLUMN key_hold TEXT NOT NULL DEFAULT 'ONCE'
    CHECK (key_hold IN ('ONCE', 'OPEN', 'RELEASED'));
ALTER TABLE relais_process ADD COLUMN released_key TEXT;
CREATE INDEX relais_process_released_key
    ON relais_process (released_key, process_type, created_at, process_id)
    WHERE released_key IS NOT NULL;
