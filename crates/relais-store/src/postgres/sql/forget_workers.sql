-- Workers that have been gone for a day no longer interest anybody.
DELETE FROM relais_worker WHERE scope = $1 AND seen_until < clock_timestamp() - INTERVAL '1 day'
