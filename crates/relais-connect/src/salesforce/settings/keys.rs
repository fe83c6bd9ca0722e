//! The keys of kind `salesforce` in the configuration.

use std::time::Duration;

use relais_core::{
    setting::{Hidden, NameText, SettingWords, TextTable, TimeSpan, Word},
    settings, text_kinds,
};

use super::{API_VERSION, Api, Auth, OnMissing, SalesforceSettings, TOKEN_LIFE, login_url};
use crate::{SecretString, salesforce::SalesforceSession};
use secrecy::ExposeSecret;

settings! {
    /// `[[destination]]` of kind `salesforce`
    pub struct SalesforceKeys {
        /// the org's My Domain, `https://…my.salesforce.com`
        login_url: LoginUrl => "write for example \"https://acme.my.salesforce.com\"";
        /// the consumer key of the app
        client_id: NameText;
        /// log in with client credentials
        client_secret: Option<Hidden<SecretString>>;
        /// log in with JWT bearer: an RSA key as PEM. Needs `username`
        private_key: Option<Hidden<SecretString>>;
        /// the user of the JWT
        username: Option<NameText>;
        /// the `aud` of the JWT
        audience: Option<NameText> => "by `login_url`";
        /// log in with a refresh token; `client_secret` may be set beside it
        refresh_token: Option<Hidden<SecretString>>;
        /// at least 32 characters; [encrypts the stored token](salesforce.md#refresh-tokens)
        refresh_token_key: Option<Hidden<SecretString>> => "needed with `refresh_token`";
        /// `"bulk-v2"`, `"collections"`, `"graph"` or `"auto"`
        api: Option<Word<Api>> => "by the name, else `auto`";
        /// the object's API name; not for `graph`
        object: Option<NameText> => "by the name";
        /// the field of the upsert; its value is the row's aggregate id
        external_id: NameText = "ExternalId__c".to_owned();
        /// the version of the API
        api_version: NameText = API_VERSION.to_owned();
        /// Salesforce field = value: [columns](salesforce.md#columns). Not for `graph`
        columns: TextTable;
        /// `SELECT … WHERE id IN (:ids)`: reads fresh rows from the store's database just before sending
        hydrate: Option<HydrateSql>;
        /// the id column of the query
        hydrate_id: NameText = "id".to_owned();
        /// the version column of the query. If it is older than the message's `version` or `asOfVersion`, the message waits (`STALE_READ`)
        version: Option<NameText>;
        /// a row that the query does not find: `"reject"` makes a dead letter (`ROW_MISSING`), `"skip"` counts it as delivered
        on_missing: Word<OnMissing> = OnMissing::default();
        /// the error message of a validation rule that refuses older rows; such rows count as delivered
        superseded: Option<NameText>;
        /// how long an access token is used
        token_life: TimeSpan = TOKEN_LIFE, Duration::ZERO..=Duration::from_secs(86_400);
    }
}

text_kinds! {
    /// The URL of an org. It may have a login by mistake, so it is never shown.
    pub LoginUrl -> String, "text", |text| match login_url(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(why) => Err(why.trim_start_matches("`login_url` ").to_owned()),
        }, hidden true;
    /// A query for fresh rows.
    pub HydrateSql -> String, "text", |text| match text.trim() {
            "" => Err("is empty; write a SELECT or remove the key".to_owned()),
            _ => Ok(text.to_owned()),
        };
}

const LOGINS: &str =
    "give one of `client_secret`, `private_key` (with `username`) and `refresh_token`";

