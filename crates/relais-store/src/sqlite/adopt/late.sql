-- As in postgres.
SELECT count(*) FROM relais_adopted_change
WHERE adopted_by = ?1 AND kind = 'unwritten'
  AND created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 minute')
