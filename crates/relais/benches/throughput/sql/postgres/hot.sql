-- The share of updates that left the indexes alone, in percent.
SELECT n_tup_hot_upd * 100.0::double precision / nullif(n_tup_upd, 0)
FROM pg_stat_user_tables
WHERE schemaname = $1 AND relname = 'relais_outbox'
