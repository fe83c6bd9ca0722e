-- As an INSERT does: see low_water_mark.rs.
LOCK TABLE relais_inbox IN ROW EXCLUSIVE MODE
