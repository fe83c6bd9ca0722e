-- ?1 rows over ?2 keys, spread so that neighbours rarely share one.
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, msg_key, payload,
                           status, attempts, dispatched_at)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
SELECT 'Order', key, 'OrderChanged', ?3, key, ?4, ?5, ?6,
       CASE WHEN ?5 = 'DISPATCHED' THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
FROM (SELECT printf('order-%05d', (n * 2654435761 / 128) % ?2) AS key FROM number)
