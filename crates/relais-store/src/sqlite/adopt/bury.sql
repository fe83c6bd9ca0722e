-- Failed rows of :table, into its table of dead letters. A row that the application has changed meanwhile stays: it
-- is sent again. Differs from postgres: remove_buried.sql removes them from :table.
INSERT INTO :dead_letters (id, original_message_id, type, content, error, retry_count, created_at,
                           dead_lettered_at)
SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
             || substr('89AB', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
       t.:id, t.:event_type, t.:payload_column, substr(o.error_message, 1, :error_max), o.attempts, t.:created_at,
       strftime('%Y-%m-%d %H:%M:%f', 'now')
FROM relais_outbox AS o
JOIN :table AS t ON t.:id = o.adopted_key
WHERE o.id IN (SELECT value FROM json_each(?1)) AND +o.adopted_by = ?2 AND o.status = 'FAILED'
  AND NOT EXISTS (SELECT 1 FROM relais_adopted_change AS c
                  WHERE c.adopted_by = ?2 AND c.adopted_key = o.adopted_key AND c.kind = 'reset')
