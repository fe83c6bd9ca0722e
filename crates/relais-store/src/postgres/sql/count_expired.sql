-- What all passes of clean-up together would remove; reads whole tables, for an operator who asks.
SELECT (SELECT count(*) FROM relais_inbox
        WHERE status = 'PROCESSED' AND processed_at < now() - $1::bigint * INTERVAL '1 second'),
       (SELECT count(*) FROM relais_outbox
        WHERE status = 'DISPATCHED' AND dispatched_at < now() - $2::bigint * INTERVAL '1 second'),
       (SELECT count(*) FROM relais_handled
        WHERE processed_at < now() - $3::bigint * INTERVAL '1 second'),
       (SELECT count(*) FROM relais_dead_letter AS d
        WHERE d.resolved_at < now() - $4::bigint * INTERVAL '1 second'
          AND NOT EXISTS (SELECT FROM relais_parked_key AS k WHERE k.dead_letter_id = d.id)),
       (SELECT count(*) FROM relais_process AS p
        WHERE p.status IN ('SUCCEEDED', 'FAILED', 'COMPENSATED')
          AND p.updated_at < now() - $5::bigint * INTERVAL '1 second'
          AND NOT EXISTS (SELECT FROM relais_dead_letter AS d
                          WHERE d.message_id = p.process_id::text AND d.origin = 'process'
                            AND d.resolved_at IS NULL)),
       (SELECT count(*) FROM relais_version
        WHERE seen_at < now() - $6::bigint * INTERVAL '1 second')
