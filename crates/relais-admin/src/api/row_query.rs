//! The query parameters that lists of rows share.

/// Declares the query of a list, with the type of its row ids and the filters by text that it has besides
/// `type`. Other parameters are refused.
macro_rules! row_query {
    ($name:ident, $id:ty, [$($field:ident),*]) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            status: Option<String>,
            r#type: Option<$crate::input::FilterText>,
            $($field: Option<$crate::input::FilterText>,)*
            #[serde(default)]
            since_seconds: $crate::input::Since,
            before: Option<$id>,
            #[serde(default)]
            limit: $crate::input::Limit,
        }

        impl $name {
            /// Returns the filter; `statuses` are the states that rows can have.
            fn filter(
                self,
                statuses: &[&str],
            ) -> Result<relais_core::query::Filter, $crate::problem::ApiProblem> {
                let mut filter = relais_core::query::Filter {
                    status: $crate::input::known("status", self.status, statuses)?,
                    event_type: self.r#type.map(String::from),
                    since_seconds: self.since_seconds.get()?,
                    before: self.before.map(|id| id.to_string()),
                    limit: self.limit.get()?,
                    ..relais_core::query::Filter::default()
                };
                $(filter.$field = self.$field.map(String::from);)*
                Ok(filter)
            }
        }
    };
}

pub(super) use row_query;
