//! Every store keeps the whole contract of the seam.

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[path = "fuzz/round_trip.rs"]
mod round_trip;
mod support;

#[cfg(feature = "sqlite")]
mod sqlite {
    relais_store_tests::store_conformance!(crate::support::sqlite::open);
}

#[cfg(feature = "postgres")]
mod postgres {
    relais_store_tests::store_conformance!(crate::support::postgres::open);
}
