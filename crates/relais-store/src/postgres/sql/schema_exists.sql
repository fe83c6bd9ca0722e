SELECT to_regclass('relais_schema') IS NOT NULL
