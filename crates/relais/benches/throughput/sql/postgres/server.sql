-- The server's position in its WAL, its next transaction, and the process of this session.
SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       pg_backend_pid()
