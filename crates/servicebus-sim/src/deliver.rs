//! Messages of a connection: stored, delivered and settled; and the requests of claims.

use std::{io, time::SystemTime};

use fe2o3_amqp_types::{
    definitions::{Handle, Role},
    messaging::{
        Accepted, AmqpValue, ApplicationProperties, Body, DeliveryState, Message, Properties,
    },
    performatives::{Disposition, Transfer},
    primitives::{Binary, SimpleValue, Symbol, Value},
};

use crate::{
    connection::SimConnection,
    entity::Settlement,
    link::{LinkPurpose, SentDelivery},
    locked, reply,
    wire::{self, AnyMessage},
};

/// The format of a transfer with several messages in it.
const BATCH_FORMAT: u32 = 0x8001_3700;
/// Bytes of a transfer frame besides its payload, at most.
const TRANSFER_OVERHEAD: usize = 512;
/// Credit at which the client gets more.
const CREDIT_LOW: u32 = 500;
const CREDIT: u32 = 1_000;

impl SimConnection {
    pub(crate) async fn on_transfer(
        &mut self,
        channel: u16,
        transfer: Transfer,
        payload: Vec<u8>,
    ) -> io::Result<()> {
        let handle = transfer.handle.0;
        let Some(session) = self.sessions.get_mut(&channel) else { return Ok(()) };
        session.next_incoming_id = session.next_incoming_id.wrapping_add(1);
        if let Some(id) = transfer.delivery_id {
            session.receiving_id = id;
        }
        let id = session.receiving_id;
        let Some(link) = session.links.get_mut(&handle) else { return Ok(()) };
        link.partial.extend(payload);
        if transfer.more {
            return Ok(());
        }
        let bytes = std::mem::take(&mut link.partial);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        link.credit = link.credit.saturating_sub(1);
        let purpose = link.purpose.clone();
        let credit = (link.credit <= CREDIT_LOW).then(|| {
            link.credit = CREDIT;
            link.delivery_count
        });
        if let Some(count) = credit {
            let flow = reply::flow(session, handle, count, CREDIT);
            self.send(channel, &wire::encode(&flow)?).await?;
        }
        let is_batch = transfer.message_format == Some(BATCH_FORMAT);
        let state = match &purpose {
            LinkPurpose::Receives { address } => self.store(address, &bytes, is_batch)?,
            _ => DeliveryState::Accepted(Accepted {}),
        };
        if transfer.settled != Some(true) {
            let answer = reply::disposition(Role::Receiver, id, state);
            self.send(channel, &wire::encode(&answer)?).await?;
        }
        if matches!(purpose, LinkPurpose::ClaimRequests) {
            self.on_claim(wire::decode_message(&bytes)?).await?;
        }
        Ok(())
    }

    fn store(&self, address: &str, bytes: &[u8], is_batch: bool) -> io::Result<DeliveryState> {
        let outer = wire::decode_message(bytes)?;
        let messages = match (is_batch, outer.body) {
            (true, Body::Data(sections)) => {
                let one = |data: fe2o3_amqp_types::messaging::Data| wire::decode_message(&data.0);
                sections.into_iter().map(one).collect::<io::Result<Vec<AnyMessage>>>()?
            }
            (_, body) => vec![Message { body, ..outer }],
        };
        let mut namespace = locked(&self.namespace);
        for message in messages {
            if let Err((condition, why)) = namespace.store(address, &message, SystemTime::now()) {
                return Ok(reply::rejected(condition, why));
            }
        }
        Ok(DeliveryState::Accepted(Accepted {}))
    }

    /// Answers a request to put a token.
    async fn on_claim(&mut self, request: AnyMessage) -> io::Result<()> {
        let token = match request.body {
            Body::Value(AmqpValue(Value::String(token))) => token,
            _ => String::new(),
        };
        let checked = locked(&self.namespace).check_token(&token, SystemTime::now());
        let (code, why) = match checked {
            Ok((path, end)) => {
                self.opened.insert(path, end);
                (202, "Accepted".to_owned())
            }
            Err(why) => (401, why),
        };
        let asked = request.properties.unwrap_or_default();
        let reply_to = asked.reply_to.unwrap_or_default();
        let mut properties = ApplicationProperties::default();
        properties.0.insert("status-code".to_owned(), SimpleValue::Int(code));
        properties.0.insert("status-description".to_owned(), SimpleValue::String(why));
        let answer = Message {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: Some(Properties {
                correlation_id: asked.message_id,
                ..Properties::default()
            }),
            application_properties: Some(properties),
            body: Body::Value(AmqpValue(Value::Null)),
            footer: None,
        };
        let mut place = None;
        for (channel, session) in &self.sessions {
            for (handle, link) in &session.links {
                if matches!(&link.purpose, LinkPurpose::ClaimResponses { reply_to: known }
                    if *known == reply_to)
                {
                    place = Some((*channel, *handle));
                }
            }
        }
        match place {
            Some((channel, handle)) => self.transfer(channel, handle, 0, &answer, true).await,
            None => Ok(()),
        }
    }

