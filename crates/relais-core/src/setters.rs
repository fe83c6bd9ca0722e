//! Methods that set one field and return the settings, for structs that are `#[non_exhaustive]`.

/// Implements a method for each field: `settings.timeout(…)`. The type of an optional field is written
/// as `?T`; its method takes a `T` or an `Option<T>`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($name:ident { $($(#[$doc:meta])* $field:ident : $(? $optional:ty)? $(= $plain:ty)?),* $(,)? }) => {
        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(
                    mut self,
                    $field: $(impl Into<Option<$optional>>)? $($plain)?,
                ) -> Self {
                    self.$field = $crate::setters!(@value $field $(? $optional)?);
                    self
                }
            )*
        }
    };
    (@value $field:ident ? $optional:ty) => { $field.into() };
    (@value $field:ident) => { $field };
}
