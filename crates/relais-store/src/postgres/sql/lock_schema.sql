-- One migrator at a time in this schema; released with the transaction, however it ends. The waits
-- here may be as long as another node's migration.
SELECT set_config('statement_timeout', '0', TRUE), set_config('lock_timeout', $1, TRUE),
       pg_advisory_xact_lock(hashtext('relais.migrate'), hashtext(current_schema()))
