DELETE FROM relais_report WHERE worker = $1
