-- As in postgres, with times as text that sorts.
WITH few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'RECEIVED'
           AND (SELECT count(*) <= ?3 FROM (
                    SELECT 1 FROM relais_inbox INDEXED BY relais_inbox_fresh
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
                    LIMIT ?3 + 1))
           AND (SELECT count(*) <= ?3 FROM (
                    SELECT 1 FROM relais_inbox INDEXED BY relais_inbox_due
                    WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL
                    LIMIT ?3 + 1))),
last (id) AS (
    SELECT id FROM (
        SELECT id FROM relais_inbox INDEXED BY relais_inbox_trouble
        WHERE ?1 IN ('FAILED', 'SERDE_ERROR', 'RETRY')
          AND status IN ('FAILED', 'SERDE_ERROR', 'RETRY') AND status = ?1
          AND id < coalesce(?2, 9223372036854775807)
        ORDER BY id DESC
        LIMIT 1 OFFSET ?3 - 1)
    UNION ALL
    SELECT id FROM (
        SELECT id FROM relais_inbox
        WHERE (?1 IS NULL OR ?1 NOT IN ('FAILED', 'SERDE_ERROR', 'RETRY'))
          AND id < coalesce(?2, 9223372036854775807)
        ORDER BY id DESC
        LIMIT iif((SELECT yes FROM few), 0, 1) OFFSET ?3 - 1))
SELECT id, ?4 IS NULL OR received_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds')
FROM relais_inbox
WHERE id = (SELECT id FROM last)
