-- As an INSERT does: see mark.rs.
LOCK TABLE relais_inbox IN ROW EXCLUSIVE MODE
