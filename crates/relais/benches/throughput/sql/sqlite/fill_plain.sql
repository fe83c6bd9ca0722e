-- The same rows for the raw limit; a UUID's worth of text as the message id.
INSERT INTO plain_relay (message_id, category, aggregate_type, aggregate_id, event_type,
                         event_version, payload, headers, destination, msg_key)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
SELECT hex(randomblob(18)), 'event', 'Order', key, 'OrderChanged', 1, ?4, '{}', ?3, key
FROM (SELECT printf('order-%05d', (n * 2654435761 / 128) % ?2) AS key FROM number)
