-- Differs from postgres: times are text that sorts. What all passes of clean-up together would remove; reads
-- whole tables, for an operator who asks.
SELECT (SELECT count(*) FROM relais_inbox
        WHERE status = 'PROCESSED'
          AND processed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?1 || ' seconds')),
       (SELECT count(*) FROM relais_outbox
        WHERE status = 'DISPATCHED'
          AND dispatched_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?2 || ' seconds')),
       (SELECT count(*) FROM relais_handled
        WHERE processed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?3 || ' seconds')),
       (SELECT count(*) FROM relais_dead_letter
        WHERE resolved_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds')),
       (SELECT count(*) FROM relais_process AS p
        WHERE p.status IN ('SUCCEEDED', 'FAILED', 'COMPENSATED')
          AND p.updated_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?5 || ' seconds')
          AND NOT EXISTS (SELECT 1 FROM relais_dead_letter AS d
                          WHERE d.message_id = p.process_id AND d.origin = 'process'
                            AND d.resolved_at IS NULL)),
       (SELECT count(*) FROM relais_version
        WHERE seen_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?6 || ' seconds'))
