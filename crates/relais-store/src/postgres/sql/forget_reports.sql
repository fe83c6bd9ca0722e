DELETE FROM relais_report WHERE reported_at < clock_timestamp() - $1::bigint * INTERVAL '1 millisecond'
