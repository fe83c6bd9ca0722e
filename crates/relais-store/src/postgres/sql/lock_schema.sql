-- One migrator at a time in this schema; released with the transaction, however it ends.
SELECT pg_advisory_xact_lock(hashtext('relais.migrate'), hashtext(current_schema()))
