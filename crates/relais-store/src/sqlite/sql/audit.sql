-- As in postgres.
INSERT INTO relais_audit (actor, action, target, reason) VALUES (?1, ?2, ?3, ?4)
