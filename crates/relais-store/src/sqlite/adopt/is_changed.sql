-- As in postgres: compares the copy of a waiting row with what the row sends now.
SELECT payload <> ?2 OR headers <> ?3
       OR (?4 AND CASE WHEN next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN next_attempt_at END IS NOT ?5)
FROM relais_outbox
WHERE id = ?1
