-- A store with a long history: {rows} rows in each large table, one in ten thousand open and as many in
-- trouble. Something rare of each kind is far back, where only a look through all of it finds it.
WITH n (n) AS MATERIALIZED (SELECT generate_series(1, {rows})),
inbox AS (
    INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key,
                              event_type, payload, received_at, status, attempts, processed_at)
    SELECT 'm-' || n, CASE WHEN n = 7 THEN 'rare' ELSE 'shop' END, 'orders', 0, n, 'order-' || n % 10000,
           CASE WHEN n = 7 THEN 'Rare' ELSE 'OrderChanged' END, '{payload}',
           now() - ({rows} - n) * INTERVAL '1 second',
           CASE WHEN n % 10000 = 1 THEN 'FAILED' WHEN n % 10000 = 2 THEN 'RECEIVED' ELSE 'PROCESSED' END,
           1, now()
    FROM n),
outbox AS (
    INSERT INTO relais_outbox (message_id, aggregate_type, aggregate_id, event_type, payload, destination,
                               msg_key, created_at, status, attempts, dispatched_at, causation_id)
    SELECT gen_random_uuid(), 'Order', n, CASE WHEN n = 7 THEN 'Rare' ELSE 'OrderChanged' END,
           '{payload}', CASE WHEN n = 7 THEN 'rare' ELSE 'crm' END, 'order-' || n % 10000,
           now() - ({rows} - n) * INTERVAL '1 second',
           CASE WHEN n % 10000 = 1 THEN 'FAILED' WHEN n % 10000 = 2 THEN 'PENDING' ELSE 'DISPATCHED' END,
           1, now(), 'm-' || n
    FROM n),
letter AS (
    INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, destination, event_type, msg_key,
                                    payload, failed_status, error_class, attempts, parked_by, parked_at,
                                    resolution, resolved_at)
    SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'outbox', n, 'd-' || n,
           CASE WHEN n = 7 THEN 'rare' ELSE 'crm' END,
           CASE WHEN n = 7 THEN 'Rare' ELSE 'OrderChanged' END, 'order-' || n % 10000, '{payload}',
           'FAILED', 'HTTP_500', 8, 'w', now() - ({rows} - n) * INTERVAL '1 second',
           CASE WHEN n % 10000 <> 1 THEN 'discarded' END, CASE WHEN n % 10000 <> 1 THEN now() END
    FROM n),
process AS (
    INSERT INTO relais_process (process_id, process_type, definition, business_key, status, data, version,
                                created_at)
    SELECT ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid,
           CASE WHEN n = 7 THEN 'rare' ELSE 'order' END, 1, 'order-' || n,
           CASE WHEN n % 10000 = 1 THEN 'FAILED' WHEN n % 10000 = 2 THEN 'RUNNING' ELSE 'SUCCEEDED' END,
           '{}', 1, now() - ({rows} - n) * INTERVAL '1 second'
    FROM n),
log AS (
    INSERT INTO relais_process_log (process_id, seq, event_type, event, message_id)
    SELECT ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid, 1, 'started',
           '{"event":"started"}', 'm-' || n
    FROM n),
attempt AS (
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, worker)
    SELECT 'outbox', n, 1, 'retry', 'w' FROM n),
audit AS (
    INSERT INTO relais_audit (actor, action, target, reason)
    SELECT CASE WHEN n = 7 THEN 'rare' ELSE 'ann' END, 'discard', 'dead-letter:' || n, 'no' FROM n)
INSERT INTO relais_parked_key (origin, destination, msg_key, dead_letter_id)
SELECT 'outbox', 'crm', 'order-' || n, ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid
FROM n
WHERE n < 10000
