SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname::text, $1)
