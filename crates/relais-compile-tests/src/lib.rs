//! What the compiler says about mistakes that users of relais make. Everything is in `tests`.
