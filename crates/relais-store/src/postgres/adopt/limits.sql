-- The UPDATE of relais is no reset by the application; it waits for no lock for long.
SELECT set_config('lock_timeout', $1, true), set_config('relais.write_back', 'on', true)
