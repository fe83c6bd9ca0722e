//! Checks an org before the first message: the login, the object, the external id field and the
//! columns.

use serde::Deserialize;

use super::{
    SalesforceSettings,
    client::{ApiCall, SalesforceClient},
};
use crate::ProbeError;

/// The result of one setting: a description, or the problem and what to do.
pub type ProbeResult = (&'static str, Result<String, ProbeError>);

/// Logs in and compares the settings with the description of the object. Writes nothing. A setting
/// that depends on a failed one is left out.
pub async fn probe(settings: &SalesforceSettings) -> Vec<ProbeResult> {
    let client = match SalesforceClient::new(settings) {
        Ok(client) => client,
        Err(why) => return vec![("login_url", Err(why.into()))],
    };
    let mut probed = Vec::new();
    match client.user_id().await {
        Ok(user) => {
            let user = user.map(|user| format!(" as user {user}")).unwrap_or_default();
            probed.push(("login_url", Ok(format!("logged in at {}{user}", client.origin()))));
        }
        Err(failure) => {
            let why = format!("cannot log in: {}", failure.problem.message);
            return vec![("login_url", Err(why.into()))];
        }
    }
    let object = &settings.object;
    if object.is_empty() {
        // The messages of a graph name their objects themselves.
        return probed;
    }
    let call = ApiCall::get(&format!("sobjects/{object}/describe"));
    match client.ask::<ObjectDescription>(call).await {
        Ok(described) => {
            let access = described.access(object);
            let usable = access.is_ok();
            probed.push(("object", access.map_err(ProbeError::from)));
            if usable {
                let external_id = described.external_id(&settings.external_id);
                let columns = described.columns(&settings.columns);
                probed.push(("external_id", external_id.map_err(ProbeError::from)));
                probed.push(("columns", columns.map_err(ProbeError::from)));
            }
        }
        Err(failure) if failure.status == Some(404) => {
            let why = format!(
                "the org has no object `{object}`, or its user may not see it; check `object` and the \
                 permissions of the user"
            );
            probed.push(("object", Err(why.into())));
        }
        Err(failure) => {
            let why = format!("cannot describe `{object}`: {}", failure.problem.message);
            probed.push(("object", Err(why.into())));
        }
    }
    probed
}

/// The description of an object by the org.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectDescription {
    createable: bool,
    updateable: bool,
    fields: Vec<DescribedField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribedField {
    name: String,
    external_id: bool,
    unique: bool,
    createable: bool,
    relationship_name: Option<String>,
}

impl ObjectDescription {
    fn access(&self, object: &str) -> Result<String, String> {
        if self.createable && self.updateable {
            return Ok(format!("`{object}` can be created and updated"));
        }
        Err(format!(
            "the user may not create and update `{object}`; grant it in a permission set of the user"
        ))
    }

    fn field(&self, name: &str) -> Option<&DescribedField> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))
    }

    fn external_id(&self, name: &str) -> Result<String, String> {
        match self.field(name) {
            None => Err(format!("the object has no field `{name}`{}", self.nearest(name))),
            Some(field) if !field.external_id => Err(format!(
                "`{name}` is not an external id; set External ID and Unique on the field in the org"
            )),
            Some(field) if !field.unique => Err(format!(
                "`{name}` is not unique, so an upsert could find several records; set Unique on the \
                 field in the org"
            )),
            Some(_) => Ok(format!("`{name}` is a unique external id")),
        }
    }

    fn columns(&self, columns: &[(String, String)]) -> Result<String, String> {
        let wrong: Vec<String> = columns.iter().filter_map(|(name, _)| self.wrong(name)).collect();
        match wrong.as_slice() {
            [] if columns.len() == 1 => Ok("the object has the column".to_owned()),
            [] => Ok(format!("the object has all {} columns", columns.len())),
            wrong => Err(wrong.join("; ")),
        }
    }

    fn wrong(&self, column: &str) -> Option<String> {
        let related = column.split_once('.').map(|(relation, _)| relation);
        if let Some(relation) = related {
            let named = |field: &DescribedField| {
                let name = field.relationship_name.as_deref();
                name.is_some_and(|name| name.eq_ignore_ascii_case(relation))
            };
            let known = self.fields.iter().any(named);
            return (!known).then(|| format!("the object has no relationship `{relation}`"));
        }
        match self.field(column) {
            None => Some(format!("the object has no field `{column}`{}", self.nearest(column))),
            Some(field) if !field.createable => Some(format!(
                "the user may not write field `{column}`; check the field-level security in the org"
            )),
            Some(_) => None,
        }
    }

    /// Suggests a name: custom fields end in `__c`, which is easily forgotten.
    fn nearest(&self, name: &str) -> String {
        let custom = format!("{}__c", name.trim_end_matches("__c"));
        let plain = name.trim_end_matches("__c").to_owned();
        let near = [custom, plain].into_iter().find_map(|name| self.field(&name));
        near.map_or_else(
            || "; create it in the org, or correct the name".to_owned(),
            |field| format!("; did you mean `{}`?", field.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> ObjectDescription {
        let field =
            |name: &str, external_id, unique, createable, relation: Option<&str>| DescribedField {
                name: name.to_owned(),
                external_id,
                unique,
                createable,
                relationship_name: relation.map(str::to_owned),
            };
        ObjectDescription {
            createable: true,
            updateable: true,
            fields: vec![
                field("Ref__c", true, true, true, None),
                field("Loose__c", true, false, true, None),
                field("LastName", false, false, true, None),
                field("CreatedDate", false, false, false, None),
                field("AccountId", false, false, true, Some("Account")),
            ],
        }
    }

    #[test]
    fn an_external_id_must_be_one_and_unique() {
        let described = described();
        assert!(described.external_id("ref__c").is_ok());
        for (name, wanted) in [
            ("Ref", "did you mean `Ref__c`?"),
            ("Other__c", "create it in the org"),
            ("LastName", "is not an external id"),
            ("Loose__c", "is not unique"),
        ] {
            let why = described.external_id(name).unwrap_err();
            assert!(why.contains(wanted), "{name}: {why}");
        }
    }

    #[test]
    fn columns_are_writable_fields_or_relationships() {
        let columns = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
        };
        let described = described();
        assert!(described.columns(&columns(&["LastName", "Account.Ref__c"])).is_ok());
        let why = described.columns(&columns(&["LastNme", "Owner.Ref__c", "CreatedDate"]));
        let why = why.unwrap_err();
        for wanted in ["no field `LastNme`", "no relationship `Owner`", "may not write field"] {
            assert!(why.contains(wanted), "{why}");
        }
    }
}
