-- Everything the promises depend on, as this session sees it.
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
       current_setting('server_encoding'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('synchronous_commit'),
       pg_is_in_recovery(), current_setting('transaction_read_only'), current_user::text,
       coalesce(current_schema()::text, ''),
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), FALSE)
