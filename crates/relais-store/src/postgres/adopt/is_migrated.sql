SELECT to_regclass('relais_adopted_change') IS NOT NULL
