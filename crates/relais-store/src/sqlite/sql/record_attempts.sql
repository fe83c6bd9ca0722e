-- Differs from postgres: one row a statement; the row was settled just before.
INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
