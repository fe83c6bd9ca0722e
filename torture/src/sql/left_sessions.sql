SELECT 'session ' || pid || ' ' || coalesce(state, '') || ': ' || left(query, 60)
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND application_name = $1
