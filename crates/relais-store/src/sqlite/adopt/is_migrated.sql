SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'relais_inbox_adopted')
