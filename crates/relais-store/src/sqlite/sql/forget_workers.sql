-- Differs from postgres: the lanes are freed and the announcements removed just before, under the same write
-- lock; times are text that sorts.
DELETE FROM relais_lease WHERE lease_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -3600 || ' seconds')
