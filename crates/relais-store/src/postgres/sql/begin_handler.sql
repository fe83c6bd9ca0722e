-- Whatever the default of the database or role: each statement sees what was committed before it. Under
-- a stricter level the mark of a slow handler fails, because its lane was renewed meanwhile.
BEGIN ISOLATION LEVEL READ COMMITTED
