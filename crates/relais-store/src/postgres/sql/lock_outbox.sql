-- As an INSERT does: see low_water_mark.rs.
LOCK TABLE relais_outbox IN ROW EXCLUSIVE MODE
