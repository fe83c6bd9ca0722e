-- What this role may not do although relais must: what `roles.sql` grants runtime, no more and no less.
-- The audit is only ever added to. Tables that are not there are not asked about. Names are quoted as needed.
SELECT format('%I.%I', s.nspname, n.name), string_agg(p.privilege, ', ' ORDER BY p.at), quote_ident(current_user)
FROM (VALUES ('relais_schema', 'SELECT'),
             ('relais_inbox', 'SELECT INSERT UPDATE DELETE'),
             ('relais_outbox', 'SELECT INSERT UPDATE DELETE'),
             ('relais_waiting', 'SELECT INSERT UPDATE DELETE'),
             ('relais_outbox_position', 'SELECT INSERT UPDATE'),
             ('relais_pending', 'SELECT'),
             ('relais_sent', 'SELECT'),
             ('relais_handled', 'SELECT INSERT DELETE'),
             ('relais_version', 'SELECT INSERT UPDATE DELETE'),
             ('relais_dead_letter', 'SELECT INSERT UPDATE DELETE'),
             ('relais_parked_key', 'SELECT INSERT UPDATE DELETE'),
             ('relais_control', 'SELECT INSERT UPDATE'),
             ('relais_lane', 'SELECT INSERT UPDATE'),
             ('relais_lease', 'SELECT INSERT UPDATE DELETE'),
             ('relais_report', 'SELECT INSERT UPDATE DELETE'),
             ('relais_worker', 'SELECT INSERT UPDATE DELETE'),
             ('relais_bulk_job', 'SELECT INSERT UPDATE DELETE'),
             ('relais_credential', 'SELECT INSERT UPDATE'),
             ('relais_process', 'SELECT INSERT UPDATE DELETE'),
             ('relais_process_log', 'SELECT INSERT DELETE'),
             ('relais_timer', 'SELECT INSERT UPDATE DELETE'),
             ('relais_attempt', 'SELECT INSERT DELETE'),
             ('relais_source_position', 'SELECT INSERT UPDATE'),
             ('relais_adopted_change', 'SELECT INSERT UPDATE DELETE'),
             ('relais_audit', 'SELECT INSERT'),
             ('relais_inbox_id_seq', 'SELECT'),
             ('relais_outbox_id_seq', 'SELECT'),
             ('relais_audit_id_seq', 'SELECT'),
             ('relais_bulk_job_moved_seq', 'SELECT')) AS n (name, needed)
JOIN pg_class AS c ON c.oid = to_regclass(n.name)
JOIN pg_namespace AS s ON s.oid = c.relnamespace
CROSS JOIN LATERAL regexp_split_to_table(n.needed, ' ') WITH ORDINALITY AS p (privilege, at)
WHERE NOT has_table_privilege(c.oid, p.privilege)
GROUP BY s.nspname, n.name
ORDER BY n.name
