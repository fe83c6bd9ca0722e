-- Differs from postgres: the states of the partial index are named, because SQLite uses it only then.
SELECT id
FROM relais_inbox
WHERE status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND status = 'SERDE_ERROR' AND id > ?1
  AND (?2 IS NULL OR source_system = ?2)
  AND (?3 IS NULL OR error_code = ?3)
  AND (?4 IS NULL OR msg_key = ?4)
  AND (?5 IS NULL OR received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds'))
ORDER BY id
LIMIT ?6
