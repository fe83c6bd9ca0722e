-- As in postgres, with times as text that sorts.
WITH few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'PENDING'
           AND (SELECT count(*) <= ?3 FROM (
                    SELECT 1 FROM relais_outbox INDEXED BY relais_outbox_fresh
                    WHERE status = 'PENDING' AND next_attempt_at IS NULL
                    LIMIT ?3 + 1))
           AND (SELECT count(*) <= ?3 FROM (
                    SELECT 1 FROM relais_outbox INDEXED BY relais_outbox_due
                    WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
                    LIMIT ?3 + 1))),
last (id) AS (
    SELECT id FROM (
        SELECT id FROM relais_outbox INDEXED BY relais_outbox_failed
        WHERE ?1 IS 'FAILED' AND status = 'FAILED'
          AND id < coalesce(?2, 9223372036854775807)
        ORDER BY id DESC
        LIMIT 1 OFFSET ?3 - 1)
    UNION ALL
    SELECT id FROM (
        SELECT id FROM relais_outbox
        WHERE ?1 IS NOT 'FAILED'
          AND id < coalesce(?2, 9223372036854775807)
        ORDER BY id DESC
        LIMIT iif((SELECT yes FROM few), 0, 1) OFFSET ?3 - 1))
SELECT id, ?4 IS NULL OR created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds')
FROM relais_outbox
WHERE id = (SELECT id FROM last)
