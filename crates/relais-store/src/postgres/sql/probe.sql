-- Whether the session began with our options, and where its names lead.
SELECT current_setting('relais.started', TRUE), current_schema(), quote_ident(current_user)
