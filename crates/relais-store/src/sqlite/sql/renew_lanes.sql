-- Differs from postgres: times are text; durations come in as milliseconds.
-- A lane that ran out but was not taken is still ours, in the same epoch.
UPDATE relais_lane SET lease_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?3 / 1000.0) || ' seconds')
WHERE scope = ?1 AND owner = ?2
RETURNING lane, epoch
