//! Compiler messages for mistakes that users of relais make. Everything is in `tests`.
