-- The oldest open inbox row is the one with the lowest id: reception order, without a sort.
SELECT clock_timestamp(),
       (SELECT coalesce(max(version), 0)::bigint FROM relais_schema),
       (SELECT count(*) FROM relais_dead_letter WHERE resolved_at IS NULL),
       (SELECT count(*) FROM relais_parked_key),
       (SELECT count(*) FROM relais_timer WHERE due_at <= now()),
       least((SELECT received_at FROM relais_inbox
              WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NULL
              ORDER BY id + 0 LIMIT 1),
             (SELECT min(received_at) FROM relais_inbox
              WHERE status IN ('RECEIVED', 'RETRY') AND next_attempt_at IS NOT NULL))
