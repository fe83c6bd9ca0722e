CREATE TABLE members (
    id TEXT PRIMARY KEY,
    first_name TEXT,
    last_name TEXT NOT NULL,
    email TEXT,
    family TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 7
);
CREATE TABLE blocks (id TEXT PRIMARY KEY, family TEXT NOT NULL);
