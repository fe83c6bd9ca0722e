-- They stay among the rows that wait for a time: below the low-water mark no fresh row may appear.
UPDATE relais_inbox SET next_attempt_at = clock_timestamp()
WHERE id IN (SELECT w.id FROM relais_inbox AS w
             WHERE w.status IN ('RECEIVED', 'RETRY') AND w.next_attempt_at IS NOT NULL
               AND w.error_code = $1
             ORDER BY w.next_attempt_at
             LIMIT $2)
