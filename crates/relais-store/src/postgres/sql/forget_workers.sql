-- Removes workers that were lost a day ago.
DELETE FROM relais_worker WHERE scope = $1 AND seen_until < clock_timestamp() - INTERVAL '1 day'
