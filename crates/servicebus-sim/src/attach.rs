//! Links that a client attaches: accepted, refused, or waiting for a session.

use std::{
    io,
    time::{Duration, Instant, SystemTime},
};

use fe2o3_amqp_types::{
    definitions::Role,
    messaging::TargetArchetype,
    performatives::Attach,
    primitives::{Symbol, Value},
};

use crate::{
    connection::SimConnection,
    entity,
    link::{LinkPurpose, SimLink, WaitingAttach},
    locked, reply, wire,
};

/// The longest wait for a session, if the client names none.
const SESSION_WAIT: Duration = Duration::from_secs(60);
/// Messages that a client may send ahead.
const CREDIT: u32 = 1_000;
const CLAIMS: &str = "$cbs";
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// 100 ns between year 1 and 1970, of .NET.
const TICKS_TO_1970: i64 = 621_355_968_000_000_000;

impl SimConnection {
    pub(crate) async fn on_attach(&mut self, channel: u16, attach: Attach) -> io::Result<()> {
        let source = attach.source.as_ref().and_then(|source| source.address.clone());
        let target = attach
            .target
            .as_deref()
            .and_then(|TargetArchetype::Target(target)| target.address.clone());
        let number = locked(&self.namespace).next_link();
        match attach.role {
            Role::Sender => {
                let address = target.unwrap_or_default();
                if address == CLAIMS {
                    return self.accept(channel, &attach, number, LinkPurpose::ClaimRequests).await;
                }
                let is_known = locked(&self.namespace).may_send(&address);
                match self.refusal(is_known, &address) {
                    Some(error) => self.refuse(channel, &attach, error).await,
                    None => {
                        let purpose = LinkPurpose::Receives { address };
                        self.accept(channel, &attach, number, purpose).await
                    }
                }
            }
            Role::Receiver => {
                let address = source.unwrap_or_default();
                if address == CLAIMS {
                    let reply_to = target.unwrap_or_default();
                    let purpose = LinkPurpose::ClaimResponses { reply_to };
                    return self.accept(channel, &attach, number, purpose).await;
                }
                let is_known = locked(&self.namespace).may_receive(&address);
                if let Some(error) = self.refusal(is_known, &address) {
                    return self.refuse(channel, &attach, error).await;
                }
                self.attach_receiver(channel, attach, address, number).await
            }
        }
    }

    /// Attaches a link that receives messages; one of a session waits until there is one.
    async fn attach_receiver(
        &mut self,
        channel: u16,
        attach: Attach,
        address: String,
        number: u64,
    ) -> io::Result<()> {
        let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref());
        let wanted = filter.and_then(|filter| filter.get(&Symbol::from(SESSION_FILTER)).cloned());
        let needs = locked(&self.namespace).needs_session(&address);
        match (needs, wanted) {
            (false, _) => {
                let purpose = LinkPurpose::Sends { address, session: None };
                self.accept(channel, &attach, number, purpose).await
            }
            (true, None) => {
                let why = "It is not possible for an entity that requires sessions to create a \
                           non-sessionful message receiver.";
                self.refuse(channel, &attach, ("amqp:not-allowed", why.to_owned())).await
            }
            (true, Some(wanted)) => {
                let wanted = match wanted {
                    Value::String(session) => Some(session),
                    _ => None,
                };
                let asked = attach.properties.as_ref().and_then(|properties| {
                    match properties.get(&Symbol::from("com.microsoft:timeout")) {
                        Some(Value::Uint(millis)) => Some(Duration::from_millis((*millis).into())),
                        _ => None,
                    }
                });
                let until = Instant::now() + asked.unwrap_or(SESSION_WAIT);
                let waiting = WaitingAttach { channel, attach, address, wanted, number, until };
                self.waiting.push(waiting);
                Ok(())
            }
        }
    }

    /// Returns why an entity cannot be used.
    fn refusal(&self, is_known: bool, address: &str) -> Option<(&'static str, String)> {
        if !is_known {
            let why = format!("The messaging entity '{address}' could not be found.");
            return Some(("amqp:not-found", why));
        }
        (!self.is_open(address)).then(|| {
            let why =
                format!("Unauthorized access. 'Send,Listen' claim(s) are required: {address}");
            ("amqp:unauthorized-access", why)
        })
    }

    /// Returns whether a valid token opens the entity.
    pub(crate) fn is_open(&self, address: &str) -> bool {
        let (address, now) = (address.to_lowercase(), SystemTime::now());
        self.opened.iter().any(|(path, end)| {
            let is_below = address.strip_prefix(path.as_str());
            *end > now
                && is_below
                    .is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
        })
    }

    async fn accept(
        &mut self,
        channel: u16,
        attach: &Attach,
        number: u64,
        purpose: LinkPurpose,
    ) -> io::Result<()> {
        let handle = attach.handle.0;
        let max = locked(&self.namespace).message_bytes_max();
        let mut link = SimLink::new(number, purpose, attach);
        let is_receiving = attach.role == Role::Sender;
        if is_receiving {
            link.credit = CREDIT;
            link.delivery_count = attach.initial_delivery_count.unwrap_or_default();
        }
        self.send(channel, &wire::encode(&reply::attach(attach, max))?).await?;
        let Some(session) = self.sessions.get_mut(&channel) else { return Ok(()) };
        if is_receiving {
            let flow = reply::flow(session, handle, link.delivery_count, CREDIT);
            session.links.insert(handle, link);
            self.send(channel, &wire::encode(&flow)?).await?;
        } else {
            session.links.insert(handle, link);
        }
        Ok(())
    }

    async fn refuse(
        &mut self,
        channel: u16,
        attach: &Attach,
        error: (&str, String),
    ) -> io::Result<()> {
        self.send(channel, &wire::encode(&reply::refused(attach))?).await?;
        let detach = reply::detach(attach.handle.0, Some(error));
        self.send(channel, &wire::encode(&detach)?).await
    }

    /// Attaches links whose session is free now, and refuses those that waited too long.
    pub(crate) async fn attach_waiting(&mut self) -> io::Result<()> {
        for mut one in std::mem::take(&mut self.waiting) {
            let session = {
                let mut namespace = locked(&self.namespace);
                match &one.wanted {
                    None => namespace.next_session(&one.address, one.number),
                    Some(wanted) => {
                        let is_taken = namespace.take_session(&one.address, wanted, one.number);
                        is_taken.then(|| wanted.clone())
                    }
                }
            };
            match session {
                Some(session) => {
                    note_session(&mut one.attach, &session);
                    let purpose =
                        LinkPurpose::Sends { address: one.address, session: Some(session) };
                    self.accept(one.channel, &one.attach, one.number, purpose).await?;
                }
                None if Instant::now() >= one.until => {
                    let why = "The operation did not complete within the allotted timeout.";
                    let error = ("com.microsoft:timeout", why.to_owned());
                    self.refuse(one.channel, &one.attach, error).await?;
                }
                None => self.waiting.push(one),
            }
        }
        Ok(())
    }
}

/// Writes the session into the answer: in the filter, and until when it is locked.
fn note_session(attach: &mut Attach, session: &str) {
    if let Some(source) = &mut attach.source {
        let filter = source.filter.get_or_insert_default();
        filter.insert(Symbol::from(SESSION_FILTER), Value::String(session.to_owned()));
    }
    let until = entity::timestamp(SystemTime::now() + SESSION_WAIT);
    let ticks = TICKS_TO_1970 + until.milliseconds() * 10_000;
    let properties = attach.properties.get_or_insert_default();
    properties.insert(Symbol::from("com.microsoft:locked-until-utc"), Value::Long(ticks));
}
