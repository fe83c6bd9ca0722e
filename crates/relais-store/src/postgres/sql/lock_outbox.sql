-- As an INSERT does: see mark.rs.
LOCK TABLE relais_outbox IN ROW EXCLUSIVE MODE