    /// Sends what is available to links with credit.
    pub(crate) async fn deliver(&mut self) -> io::Result<()> {
        let mut places: Vec<(u16, u32)> = Vec::new();
        for (channel, session) in &self.sessions {
            places.extend(session.links.keys().map(|handle| (*channel, *handle)));
        }
        for (channel, handle) in places {
            while self.deliver_one(channel, handle).await? {}
        }
        Ok(())
    }

    /// Returns whether a message was sent.
    async fn deliver_one(&mut self, channel: u16, handle: u32) -> io::Result<bool> {
        let Some(session) = self.sessions.get_mut(&channel) else { return Ok(false) };
        let Some(link) = session.links.get_mut(&handle) else { return Ok(false) };
        let LinkPurpose::Sends { address, session: of } = link.purpose.clone() else {
            return Ok(false);
        };
        if link.credit == 0 {
            return Ok(false);
        }
        let next =
            locked(&self.namespace).lock(&address, link.number, of.as_deref(), SystemTime::now());
        let Some(next) = next else {
            if link.is_draining {
                link.is_draining = false;
                link.delivery_count = link.delivery_count.wrapping_add(link.credit);
                link.credit = 0;
                let count = link.delivery_count;
                let mut flow = reply::flow(session, handle, count, 0);
                flow.drain = true;
                self.send(channel, &wire::encode(&flow)?).await?;
            }
            return Ok(false);
        };
        let is_presettled = link.is_presettled;
        let delivery =
            SentDelivery { address, token: next.token, settles_first: link.settles_first };
        if is_presettled {
            locked(&self.namespace).settle(&delivery.address, next.token, Settlement::Complete);
        } else {
            session.sent.insert(session.next_delivery_id, delivery);
        }
        self.transfer(channel, handle, next.token, &next.message, is_presettled).await?;
        Ok(true)
    }

    /// Sends a message in as many frames as it needs.
    async fn transfer(
        &mut self,
        channel: u16,
        handle: u32,
        token: u128,
        message: &AnyMessage,
        settled: bool,
    ) -> io::Result<()> {
        let payload = wire::encode_message(message)?;
        let limit = self.frame_max.saturating_sub(TRANSFER_OVERHEAD).max(1);
        let Some(session) = self.sessions.get_mut(&channel) else { return Ok(()) };
        let id = session.next_delivery_id;
        session.next_delivery_id = id.wrapping_add(1);
        if let Some(link) = session.links.get_mut(&handle) {
            link.delivery_count = link.delivery_count.wrapping_add(1);
            link.credit = link.credit.saturating_sub(1);
        }
        let parts: Vec<&[u8]> = payload.chunks(limit).collect();
        session.next_outgoing_id =
            session.next_outgoing_id.wrapping_add(u32::try_from(parts.len()).unwrap_or_default());
        for (at, part) in parts.iter().enumerate() {
            let is_first = at == 0;
            let transfer = Transfer {
                handle: Handle(handle),
                delivery_id: is_first.then_some(id),
                delivery_tag: is_first.then(|| Binary::from(token.to_be_bytes().to_vec())),
                message_format: is_first.then_some(0),
                settled: Some(settled),
                more: at + 1 < parts.len(),
                rcv_settle_mode: None,
                state: None,
                resume: false,
                aborted: false,
                batchable: true,
            };
            let mut body = wire::encode(&transfer)?;
            body.extend(*part);
            self.send(channel, &body).await?;
        }
        Ok(())
    }

    pub(crate) async fn on_disposition(
        &mut self,
        channel: u16,
        disposition: &Disposition,
    ) -> io::Result<()> {
        if disposition.role != Role::Receiver {
            return Ok(());
        }
        for id in disposition.first..=disposition.last.unwrap_or(disposition.first) {
            let session = self.sessions.get_mut(&channel);
            let Some(sent) = session.and_then(|session| session.sent.remove(&id)) else { continue };
            let (how, outcome) = settlement(disposition.state.clone());
            let is_valid = locked(&self.namespace).settle(&sent.address, sent.token, how);
            if sent.settles_first && disposition.settled {
                continue;
            }
            let state = if is_valid {
                outcome
            } else {
                let why = "The lock supplied is invalid. Either the lock expired, or the message \
                           has already been removed from the queue.";
                reply::rejected("com.microsoft:message-lock-lost", why.to_owned())
            };
            let answer = reply::disposition(Role::Sender, id, state);
            self.send(channel, &wire::encode(&answer)?).await?;
        }
        Ok(())
    }
}

/// Returns what a receiver did, and the outcome that confirms it.
fn settlement(state: Option<DeliveryState>) -> (Settlement, DeliveryState) {
    let outcome = state.clone().unwrap_or(DeliveryState::Accepted(Accepted {}));
    let how = match state {
        Some(DeliveryState::Accepted(_)) => Settlement::Complete,
        Some(DeliveryState::Rejected(rejected)) => {
            let info = rejected.error.and_then(|error| error.info);
            let field = |name: &str| {
                let value = info.as_ref().and_then(|info| info.get(&Symbol::from(name)).cloned());
                match value {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                }
            };
            Settlement::DeadLetter {
                reason: field("DeadLetterReason"),
                description: field("DeadLetterErrorDescription"),
            }
        }
        Some(DeliveryState::Modified(_)) => Settlement::Abandon,
        _ => Settlement::Release,
    };
    (how, outcome)
}