impl SalesforceKeys {
    /// Reports keys that do not fit together, by the keys that are present.
    pub fn check(has: &dyn Fn(&str) -> bool, report: &mut dyn FnMut(&str, String)) {
        if !has("private_key") {
            for key in ["username", "audience"].into_iter().filter(|key| has(key)) {
                report(key, "is for `private_key` only".to_owned());
            }
        } else if !has("username") {
            report("username", "is missing; name the user that `private_key` logs in".to_owned());
        }
        match (has("refresh_token"), has("refresh_token_key")) {
            (true, false) => report(
                "refresh_token_key",
                "is missing; an org may replace the refresh token at every use, and the new one is kept \
                 in the database, encrypted with this key (`openssl rand -base64 32` makes one)"
                    .to_owned(),
            ),
            (false, true) => report("refresh_token_key", "is for `refresh_token` only".to_owned()),
            _ => {}
        }
        let given = |key: &&str| has(key);
        match ["client_secret", "private_key", "refresh_token"].into_iter().filter(given).count() {
            0 => report("client_secret", format!("is missing; {LOGINS}")),
            // An app may need its secret beside the refresh token.
            2 if has("client_secret") && has("refresh_token") => {}
            1 => {}
            _ => report("private_key", format!("is one way too many; {LOGINS}")),
        }
        if has("version") && !has("hydrate") {
            let text = "is for `hydrate` only: the column of its result to compare";
            report("version", text.to_owned());
        }
    }

    /// Returns the login that the keys describe.
    pub fn auth(&self) -> Option<Auth> {
        let client_id = self.client_id.clone();
        let client_secret = self.client_secret.clone();
        if let Some(refresh_token) = self.refresh_token.clone() {
            return Some(Auth::RefreshToken { client_id, client_secret, refresh_token });
        }
        if let Some(private_key) = self.private_key.clone() {
            let (username, audience) = (self.username.clone()?, self.audience.clone());
            return Some(Auth::JwtBearer { client_id, username, private_key, audience });
        }
        Some(Auth::ClientCredentials { client_id, client_secret: client_secret? })
    }

    /// Returns the settings of the connector; those of bulk jobs are the defaults.
    pub fn settings(
        &self,
        auth: Auth,
        object: &str,
        session: SalesforceSession,
    ) -> SalesforceSettings {
        SalesforceSettings {
            api_version: self.api_version.clone(),
            columns: self.columns.clone(),
            version: self.version.clone(),
            on_missing: self.on_missing,
            superseded: self.superseded.clone(),
            token_life: self.token_life,
            session,
            ..SalesforceSettings::new(&self.login_url, auth, object, &self.external_id)
        }
    }
}

impl Api {
    /// Returns API and object of a destination's name such as `HTTP:SFDC:BulkV2:Contact`.
    pub fn of_name(name: &str) -> Option<(Self, &str)> {
        let parts: Vec<&str> = name.split(':').collect();
        let [http, org, api, object] = parts.as_slice() else { return None };
        if !http.eq_ignore_ascii_case("HTTP") || !org.eq_ignore_ascii_case("SFDC") {
            return None;
        }
        let api = match api.to_ascii_lowercase().as_str() {
            "bulkv2" | "bulk-v2" => Self::BulkV2,
            "collections" => Self::Collections,
            "graph" | "compositegraph" => Self::Graph,
            "auto" => Self::Auto,
            _ => return None,
        };
        Some((api, *object))
    }
}

impl Auth {
    /// Returns whether both get the same access token.
    pub fn is_same(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }

    fn parts(&self) -> [&str; 4] {
        match self {
            Self::ClientCredentials { client_id, client_secret } => {
                ["client", client_id, client_secret.expose_secret(), ""]
            }
            Self::JwtBearer { client_id, username, private_key, audience: None } => {
                [username, client_id, private_key.expose_secret(), ""]
            }
            Self::JwtBearer { client_id, username, private_key, audience: Some(audience) } => {
                [username, client_id, private_key.expose_secret(), audience]
            }
            Self::RefreshToken { client_id, refresh_token, .. } => {
                ["refresh", client_id, refresh_token.expose_secret(), ""]
            }
        }
    }
}

impl SettingWords for Api {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("bulk-v2", Self::BulkV2),
        ("collections", Self::Collections),
        ("graph", Self::Graph),
    ];
}

impl SettingWords for OnMissing {
    const WORDS: &'static [(&'static str, Self)] =
        &[("reject", Self::Reject), ("skip", Self::Skip)];
}
