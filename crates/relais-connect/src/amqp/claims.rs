//! Claims-based security: a token is put at the node `$cbs` before links are attached, and again before
//! it expires.

use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use fe2o3_amqp::{Receiver, Sender, session::SessionHandle};
use fe2o3_amqp_types::{
    messaging::{AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Target},
    primitives::{SimpleValue, Timestamp, Value},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use super::connection::{AmqpOpenError, CONNECT_MAX};

const NODE: &str = "$cbs";
const TOKEN_TYPE: &str = "servicebus.windows.net:sastoken";
/// The part of a token's life after which it is renewed.
const RENEW_AT: (u32, u32) = (3, 4);

/// A shared access key for one resource.
#[derive(Clone, Debug)]
pub(crate) struct SharedAccess {
    /// The resource: `amqps://HOST/ENTITY`.
    pub(crate) audience: String,
    pub(crate) key_name: String,
    pub(crate) key: SecretString,
    /// The life of a token.
    pub(crate) lifetime: Duration,
}

impl SharedAccess {
    /// Returns a token that is valid until `end`, in seconds since 1970.
    fn token(&self, end: u64) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let resource = encoded(&self.audience);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.expose_secret().as_bytes());
        let signature = hmac::sign(&key, format!("{resource}\n{end}").as_bytes());
        let signature = encoded(&STANDARD.encode(signature.as_ref()));
        let name = encoded(&self.key_name);
        format!("SharedAccessSignature sr={resource}&sig={signature}&se={end}&skn={name}")
    }

    fn request(&self, reply_to: &str, id: &str, end: u64) -> Message<Body<Value>> {
        let mut application = ApplicationProperties::default();
        let mut set = |name: &str, value| drop(application.0.insert(name.to_owned(), value));
        set("operation", SimpleValue::String("put-token".to_owned()));
        set("type", SimpleValue::String(TOKEN_TYPE.to_owned()));
        set("name", SimpleValue::String(self.audience.clone()));
        let millis = i64::try_from(end.saturating_mul(1_000)).unwrap_or(i64::MAX);
        set("expiration", SimpleValue::Timestamp(Timestamp::from_milliseconds(millis)));
        Message {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: Some(Properties {
                message_id: Some(MessageId::String(id.to_owned())),
                to: Some(NODE.to_owned()),
                reply_to: Some(reply_to.to_owned()),
                ..Properties::default()
            }),
            application_properties: Some(application),
            body: Body::Value(AmqpValue(Value::String(self.token(end)))),
            footer: None,
        }
    }
}

/// The two links to the node of claims.
pub(super) struct ClaimsLink {
    sender: Sender,
    receiver: Receiver,
    reply_to: String,
}

impl ClaimsLink {
    pub(super) async fn open(session: &mut SessionHandle<()>) -> Result<Self, AmqpOpenError> {
        let failed = |error: &dyn std::fmt::Display| {
            AmqpOpenError::Session(format!("cannot reach the node of claims: {error}"))
        };
        let reply_to = format!("relais-{}", Uuid::now_v7());
        let sender = Sender::attach(session, format!("{reply_to}-out"), NODE).await;
        let sender = sender.map_err(|error| failed(&error))?;
        let receiver = Receiver::builder()
            .name(format!("{reply_to}-in"))
            .source(NODE)
            .target(Target::builder().address(reply_to.as_str()).build())
            .auto_accept(true)
            .attach(session)
            .await
            .map_err(|error| failed(&error))?;
        Ok(Self { sender, receiver, reply_to })
    }

    /// Puts a new token and waits until it is accepted.
    pub(super) async fn put(&mut self, access: &SharedAccess) -> Result<(), AmqpOpenError> {
        let failed = |error: &dyn std::fmt::Display| {
            AmqpOpenError::Session(format!("cannot put a token: {error}"))
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Whole seconds, and not less than the lifetime.
        let (end, id) = ((now + access.lifetime).as_secs() + 1, Uuid::now_v7().to_string());
        let request = access.request(&self.reply_to, &id, end);
        self.sender.send(request).await.map_err(|error| failed(&error))?;
        loop {
            let answer = self.receiver.recv::<Body<Value>>().await;
            let answer = answer.map_err(|error| failed(&error))?.into_message();
            let properties = answer.properties.unwrap_or_default();
            if properties.correlation_id == Some(MessageId::String(id.clone())) {
                return status(&answer.application_properties.unwrap_or_default());
            }
        }
    }

    /// Renews the token until that fails; then the connection is not usable any more.
    pub(super) async fn renew(mut self, access: SharedAccess) {
        loop {
            tokio::time::sleep(access.lifetime * RENEW_AT.0 / RENEW_AT.1).await;
            match tokio::time::timeout(CONNECT_MAX, self.put(&access)).await {
                Ok(Ok(())) => tracing::debug!(audience = access.audience, "renewed the token"),
                Ok(Err(error)) => {
                    tracing::warn!(audience = access.audience, ?error, "could not renew the token");
                    return;
                }
                Err(_) => {
                    tracing::warn!(audience = access.audience, "no answer to a new token");
                    return;
                }
            }
        }
    }
}

/// Returns whether the answer accepts the token.
fn status(properties: &ApplicationProperties) -> Result<(), AmqpOpenError> {
    let code = match properties.0.get("status-code") {
        Some(SimpleValue::Int(code)) => *code,
        _ => 0,
    };
    let why = match properties.0.get("status-description") {
        Some(SimpleValue::String(text)) => text.as_str(),
        _ => "",
    };
    match code {
        200..=299 => Ok(()),
        401 | 403 | 404 => Err(AmqpOpenError::Refused(format!("{code} {why}"))),
        _ => Err(AmqpOpenError::Session(format!("the token was not accepted: {code} {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_form_of_a_shared_access_signature() {
        let access = SharedAccess {
            audience: "amqps://ns.servicebus.windows.net/orders".to_owned(),
            key_name: "Root Key".to_owned(),
            key: SecretString::from("secret".to_owned()),
            lifetime: Duration::from_secs(60),
        };
        let token = access.token(1_800_000_000);
        let resource = "amqps%3A%2F%2Fns%2Eservicebus%2Ewindows%2Enet%2Forders";
        assert!(token.starts_with(&format!("SharedAccessSignature sr={resource}&sig=")), "{token}");
        assert!(token.ends_with("&se=1800000000&skn=Root%20Key"), "{token}");
        assert!(!token.contains("secret") && !format!("{access:?}").contains("\"secret\""));
        assert_eq!(token, access.token(1_800_000_000));
        assert_ne!(token, access.token(1_800_000_001));
    }

    #[test]
    fn only_an_accepted_token_opens_the_connection() {
        let answer = |code: i32| {
            let mut properties = ApplicationProperties::default();
            properties.0.insert("status-code".to_owned(), SimpleValue::Int(code));
            status(&properties)
        };
        assert!(answer(200).is_ok() && answer(202).is_ok());
        assert!(matches!(answer(401), Err(AmqpOpenError::Refused(_))));
        assert!(matches!(answer(500), Err(AmqpOpenError::Session(_))));
    }
}
