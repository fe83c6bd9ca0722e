-- As in postgres, a statement for each table.
CREATE TEMP TABLE n (n INTEGER PRIMARY KEY);
WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows})
INSERT INTO n SELECT n FROM c;
INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, event_type,
                          payload, received_at, status, attempts, processed_at)
SELECT 'm-' || n, iif(n = 7, 'rare', 'shop'), 'orders', 0, n, 'order-' || n % 10000,
       iif(n = 7, 'Rare', 'OrderChanged'), '{payload}',
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (n - {rows}) || ' seconds'),
       CASE n % 10000 WHEN 1 THEN 'FAILED' WHEN 2 THEN 'RECEIVED' ELSE 'PROCESSED' END,
       1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM n;
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, payload, destination, msg_key, created_at,
                           status, attempts, dispatched_at, causation_id)
SELECT 'Order', n, iif(n = 7, 'Rare', 'OrderChanged'), '{payload}', iif(n = 7, 'rare', 'crm'),
       'order-' || n % 10000, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (n - {rows}) || ' seconds'),
       CASE n % 10000 WHEN 1 THEN 'FAILED' WHEN 2 THEN 'PENDING' ELSE 'DISPATCHED' END,
       1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'm-' || n
FROM n;
INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, destination, event_type, msg_key, payload,
                                failed_status, error_class, attempts, parked_by, parked_at, resolution,
                                resolved_at)
SELECT printf('00000000-0000-4000-8000-%012d', n), 'outbox', n, 'd-' || n, iif(n = 7, 'rare', 'crm'),
       iif(n = 7, 'Rare', 'OrderChanged'), 'order-' || n % 10000, '{payload}', 'FAILED', 'HTTP_500', 8, 'w',
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (n - {rows}) || ' seconds'),
       iif(n % 10000 = 1, NULL, 'discarded'),
       iif(n % 10000 = 1, NULL, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
FROM n;
INSERT INTO relais_process (process_id, process_type, definition, business_key, status, data, version,
                            created_at)
SELECT printf('00000000-0000-4000-9000-%012d', n), iif(n = 7, 'rare', 'order'), 1, 'order-' || n,
       CASE n % 10000 WHEN 1 THEN 'FAILED' WHEN 2 THEN 'RUNNING' ELSE 'SUCCEEDED' END, '{}', 1,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (n - {rows}) || ' seconds')
FROM n;
INSERT INTO relais_process_log (process_id, seq, event_type, event, message_id)
SELECT printf('00000000-0000-4000-9000-%012d', n), 1, 'started', '{"event":"started"}', 'm-' || n FROM n;
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, worker)
SELECT 'outbox', n, 1, 'retry', 'w' FROM n;
INSERT INTO relais_audit (actor, action, target, reason)
SELECT iif(n = 7, 'rare', 'ann'), 'discard', 'dead-letter:' || n, 'no' FROM n;
INSERT INTO relais_parked_key (origin, destination, msg_key, dead_letter_id)
SELECT 'outbox', 'crm', 'order-' || n, printf('00000000-0000-4000-8000-%012d', n) FROM n WHERE n < 10000;
DROP TABLE n;
