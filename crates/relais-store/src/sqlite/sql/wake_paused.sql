-- Differs from postgres: times are text that sorts.
UPDATE relais_inbox SET next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id IN (SELECT w.id FROM relais_inbox AS w
             WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
               AND w.error_code = ?1
             ORDER BY w.next_attempt_at
             LIMIT ?2)
