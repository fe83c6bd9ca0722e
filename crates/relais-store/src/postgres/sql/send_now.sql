-- An operator ends the backoff of a row. It is locked in the order of a settlement, so that one of the two comes
-- first; of a row that was settled meanwhile the time is compared again. Attempts stay. Rows in quarantine ($2 lost
-- workers or more) and rows of a parked key would not be sent.
WITH held AS MATERIALIZED (
    SELECT o.id, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key
    FROM relais_outbox AS o
    WHERE o.id = $1 AND o.status = 'PENDING' AND o.lost_workers < $2::smallint
    FOR UPDATE),
due AS (
    UPDATE relais_waiting AS w SET due_at = clock_timestamp()
    FROM held
    WHERE w.id = held.id AND w.holds_key AND w.job_id IS NULL AND w.due_at > clock_timestamp()
      AND (SELECT p.key_hash
           FROM relais_parked_key AS p
           WHERE p.origin = 'outbox' AND p.destination = held.destination AND p.key_hash = md5(held.msg_key)
           LIMIT 1) IS NULL
    RETURNING w.id)
UPDATE relais_outbox AS o SET next_attempt_at = clock_timestamp()
FROM due
WHERE o.id = due.id
