-- ?1 rows over ?2 keys and ?7 destinations, spread so that neighbours rarely share one.
INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, msg_key, payload,
                           status, attempts, dispatched_at)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
SELECT 'Order', key, 'OrderChanged', CASE WHEN ?7 = 1 THEN ?3 ELSE ?3 || '-' || n % ?7 END, key, ?4, ?5, ?6,
       CASE WHEN ?5 = 'DISPATCHED' THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
FROM (SELECT n, printf('order-%05d', (n * 2654435761 / 128) % ?2) AS key FROM number)
